# SPDX-License-Identifier: Apache-2.0
"""Dropout masks as a pure function of seed, row and column, whatever order rows are computed in.

Integer arithmetic of 32 bits only, so that every emitter gives the same bits on every device:
each word goes through the finaliser of MurmurHash3 (Appleby, 2011), and an element is kept where
the hash, read as a signed number, reaches a threshold.
"""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["keep_scales", "seed_word", "threshold"]

_FIRST, _SECOND = -2048144789, -1028477387  # 0x85ebca6b and 0xc2b2ae35 as signed words
_GOLDEN = -1640531527  # 0x9e3779b9
_CHUNK = {"cpu": 1 << 16}  # elements whose words stay in a core's cache


def seed_word(seed: int) -> int:
    """An integer of any size as the signed 64-bit word that masks are made from."""
    return (seed + (1 << 63)) % (1 << 64) - (1 << 63)


def threshold(p: float) -> int:
    """The signed 32-bit word from which elements are kept."""
    return min(round(p * (1 << 32)), (1 << 32) - 1) - (1 << 31)


def _mix(word: Tensor) -> Tensor:
    """MurmurHash3's finaliser, in place."""
    word ^= (word >> 16) & 0xFFFF
    word *= _FIRST
    word ^= (word >> 13) & 0x7FFFF
    word *= _SECOND
    word ^= (word >> 16) & 0xFFFF
    return word


def keep_scales(
    rows: Tensor, width: int, p: float, seed: Tensor | int, dtype: torch.dtype
) -> Tensor:
    """``1 / (1 - p)`` where an element is kept, else 0.

    Parameters
    ----------
    rows : Tensor, int64, shape (n,)
        Number of each row.
    width : int
        Elements in a row.
    p : float
        In [0, 1).
    seed : int or Tensor, int64, shape ()
    dtype : torch.dtype

    Returns
    -------
    Tensor, shape (n, width), on the device of ``rows``
    """
    device = rows.device
    if not isinstance(seed, Tensor):
        seed = torch.tensor(seed_word(seed), device="cpu")
    seed = seed.to(torch.int64)
    low, high = (_mix((seed >> shift).to(torch.int32) + _GOLDEN) for shift in (0, 32))
    keys = _mix(rows.to(torch.int32) ^ low)
    keys = _mix(keys ^ (rows >> 32).to(torch.int32) ^ high)
    columns = _mix(torch.arange(1, width + 1, dtype=torch.int32, device=device) * _GOLDEN)
    out = torch.empty((rows.shape[0], width), dtype=dtype, device=device)
    step = max(_CHUNK.get(device.type, 1 << 26) // max(width, 1), 1)
    for start in range(0, rows.shape[0], step):
        words = _mix(keys[start : start + step, None] + columns)
        out[start : start + step] = words >= threshold(p)
    return out.mul_(1 / (1 - p))
