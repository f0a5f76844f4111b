# SPDX-License-Identifier: Apache-2.0
"""Finds the user's source line behind a recorded operator."""

from __future__ import annotations

import linecache
import sys
from pathlib import Path

import torch

__all__ = ["user_location"]

_SKIPPED = (str(Path(__file__).parents[1]), str(Path(torch.__file__).parent))


def user_location() -> str:
    """``file:line: text`` of the innermost frame outside this package and torch."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_SKIPPED):
        frame = frame.f_back
    path, line = frame.f_code.co_filename, frame.f_lineno
    text = linecache.getline(path, line).strip()
    return f"{path}:{line}" + (f": `{text}`" if text else "")
