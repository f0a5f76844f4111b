# SPDX-License-Identifier: Apache-2.0
"""What gathers are compared with: the CPU's way, traces of a power law, training steps."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import torch

from pytorch_direct import unified

__all__ = [
    "plain", "power_law_ranks", "registered_in_place", "sage_step", "scattered", "through_cpu",
]  # fmt: skip


def plain(table: torch.Tensor) -> torch.Tensor:
    """Return an ordinary tensor over the same memory, which torch serves by itself."""
    return torch.empty(0, dtype=table.dtype).set_(
        table.untyped_storage(), table.storage_offset(), table.size(), table.stride()
    )


def registered_in_place(nbytes: int, device: torch.device) -> float:
    """Return the seconds that registering ordinary memory takes, touched before."""
    memory = torch.zeros(nbytes, dtype=torch.uint8)
    start = time.perf_counter()
    table = unified(memory)
    seconds = time.perf_counter() - start
    if device.type == "cuda" and not table.is_registered:
        raise RuntimeError(f"the memory could not be pinned: {table._registration.reason}")
    return seconds


def through_cpu(
    table: torch.Tensor, ids: torch.Tensor, threads: int, device: torch.device
) -> tuple[float, float]:
    """Return seconds and CPU seconds of index_select into pinned memory, then a copy."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    on_gpu = device.type == "cuda"
    shape = (ids.numel(), table.shape[1])
    staged = torch.empty(shape, dtype=table.dtype, pin_memory=on_gpu)
    there = torch.empty(shape, dtype=table.dtype, device=device)
    source = plain(table)
    best = (math.inf, math.inf)
    for _ in range(4):
        if on_gpu:
            torch.cuda.synchronize()
        start, busy = time.perf_counter(), time.process_time()
        torch.index_select(source, 0, ids, out=staged)
        there.copy_(staged, non_blocking=True)
        if on_gpu:
            torch.cuda.synchronize()
        best = min(best, (time.perf_counter() - start, time.process_time() - busy))
    torch.set_num_threads(before)
    return best


def power_law_ranks(rows: int, count: int, device: torch.device) -> torch.Tensor:
    """Return ranks in [0, rows) by Zipf's law with exponent 1."""
    uniform = torch.rand(count, device=device, dtype=torch.float64)
    return (torch.exp(uniform * math.log(rows)) - 1).to(torch.int64).clamp_(0, rows - 1)


def scattered(ranks: torch.Tensor, rows: int) -> torch.Tensor:
    """Return where rows of these ranks stand in a table without order: a bijection."""
    prime = 1_000_000_007
    if rows % prime == 0:
        raise ValueError("the number of rows must not be a multiple of the multiplier")
    return ranks * prime % rows


def sage_step(nodes: int, edges: int, width: int, device: torch.device) -> Callable[[], object]:
    """Return forward and backward of three layers of GraphSAGE on a sampled graph of these sizes.

    W. Hamilton, R. Ying, J. Leskovec, "Inductive Representation Learning on Large Graphs", NeurIPS
    2017, algorithm 1 with means.
    """
    x = torch.randn(nodes, width, device=device)
    source, destination = torch.randint(0, nodes, (2, edges), device=device)
    degree = torch.bincount(destination, minlength=nodes).clamp_(min=1)[:, None]
    weights = [torch.randn(2 * width, width, device=device, requires_grad=True) for _ in range(3)]

    def step() -> None:
        h = x
        for weight in weights:
            mean = torch.zeros_like(h).index_add_(0, destination, h[source]) / degree
            h = torch.relu(torch.cat([h, mean], 1) @ weight) / width**0.5
        h[:1024].square().mean().backward()  # type: ignore[no-untyped-call]

    return step
