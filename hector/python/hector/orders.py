# SPDX-License-Identifier: Apache-2.0
"""Stable orders of bounded integers, and runs of equal ones; nothing here waits for a device."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

__all__ = ["bounds", "narrow", "run_numbers", "stable_order"]

_DIGIT = 1 << 16
"""Keys below this are sorted in one pass on the CPU."""


def narrow(values: Tensor, bound: int) -> Tensor:
    """The values in 32 bits where all below ``bound`` fit, in 64 bits otherwise."""
    return values.to(torch.int32 if bound < 1 << 31 else torch.int64)


def _key_dtype(bound: int) -> torch.dtype:
    """The narrowest dtype that holds all below ``bound``: a radix sort passes once a byte."""
    for dtype in (torch.uint8, torch.int16, torch.int32):
        if bound - 1 <= torch.iinfo(dtype).max:
            return dtype
    return torch.int64


def _by_digits(keys: np.ndarray, bound: int) -> np.ndarray:
    """A radix sort from the lowest digit: NumPy's stable sort of 16 bits counts."""
    order = np.argsort(keys.astype(np.uint16), kind="stable")
    shift = 16
    while bound > 1 << shift:
        digit = (keys >> shift).astype(np.uint16)
        order = order[np.argsort(digit[order], kind="stable")]
        shift += 16
    return order


def stable_order(keys: Tensor, bound: int) -> Tensor:
    """Places of the keys in ascending order; equal keys stay in theirs.

    Parameters
    ----------
    keys : Tensor, integer, shape (n,)
        In [0, bound). Others are put somewhere, without an error.
    bound : int

    Returns
    -------
    Tensor, int64, shape (n,)
    """
    if keys.device.type == "cpu":
        return torch.from_numpy(_by_digits(keys.numpy(), bound))
    return torch.sort(keys.to(_key_dtype(bound)), stable=True).indices


def bounds(keys: Tensor, order: Tensor | None, rows: int) -> Tensor:
    """Where each key's places begin in the ascending order, and where the last ends.

    Parameters
    ----------
    keys : Tensor, integer, shape (n,)
        In [0, rows).
    order : Tensor or None
        What ``stable_order`` gives; None where the keys ascend already.
    rows : int

    Returns
    -------
    Tensor, int64, shape (rows + 1,)
    """
    if keys.device.type == "cpu":
        made = torch.zeros(rows + 1, dtype=torch.int64, device="cpu")
        torch.cumsum(torch.bincount(keys, minlength=rows), 0, out=made[1:])
        return made
    # Counting would ask the device for the largest key.
    ascending = (keys if order is None else keys[order]).contiguous()
    wanted = torch.arange(rows + 1, dtype=ascending.dtype, device=keys.device)
    return torch.searchsorted(ascending, wanted)


def run_numbers(keys: Sequence[Tensor], dtype: torch.dtype) -> Tensor:
    """Number of the run of equal rows that each place belongs to.

    Parameters
    ----------
    keys : sequence of Tensor, shape (n,)
        Columns of the rows.
    dtype : torch.dtype

    Returns
    -------
    Tensor, shape (n,)
        From 0, ascending.
    """
    fresh = torch.zeros_like(keys[0], dtype=torch.bool)
    for key in keys:
        fresh[1:] |= key[1:] != key[:-1]
    return torch.cumsum(fresh, 0, dtype=dtype)
