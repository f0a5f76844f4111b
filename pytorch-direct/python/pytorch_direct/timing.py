# SPDX-License-Identifier: Apache-2.0
"""How long a run takes, by the clock of the processor that it runs on."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch

__all__ = ["seconds"]


def seconds(run: Callable[[], object], device: torch.device, repeats: int = 5) -> float:
    """Return the median time of a run, after one that is not counted; on a GPU the GPU's time."""
    run()
    times: list[float] = []
    for _ in range(repeats):
        if device.type == "cuda":
            start = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
            end = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
            start.record()
            run()
            end.record()
            end.synchronize()
            times.append(start.elapsed_time(end) / 1e3)
        else:
            begin = time.perf_counter()
            run()
            times.append(time.perf_counter() - begin)
    return statistics.median(times)
