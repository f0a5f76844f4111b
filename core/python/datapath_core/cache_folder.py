# SPDX-License-Identifier: Apache-2.0
"""The folder of what was measured on this machine, and files that appear whole or not at all."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

__all__ = ["cache_folder", "write_whole"]


def cache_folder() -> Path:
    """Return ``datapath`` in the user's cache folder, by the rules of the native library."""
    cache = os.environ.get("XDG_CACHE_HOME", "")
    base = Path(cache) if cache.startswith("/") else Path.home() / ".cache"
    return base / "datapath"


def write_whole(path: Path, text: str) -> None:
    """Write a file in one step, and its folder where there is none.

    Whoever reads meanwhile finds the file before or the one after, and an error leaves the one
    before.

    Raises
    ------
    OSError
        If the folder cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink()
        raise
