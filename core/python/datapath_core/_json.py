# SPDX-License-Identifier: Apache-2.0
"""Reads the native library's JSON; the parser is imported at first use, for a quick import."""

from __future__ import annotations

from typing import Any

__all__ = ["loads"]


def loads(text: str) -> Any:
    """Read JSON text."""
    import json

    return json.loads(text)
