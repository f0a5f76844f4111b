# SPDX-License-Identifier: Apache-2.0
"""Reads the native library's JSON; the parser is imported at first use, for a quick import."""

from __future__ import annotations

from typing import Any

from datapath_core import _log

__all__ = ["described", "loads"]


def loads(text: str) -> Any:
    """Read JSON text."""
    import json

    return json.loads(text)


def described(text: str) -> dict[str, Any]:
    """Read a description, and log what the library had to say while it was made."""
    parsed: dict[str, Any] = loads(text)
    _log.flush()
    return parsed
