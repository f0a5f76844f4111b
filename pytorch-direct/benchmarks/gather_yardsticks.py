# SPDX-License-Identifier: Apache-2.0
"""What the GPU benchmarks of gathers share: timing, tables with a known pattern, peers, traces."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable

import torch
import torch.utils.dlpack

from datapath_core import PinnedPool
from pytorch_direct import UnifiedTensor, unified


def gpu_seconds(run: Callable[[], object], repeats: int = 5) -> float:
    """Return the GPU's median time for a run, after one that is not counted."""
    run()
    times = []
    for _ in range(repeats):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        run()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) / 1e3)
    return statistics.median(times)


def copy_rate() -> float:
    """Return the rate of a pinned copy to the GPU in GB/s."""
    host = torch.empty(1 << 30, dtype=torch.uint8, pin_memory=True)
    device = torch.empty_like(host, device="cuda")
    return host.numel() / gpu_seconds(lambda: device.copy_(host, non_blocking=True)) / 1e9


def fill(memory: torch.Tensor) -> None:
    """Write to each word its number, so that rows can be told from one another."""
    words = memory.view(torch.int64)
    step = 1 << 27
    for begin in range(0, words.numel(), step):
        end = min(words.numel(), begin + step)
        torch.arange(begin, end, out=words[begin:end])


def pinned_table(nbytes: int) -> UnifiedTensor:
    """Return a pattern in pinned memory on huge pages, unified."""
    memory = torch.utils.dlpack.from_dlpack(PinnedPool(nbytes, device="cuda").allocate(nbytes))
    fill(memory)
    table = unified(memory)
    if not table.is_registered:
        raise RuntimeError(f"the table could not be pinned: {table._registration.reason}")
    return table


def registered_in_place(nbytes: int) -> float:
    """Return the seconds that registering ordinary memory takes, touched before."""
    memory = torch.zeros(nbytes, dtype=torch.uint8)
    start = time.perf_counter()
    table = unified(memory)
    seconds = time.perf_counter() - start
    if not table.is_registered:
        raise RuntimeError(f"the memory could not be pinned: {table._registration.reason}")
    return seconds


def rows_of(memory: UnifiedTensor, width: int, pitch: int | None = None) -> torch.Tensor:
    """Return the memory as rows of `width` bytes, each `pitch` bytes behind the last one."""
    pitch = width if pitch is None else pitch
    return memory[: memory.numel() // pitch * pitch].view(-1, pitch)[:, :width]


def verify(out: torch.Tensor, table: torch.Tensor, ids: torch.Tensor, what: str) -> None:
    """Compare a thousand gathered rows with the table, byte for byte, or stop."""
    some = torch.randint(0, ids.numel(), (1000,), device=ids.device)
    expected = torch.stack([table[row] for row in ids[some].cpu().tolist()])
    if not torch.equal(out[some].cpu(), expected):
        raise RuntimeError(f"{what}: rows came out wrong")


def through_cpu(table: torch.Tensor, ids: torch.Tensor, threads: int) -> float:
    """Return the seconds of the CPU's way: index_select into pinned memory, then a copy."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    # An ordinary tensor, which torch serves by itself.
    plain = torch.empty(0, dtype=table.dtype).set_(
        table.untyped_storage(), table.storage_offset(), table.size(), table.stride()
    )
    shape = (ids.numel(), table.shape[1])
    staged = torch.empty(shape, dtype=table.dtype, pin_memory=True)
    device = torch.empty(shape, dtype=table.dtype, device="cuda")
    times = []
    for _ in range(4):
        torch.cuda.synchronize()
        start = time.perf_counter()
        torch.index_select(plain, 0, ids, out=staged)
        device.copy_(staged, non_blocking=True)
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    torch.set_num_threads(before)
    return min(times)


def power_law_ranks(rows: int, count: int) -> torch.Tensor:
    """Return ranks in [0, rows) on the GPU by Zipf's law with exponent 1."""
    uniform = torch.rand(count, device="cuda", dtype=torch.float64)
    return (torch.exp(uniform * math.log(rows)) - 1).to(torch.int64).clamp_(0, rows - 1)


def scattered(ranks: torch.Tensor, rows: int) -> torch.Tensor:
    """Return where rows of these ranks stand in a table without order: a bijection."""
    prime = 1_000_000_007
    if rows % prime == 0:
        raise ValueError("the number of rows must not be a multiple of the multiplier")
    return ranks * prime % rows
