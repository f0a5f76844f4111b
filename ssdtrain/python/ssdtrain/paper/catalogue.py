# SPDX-License-Identifier: Apache-2.0
"""Reads the catalogues: JSON files beside this one, each entry with its source."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any

__all__ = ["catalogue", "entry"]


@cache
def catalogue(kind: str) -> dict[str, dict[str, Any]]:
    """Return all entries of "models", "gpus" or "ssds" by name."""
    text = (files(__package__) / "data" / f"{kind}.json").read_text(encoding="utf-8")
    read: dict[str, dict[str, Any]] = json.loads(text)
    return read


def entry(kind: str, name: str) -> dict[str, Any]:
    """Return one entry; spelling in capitals, with spaces or underscores is the same.

    Raises
    ------
    ValueError
        For a name that is not there; the text lists those that are.
    """
    known = catalogue(kind)
    wanted = name.strip().lower().replace(" ", "-").replace("_", "-")
    if wanted not in known:
        raise ValueError(
            f"no {kind[:-1]} {name!r} in the catalogue, which has: {', '.join(sorted(known))}"
        )
    return known[wanted]
