# SPDX-License-Identifier: Apache-2.0
"""Which kernels a call launches on a GPU and how long each takes."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch._C._autograd import DeviceType

from hector.measure.timing import Run

__all__ = ["KernelTime", "kernel_times"]


@dataclass(frozen=True)
class KernelTime:
    """One launch: the kernel's name and its time in milliseconds."""

    name: str
    milliseconds: float


def kernel_times(run: Run) -> list[KernelTime]:
    """The launches of one call, copies and fills included, in order.

    Parameters
    ----------
    run : callable
        Is called twice before it is watched.

    Returns
    -------
    list of KernelTime
        Empty where PyTorch's profiler sees no GPU.
    """
    for _ in range(2):
        run()
    torch.cuda.synchronize()
    activities = [torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as seen:
        run()
        torch.cuda.synchronize()
    events = [e for e in seen.events() if e.device_type == DeviceType.CUDA]
    events.sort(key=lambda event: event.time_range.start)
    return [KernelTime(e.name, e.time_range.elapsed_us() / 1e3) for e in events]
