# SPDX-License-Identifier: Apache-2.0
"""Streams of the devices that compute, and the schedulers that move their bytes.

The rest of the package names streams by their handles and never asks which device it has: None is
the stream of the CPU, which is the calling thread itself.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import torch

from datapath_core.streams import Scheduler

if TYPE_CHECKING:
    from datapath_core.streams import Ticket

__all__ = ["Streams"]

# A submission that waits in a queue of the scheduler would be waited for by the host. What may be
# on its way is bounded by policies, in bytes of tensors.
_CREDITS = "1TiB"
_CPU = torch.device("cpu")


class Streams:
    """One scheduler a CUDA device, made when the device's first tensor travels."""

    def __init__(self) -> None:
        self._schedulers: dict[int, Scheduler] = {}
        self._submitted: dict[int, int] = {}
        self._lock = threading.Lock()

    def kind(self, device: torch.device) -> str:
        """``"cuda"``: work is queued on streams, and memory is given back in their order."""
        # A device's ``type`` is a new string each time.
        return "cpu" if device == _CPU else device.type

    def current(self, device: torch.device) -> int | None:
        """Handle of the calling thread's current stream; None on the CPU."""
        if device == _CPU:
            return None
        handle: int = torch._C._cuda_getCurrentRawStream(device.index)
        return handle

    def is_busy(self, device: torch.device) -> bool:
        """Whether the calling thread's current stream has work left; the CPU has none, ever."""
        return device != _CPU and not torch.cuda.current_stream(device).query()

    def move(
        self,
        destination: Any,
        source: Any,
        device: torch.device,
        stream: int | None,
        after: Ticket | Iterable[Ticket] = (),
        priority: int = 0,
    ) -> Ticket:
        """Start a transfer behind the work that ``stream`` has now, and behind tickets."""
        streams = () if stream is None else (stream,)
        ticket = self.scheduler(device).transfer(
            destination, source, streams=streams, after=after, priority=priority
        )
        index = device.index or 0
        self._submitted[index] = self._submitted.get(index, 0) + 1
        return ticket

    def submitted(self, device: torch.device) -> int:
        """How many transfers were started: the number that the next one gets in a trace."""
        return self._submitted.get(device.index or 0, 0)

    def describe(self) -> dict[str, dict[str, Any]]:
        """What the schedulers say, by the device that they are of."""
        return {f"cuda:{i}": scheduler.describe() for i, scheduler in self._schedulers.items()}

    def order(self, ticket: Ticket, stream: int | None, timeout: float | None = None) -> None:
        """Let what ``stream`` gets from here on run after the work; on the CPU: wait for it.

        Raises
        ------
        Error
            The error of the work, where it is known.
        TimeoutError
            If the work's part on the host does not end in time.
        """
        if stream is None:
            ticket.result(timeout)
        else:
            ticket.wait(stream, timeout=timeout)

    def use(self, tensor: torch.Tensor) -> None:
        """Tell the allocator that the current stream uses memory allocated on another one."""
        if tensor.device.type == "cuda":
            tensor.record_stream(torch.cuda.current_stream(tensor.device))

    def scheduler(self, device: torch.device) -> Scheduler:
        """The scheduler of a device."""
        index = device.index or 0
        found = self._schedulers.get(index)
        if found is None:
            with self._lock:
                found = self._schedulers.get(index)
                if found is None:
                    found = self._schedulers[index] = self._make(index)
        return found

    def stats(self) -> dict[str, dict[str, Any]]:
        """Bytes and rate of each lane that has moved any, all devices together."""
        found: dict[str, dict[str, Any]] = {}
        for scheduler in list(self._schedulers.values()):
            for lane, stats in scheduler.stats().items():
                sums = found.setdefault(lane, {"bytes": 0, "busy_seconds": 0.0})
                sums["bytes"] += stats["bytes"]
                sums["busy_seconds"] += stats["busy_seconds"]
        for sums in found.values():
            busy = sums["busy_seconds"]
            sums["gb_per_second"] = sums["bytes"] / busy / 1e9 if busy else None
        return found

    def _make(self, index: int) -> Scheduler:
        return Scheduler(f"cuda:{index}", credits=_CREDITS)

    def close(self) -> None:
        """End what is on its way and give streams and threads back."""
        for scheduler in self._schedulers.values():
            scheduler.close()
        self._schedulers.clear()
