# SPDX-License-Identifier: Apache-2.0
"""Rates and tables with a known pattern, on a GPU or the CPU; what measuring shares.

Not a benchmark and no picture: it is used by the command line and by the benchmark programs.
"""

from __future__ import annotations

import mmap
from typing import Any

import torch
import torch.utils.dlpack

from datapath_core import PinnedPool
from datapath_core.errors import UnsupportedError
from pytorch_direct.graph.device import as_device
from pytorch_direct.ops.bad_ids import check
from pytorch_direct.ops.gather import gather
from pytorch_direct.tensor.unified_tensor import UnifiedTensor, unified
from pytorch_direct.timing import seconds

__all__ = [
    "copy_rate",
    "gather_rate",
    "host_table",
    "measuring_device",
    "rows_of",
    "verify_rows",
]


def measuring_device(name: str | None = None) -> torch.device:
    """Return the device of a name; without one CUDA's current GPU where there is one, else the CPU.

    Raises
    ------
    UnsupportedError
        It is a GPU that this process does not see.
    """
    device = torch.device(name or ("cuda" if torch.cuda.is_available() else "cpu"))
    if device.type not in ("cuda", "cpu"):
        raise UnsupportedError(f"{device} cannot be measured: give cpu, cuda or cuda:N")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise UnsupportedError(f"{device} was asked for, but torch sees no GPU here")
    return as_device(device)


def copy_rate(device: torch.device, nbytes: int = 1 << 30) -> float:
    """Return bytes a second of one copy to the device, from pinned memory to a GPU."""
    host = torch.empty(nbytes, dtype=torch.uint8, pin_memory=device.type == "cuda")
    # Memory that was never written is one page of zeros, which a copy would read from the cache.
    host.fill_(1)
    there = torch.empty_like(host, device=device)
    return nbytes / seconds(lambda: there.copy_(host, non_blocking=True), device)


def host_table(nbytes: int, device: torch.device) -> UnifiedTensor:
    """Return host memory that the device reads, uint8 [nbytes]: each 8 bytes hold their number.

    Raises
    ------
    UnsupportedError
        The memory could not be pinned for the GPU.
    """
    if device.type == "cuda":
        # A pool's buffers are whole pages.
        pool = PinnedPool(-(-nbytes // mmap.PAGESIZE) * mmap.PAGESIZE, device=device)
        memory = torch.utils.dlpack.from_dlpack(pool.allocate(nbytes))
    else:
        memory = torch.empty(nbytes, dtype=torch.uint8)
    words = memory[: nbytes // 8 * 8].view(torch.int64)
    step = 1 << 27
    for begin in range(0, words.numel(), step):
        end = min(words.numel(), begin + step)
        torch.arange(begin, end, out=words[begin:end])
    table = unified(memory)
    if device.type == "cuda" and not table.is_registered:
        raise UnsupportedError(f"the table could not be pinned: {table._registration.reason}")
    return table


def rows_of(memory: torch.Tensor, width: int, pitch: int | None = None) -> torch.Tensor:
    """Return memory as rows of `width` bytes, each beginning `pitch` bytes behind the last one."""
    pitch = width if pitch is None else pitch
    return memory[: memory.numel() // pitch * pitch].view(-1, pitch)[:, :width]


def verify_rows(out: torch.Tensor, table: torch.Tensor, ids: torch.Tensor, what: str) -> None:
    """Compare some gathered rows with the table, byte for byte.

    Raises
    ------
    RuntimeError
        They differ.
    """
    some = torch.randint(0, ids.numel(), (min(1000, ids.numel()),), device=ids.device)
    expected = torch.stack([table[row] for row in ids[some].cpu().tolist()])
    if not torch.equal(out[some].cpu(), expected):
        raise RuntimeError(f"{what}: rows came out wrong")


def gather_rate(
    memory: UnifiedTensor,
    width: int,
    device: torch.device,
    *,
    pitch: int | None = None,
    ids: torch.Tensor | None = None,
    count: int = 1 << 20,
    **options: Any,
) -> tuple[float, int]:
    """Return bytes a second of a gather of rows of `width` bytes, and how many rows it has.

    Parameters
    ----------
    memory : UnifiedTensor
        Of :func:`host_table`.
    width, pitch : int
        As in :func:`rows_of`.
    device : torch.device
    ids : torch.Tensor, optional
        Random ones by default.
    count : int
        How many random ones, if they make 2 GiB or less.
    **options
        Of ``gather``.

    Raises
    ------
    RuntimeError
        Rows came out wrong.
    """
    table = rows_of(memory, width, pitch)
    if ids is None:
        count = min(count, (2 << 30) // width)
        ids = torch.randint(0, table.shape[0], (count,), device=device)
    out = torch.empty(ids.numel(), width, dtype=torch.uint8, device=device)
    took = seconds(lambda: gather(table, ids, out=out, **options), device)
    if device.type == "cuda":
        check(device)
    verify_rows(out, table, ids, f"rows of {width} B")
    return ids.numel() * width / took, ids.numel()
