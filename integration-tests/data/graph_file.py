# SPDX-License-Identifier: Apache-2.0
"""Writes and reads named integer arrays in one compressed, checked file; not for what they mean.

The file is an xz stream (CRC-64 inside) over the concatenated arrays, each cut into byte planes
because small integers compress better that way. A JSON file beside it holds the arrays' names,
dtypes and lengths, the SHA-256 of the compressed file, and whatever else the writer notes.
"""

from __future__ import annotations

import hashlib
import json
import lzma
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["read_arrays", "write_arrays"]

_DTYPES = ("uint8", "uint16", "uint32")


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray], notes: Mapping[str, Any]) -> None:
    """Write `path` (the arrays) and `path` with suffix .json (the description).

    Equal input gives equal bytes with the same liblzma.

    Parameters
    ----------
    path : Path
        Name of the compressed file.
    arrays : mapping of str to numpy.ndarray
        One-dimensional, of dtype uint8, uint16 or uint32.
    notes : mapping
        JSON values that describe the content; stored under "notes".
    """
    layout, planes = [], []
    for name, array in arrays.items():
        if array.ndim != 1 or array.dtype.name not in _DTYPES:
            raise ValueError(
                f"{name}: {array.dtype} with {array.ndim} dimensions; "
                f"one dimension and one of {', '.join(_DTYPES)} wanted"
            )
        little = array.astype(array.dtype.newbyteorder("<"))
        width = array.dtype.itemsize
        planes.append(little.view(np.uint8).reshape(-1, width).T.tobytes())
        layout.append({"name": name, "dtype": array.dtype.name, "length": len(array)})
    packed = lzma.compress(b"".join(planes), check=lzma.CHECK_CRC64, preset=9 | lzma.PRESET_EXTREME)
    description = {
        "sha256": hashlib.sha256(packed).hexdigest(),
        "arrays": layout,
        "notes": dict(notes),
    }
    path.write_bytes(packed)
    text = json.dumps(description, indent=1, ensure_ascii=False)
    path.with_suffix(".json").write_text(text + "\n", encoding="utf-8")


def _damaged(path: Path, what: str) -> ValueError:
    return ValueError(
        f"{path}: damaged: {what}; restore the file and its .json from version control, "
        "or build both again with build_debian_graph.py"
    )


def read_arrays(path: Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Read what :func:`write_arrays` wrote.

    Returns
    -------
    tuple
        The arrays by name, and the notes.

    Raises
    ------
    FileNotFoundError
        One of the two files is absent.
    ValueError
        The bytes do not match the checksum, or the description does not fit them.
    """
    packed = path.read_bytes()
    try:
        description = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
        wanted = description["sha256"]
        layout = [
            (str(a["name"]), str(a["dtype"]), int(a["length"])) for a in description["arrays"]
        ]
        notes = dict(description["notes"])
    except (KeyError, TypeError, ValueError) as error:
        raise _damaged(path.with_suffix(".json"), f"{type(error).__name__}: {error}") from error
    found = hashlib.sha256(packed).hexdigest()
    if found != wanted:
        raise _damaged(path, f"sha256 is {found}, the description says {wanted}")
    raw = lzma.decompress(packed)
    arrays: dict[str, np.ndarray] = {}
    position = 0
    for name, dtype, length in layout:
        if dtype not in _DTYPES or length < 0:
            raise _damaged(path.with_suffix(".json"), f"{name}: dtype {dtype}, length {length}")
        width = np.dtype(dtype).itemsize
        piece = np.frombuffer(raw, np.uint8, count=-1)[position : position + width * length]
        if piece.size != width * length:
            raise _damaged(path, f"{name} ends {width * length - piece.size} bytes early")
        position += width * length
        interleaved = np.ascontiguousarray(piece.reshape(width, length).T).reshape(-1)
        arrays[name] = interleaved.view(np.dtype(dtype).newbyteorder("<")).astype(dtype)
    if position != len(raw):
        raise _damaged(path, f"{len(raw) - position} bytes more than described")
    return arrays, notes
