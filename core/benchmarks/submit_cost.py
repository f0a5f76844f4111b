# SPDX-License-Identifier: Apache-2.0
"""What one ``transfer`` costs its caller in Python; shared by the CPU and the GPU benchmark."""

from __future__ import annotations

import statistics
import time
from typing import Any

from bench_schema import Row

from datapath_core import PinnedPool, Scheduler

TARGET_US = 10.0


def rows(device: str, ends: dict[str, tuple[Any, Any]], *, quick: bool) -> list[Row]:
    """Return a row for each pair of ends.

    Parameters
    ----------
    device : str
        Of the scheduler.
    ends : dict
        What the ends are -> (destination, source).
    quick : bool
        Few rounds.
    """
    made = []
    with Scheduler(device) as scheduler:
        for label, (destination, source) in ends.items():
            median, worst = _cost(scheduler, destination, source, 2_000 if quick else 50_000)
            made.append(
                Row(
                    work=f"submit one 4 KiB transfer from Python, {label}, scheduler on {device}",
                    ours=median,
                    unit="us",
                    ratio=median / TARGET_US,
                    target="<= 10 us median",
                    met=median <= TARGET_US,
                    note=f"caller's time in the call; 99th percentile {worst:.1f} us",
                )
            )
    return made


def _cost(scheduler: Scheduler, destination: Any, source: Any, count: int) -> tuple[float, float]:
    """Median and 99th percentile of a call's microseconds, in bursts that never fill the queue."""
    clock, transfer = time.perf_counter_ns, scheduler.transfer
    overhead = min(-(clock() - clock()) for _ in range(1000))
    costs = []
    tickets = []
    for number in range(count):
        start = clock()
        ticket = transfer(destination, source)
        costs.append(clock() - start - overhead)
        tickets.append(ticket)
        if number % 64 == 63:
            for one in tickets:
                one.result()
            tickets.clear()
            time.sleep(0.0005)
    for one in tickets:
        one.result()
    costs.sort()
    return statistics.median(costs) / 1e3, costs[int(0.99 * len(costs))] / 1e3


def buffer(device: Any) -> Any:
    """Return 4 KiB of pinned memory, which keeps its pool."""
    return PinnedPool("4MiB", piece_bytes="2MiB", device=device).allocate(4096)
