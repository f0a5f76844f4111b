# SPDX-License-Identifier: Apache-2.0
"""Checksums of stored bytes (``checks=True``): to find faults, not to guard against attackers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from datapath_core import Error

from .storage import ByteRange, bytes_of

if TYPE_CHECKING:
    from .group import Group

__all__ = ["checksum", "poison", "poison_buffer", "verify"]

_POISON = 0xFF

_CHUNK = 1 << 20
# Odd multipliers are invertible modulo 2**64, so one changed byte always changes the sum of its
# chunk.
_STEP = 0x9E3779B97F4A7C15 - (1 << 64)
_FOLD = 0x2545F4914F6CDD1D


def checksum(data: torch.Tensor) -> torch.Tensor:
    """A position-dependent 64-bit checksum, computed where the bytes are and left there.

    Parameters
    ----------
    data : torch.Tensor
        One-dimensional uint8 tensor on any device.

    Returns
    -------
    torch.Tensor
        Zero-dimensional int64 tensor on the same device.
    """
    weights = torch.arange(min(_CHUNK, data.numel()), dtype=torch.int64, device=data.device)
    weights = weights.mul_(_STEP).bitwise_or_(1)
    total = torch.zeros((), dtype=torch.int64, device=data.device)
    for chunk in torch.split(data, _CHUNK):
        part = (chunk.to(torch.int64) + 1).mul_(weights[: chunk.numel()]).sum()
        total = total.mul_(_FOLD).add_(part)
    return total


def verify(group: Group, storage: torch.UntypedStorage, what: str) -> None:
    """Raise ``Error`` if a group's loaded copy has not the bytes that were stored."""
    first = group.span.start - group.loaded_start
    found = checksum(bytes_of(storage, ByteRange(first, first + group.nbytes)))
    expected = group.checksum
    if expected is not None and not torch.equal(found, expected):
        raise Error(
            f"ssdtrain: saved tensor {what} came back changed: {group.nbytes} bytes have the"
            f" checksum {found.item():#x}, at the save it was {expected.item():#x}; gradients from"
            " them would be wrong"
        )


def poison(storage: torch.UntypedStorage, span: ByteRange) -> None:
    """Overwrite bytes that nobody but the caller holds, in the order of the current stream.

    Whoever reads them nevertheless, as a transfer does that was not waited for, brings back NaNs.
    """
    # One reference is the caller's.
    if torch._C._storage_Use_Count(storage._cdata) == 1:
        bytes_of(storage, span).fill_(_POISON)


def poison_buffer(buffer: Any) -> None:
    """Overwrite a pinned buffer that no transfer uses any more."""
    torch.frombuffer(buffer, dtype=torch.uint8).fill_(_POISON)
