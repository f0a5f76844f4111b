# SPDX-License-Identifier: Apache-2.0
"""The places that saved bytes can go to: pinned host memory and disk, each with its budget.

A tier says how bytes travel; :mod:`ssdtrain.engine` says which ones, and when.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import torch

from datapath_core import Error, PinnedPool, io
from datapath_core.streams import Scheduler

if TYPE_CHECKING:
    from datapath_core.streams import Ticket

__all__ = ["DiskTier", "HostTier", "StoredCopy", "Tier", "Transfer"]


class Transfer:
    """Bytes on their way, and the objects that must live until they have arrived."""

    def __init__(self, ticket: Ticket, keep: object = None) -> None:
        self._ticket = ticket
        self._keep = keep

    def done(self) -> bool:
        """Whether the transfer has ended, well or not."""
        return self._ticket.done()

    def result(self) -> int:
        """Wait for the end; bytes moved, or the error raised."""
        return self._ticket.result()

    def wait(self) -> None:
        """Wait for the end, well or not; raises only if it does not come in time."""
        try:
            self._ticket.result()
        except (Error, OSError):
            if not self._ticket.done():
                raise
            # Whoever needs the bytes asks for the result.

    def order(self, device: torch.device) -> None:
        """Let the work that the current stream gets from here on run after the transfer."""
        if device.type == "cuda":
            self._ticket.wait(torch.cuda.current_stream(device).cuda_stream)
        else:
            self._ticket.result()


class StoredCopy(Protocol):
    """Room on a tier, with or without bytes in it yet."""

    tier: str

    def read(self, into: torch.Tensor) -> Transfer:
        """Start to copy the bytes to a uint8 tensor of their size."""

    def free(self) -> None:
        """Give the room back; a transfer in flight ends first."""


class Tier(Protocol):
    """Somewhere to put bytes."""

    name: str
    device_types: tuple[str, ...]

    def put(self, data: torch.Tensor) -> tuple[StoredCopy, Transfer]:
        """Start to store a uint8 tensor; ``BudgetError`` or ``OutOfSpaceError`` without room."""

    def describe(self) -> dict[str, object]:
        """Budget and use, for the report."""

    def close(self) -> None:
        """Give everything back."""


class _Lanes:
    """One scheduler a CUDA device, made when the device's first tensor travels."""

    def __init__(self) -> None:
        self._schedulers: dict[int, Scheduler] = {}

    def scheduler(self, device: torch.device) -> Scheduler:
        index = torch.cuda.current_device() if device.index is None else device.index
        if index not in self._schedulers:
            self._schedulers[index] = Scheduler(f"cuda:{index}")
        return self._schedulers[index]

    def move(self, destination: Any, source: Any, device: torch.device) -> Ticket:
        stream = torch.cuda.current_stream(device).cuda_stream
        return self.scheduler(device).transfer(destination, source, streams=[stream])

    def close(self) -> None:
        for scheduler in self._schedulers.values():
            scheduler.close()
        self._schedulers.clear()


class _HostCopy:
    tier = "host"

    def __init__(self, buffer: Any, lanes: _Lanes) -> None:
        self._buffer = buffer
        self._lanes = lanes

    def read(self, into: torch.Tensor) -> Transfer:
        return Transfer(self._lanes.move(into, self._buffer, into.device), (into, self._buffer))

    def free(self) -> None:
        # The pool takes the memory back when the last transfer that uses it has ended.
        self._buffer = None


class HostTier:
    """Pinned host memory, for tensors of a GPU."""

    name = "host"
    # A copy of a CPU tensor in host memory would free nothing.
    device_types: tuple[str, ...] = ("cuda",)

    def __init__(self, budget: int) -> None:
        self._budget = budget
        self._pool: PinnedPool | None = None
        self._lanes = _Lanes()

    def put(self, data: torch.Tensor) -> tuple[StoredCopy, Transfer]:
        """As :meth:`Tier.put`."""
        if self._pool is None:
            self._pool = PinnedPool(self._budget)
        buffer = self._pool.allocate(data.numel())
        ticket = self._lanes.move(buffer, data, data.device)
        return _HostCopy(buffer, self._lanes), Transfer(ticket, (data, buffer))

    def describe(self) -> dict[str, object]:
        """As :meth:`Tier.describe`."""
        stats = {} if self._pool is None else self._pool.stats()
        return {"budget": self._budget, "stats": stats}

    def close(self) -> None:
        """As :meth:`Tier.close`."""
        self._lanes.close()
        if self._pool is not None:
            self._pool.close()
            self._pool = None


class _DiskCopy:
    tier = "disk"

    def __init__(self, extent: io.Extent, move: Callable[[Any, Any, torch.device], Ticket]) -> None:
        self._extent = extent
        self._move = move

    def read(self, into: torch.Tensor) -> Transfer:
        if into.device.type == "cuda":
            return Transfer(self._move(into, self._extent, into.device), into)
        return Transfer(self._extent.read(into), into)

    def free(self) -> None:
        self._extent.free()


class DiskTier:
    """One volume over the spill directories; nameless files, so that a crash leaves nothing."""

    name = "disk"
    device_types: tuple[str, ...] = ("cuda", "cpu")

    def __init__(self, directories: Sequence[str | os.PathLike[str]], budget: int) -> None:
        self._directories = [os.fspath(directory) for directory in directories]
        self._budget = budget
        self._volume: io.Volume | None = io.Volume(self._directories, budget)
        self._lanes = _Lanes()

    def put(self, data: torch.Tensor) -> tuple[StoredCopy, Transfer]:
        """As :meth:`Tier.put`."""
        if self._volume is None:
            raise ValueError("the offloader is closed; make a new one")
        extent = self._volume.allocate(data.numel())
        copy = _DiskCopy(extent, self._lanes.move)
        if data.device.type == "cuda":
            return copy, Transfer(self._lanes.move(extent, data, data.device), data)
        return copy, Transfer(extent.write(data), data)

    def describe(self) -> dict[str, object]:
        """As :meth:`Tier.describe`."""
        stats = {} if self._volume is None else self._volume.stats()
        return {"budget": self._budget, "directories": self._directories, "stats": stats}

    def close(self) -> None:
        """As :meth:`Tier.close`."""
        self._lanes.close()
        if self._volume is not None:
            self._volume.close()
            self._volume = None
