# SPDX-License-Identifier: Apache-2.0
"""Finds the user's source line behind a recorded operator or an error."""

from __future__ import annotations

import linecache
import os
import sys
import textwrap
from pathlib import Path
from types import TracebackType

import torch

__all__ = ["is_own", "located", "raised_at", "user_location"]

_OWN = str(Path(__file__).parents[1]) + os.sep
_WIDTH = 120
_SKIPPED = (_OWN, str(Path(torch.__file__).parent) + os.sep)


def _shown(path: str, line: int) -> str:
    text = textwrap.shorten(linecache.getline(path, line), _WIDTH, placeholder=" ..")
    return f"{path}:{line}" + (f": `{text}`" if text else "")


def user_location() -> str:
    """``file:line: text`` of the innermost frame outside this package and torch."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_SKIPPED):
        frame = frame.f_back
    return _shown(frame.f_code.co_filename, frame.f_lineno)


def _frames(error: BaseException) -> list[TracebackType]:
    found, here = [], error.__traceback__
    while here is not None:
        found.append(here)
        here = here.tb_next
    return found


def is_own(error: BaseException) -> bool:
    """Whether an error was raised by this package rather than by code that it called."""
    frames = _frames(error)
    return bool(frames) and frames[-1].tb_frame.f_code.co_filename.startswith(_OWN)


def raised_at(error: BaseException) -> str:
    """``file:line: text`` of the innermost frame of an error outside this package and torch."""
    outside = [
        each for each in _frames(error) if not each.tb_frame.f_code.co_filename.startswith(_SKIPPED)
    ]
    return _shown(outside[-1].tb_frame.f_code.co_filename, outside[-1].tb_lineno) if outside else ""


def located(error: Exception, name: str) -> Exception:
    """The error with the user's line and the operator in front, unless it names them."""
    where, text = user_location(), str(error)
    return (
        error
        if where in text
        else type(error)(f"{where}: {text if name in text else f'{name}: {text}'}")
    )
