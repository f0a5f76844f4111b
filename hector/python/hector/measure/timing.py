# SPDX-License-Identifier: Apache-2.0
"""Clocks for calls on the CPU and on CUDA, and the rate of a copy; decides nothing."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

__all__ = [
    "Run", "backward_milliseconds", "copy_rate", "milliseconds", "peak_bytes", "product_rate",
    "queued", "replayed", "runner",
]  # fmt: skip

Run = Callable[[], object]


def _outputs(found: Any) -> list[Tensor]:
    return [found] if isinstance(found, Tensor) else list(found)


def runner(
    layer: Callable[..., Any], arguments: Sequence[object], wrt: Sequence[Tensor], training: bool
) -> Run:
    """A call as a function of nothing.

    Parameters
    ----------
    layer : callable
        Gives a tensor or a sequence of tensors.
    arguments : sequence
    wrt : sequence of Tensor
        Whose gradients training computes.
    training : bool
        Whether backward runs too; without it nothing is recorded for it.
    """
    seeds: list[Tensor] = []

    def run() -> object:
        if not training:
            with torch.no_grad():
                return layer(*arguments)
        found = _outputs(layer(*arguments))
        if not seeds:
            seeds.extend(torch.ones_like(each) for each in found)
        return torch.autograd.grad(found, wrt, seeds, allow_unused=True)

    return run


def milliseconds(
    run: Run, device: torch.device, budget: float = 0.5, most: int = 50, warm: int = 2
) -> float:
    """Median time of a call.

    Parameters
    ----------
    run : callable
    device : torch.device
        On CUDA, times are taken between events.
    budget : float
        Seconds after which no further call is timed; one always is.
    most, warm : int
        Calls timed at most, and before.
    """
    for _ in range(warm):
        run()
    times: list[float] = []
    start = time.perf_counter()
    while not times or (len(times) < most and time.perf_counter() - start < budget):
        times.append(_once(run, device))
    return statistics.median(times)


def _once(run: Run, device: torch.device) -> float:
    if device.type != "cuda":
        before = time.perf_counter()
        run()
        return (time.perf_counter() - before) * 1e3
    start, stop = _events()
    start.record()
    run()
    stop.record()
    stop.synchronize()
    return float(start.elapsed_time(stop))


def _events() -> tuple[torch.cuda.Event, torch.cuda.Event]:
    start = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    return start, torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]


def queued(run: Run, repeats: int = 10) -> float:
    """Median time that the GPU takes for a call, in milliseconds.

    The call is queued behind one that waits, so that the host's time does not show.
    """
    for _ in range(2):
        run()
    times = []
    for _ in range(repeats):
        start, stop = _events()
        torch.cuda._sleep(8_000_000)  # type: ignore[no-untyped-call]
        start.record()
        run()
        stop.record()
        stop.synchronize()
        times.append(float(start.elapsed_time(stop)))
    return statistics.median(times)


def replayed(run: Run) -> float:
    """Median time of a call replayed as a CUDA graph, in milliseconds."""
    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            run()
    torch.cuda.current_stream().wait_stream(side)
    recorded = torch.cuda.CUDAGraph()
    with torch.cuda.graph(recorded):
        run()
    return milliseconds(recorded.replay, torch.device("cuda"))


def backward_milliseconds(
    layer: Callable[..., Any], arguments: Sequence[object], wrt: Sequence[Tensor], repeats: int = 10
) -> float:
    """Median time that the GPU takes for backward alone, in milliseconds."""
    found = _outputs(layer(*arguments))
    seeds = [torch.ones_like(each) for each in found]

    def run() -> object:
        return torch.autograd.grad(found, wrt, seeds, allow_unused=True, retain_graph=True)

    return queued(run, repeats)


def peak_bytes(run: Run) -> int:
    """Memory that a call on CUDA takes at most beyond what was held before it."""
    run()
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    run()
    return int(torch.cuda.max_memory_allocated() - before)


def copy_rate(device: torch.device) -> float:
    """Bytes a second, read and written, of a large copy on the device."""
    count = 1 << (29 if device.type == "cuda" else 25)
    a = torch.zeros(count, device=device)
    b = torch.empty_like(a)
    return 2 * a.numel() * 4 / milliseconds(lambda: b.copy_(a), device) * 1e3


def product_rate(device: torch.device, dtype: torch.dtype) -> float:
    """Flops a second of a large product of square matrices, as PyTorch is told to round it."""
    side = 8192 if device.type == "cuda" else 1024
    a = torch.ones(side, side, device=device, dtype=dtype)
    return 2 * side**3 / milliseconds(lambda: a @ a, device, 0.3) * 1e3
