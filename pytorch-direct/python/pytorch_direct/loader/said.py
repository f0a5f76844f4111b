# SPDX-License-Identifier: Apache-2.0
"""Warnings that come once in a process, with the line of the caller outside this package."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

__all__ = ["say_once"]

_PACKAGE = str(Path(__file__).parent.parent)
_said: set[str] = set()


def say_once(what: str, text: str) -> None:
    """Warn, unless that was done for the same `what` before."""
    if what in _said:
        return
    _said.add(what)
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        level, frame = level + 1, frame.f_back
    warnings.warn(text, UserWarning, stacklevel=level)
