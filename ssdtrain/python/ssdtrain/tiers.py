# SPDX-License-Identifier: Apache-2.0
"""The places that saved bytes can go to: pinned host memory and disk, each with its budget.

A tier says how bytes travel; the engine says which ones, and when.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import torch

from datapath_core import BudgetError, io

from .copies import DiskCopy, HostCopy, StoredCopy
from .gpudirect import open_engine
from .pinned import PinnedMemory
from .staged import DirectCopy, StagedCopy
from .storage import ByteRange, address_of, bytes_of
from .streams import Streams

if TYPE_CHECKING:
    from datapath_core.streams import Ticket

__all__ = ["DiskTier", "HostTier", "StagingBusyError", "Tier"]


class StagingBusyError(BudgetError):
    """No pinned memory to pass through.

    Attributes
    ----------
    passage : Ticket or None
        A transfer that was under way just before, at whose end there is some.
    """

    passage: Ticket | None = None


class Tier(Protocol):
    """Somewhere to put bytes."""

    name: str

    def takes(self, kind: str) -> bool:
        """Whether tensors of a kind of device (:meth:`Streams.kind`) may come here."""

    def put(
        self,
        storage: torch.UntypedStorage,
        span: ByteRange,
        device: torch.device,
        stream: int | None,
    ) -> StoredCopy:
        """Start to store a range of a storage behind the work that a stream has now.

        On a device with streams nothing keeps the memory alive for the copy: it must come back at
        the drop, whoever has seen the copy end by then. It has to live, in the order of that
        stream, until :attr:`StoredCopy.out` has passed.

        Raises
        ------
        BudgetError, OutOfSpaceError
            Without room.
        """

    def oldest_passage(self) -> Ticket | None:
        """The transfer under way that frees memory to pass through next."""

    def describe(self) -> dict[str, object]:
        """Budget and use, for the report."""

    def close(self) -> None:
        """Give everything back."""


class HostTier:
    """Pinned host memory, for tensors of a GPU."""

    name = "host"

    def __init__(self, memory: PinnedMemory, streams: Streams) -> None:
        self._memory = memory
        self._streams = streams

    def takes(self, kind: str) -> bool:
        """As :meth:`Tier.takes`. A copy of a CPU tensor in host memory would free nothing."""
        return kind == "cuda"

    def put(
        self,
        storage: torch.UntypedStorage,
        span: ByteRange,
        device: torch.device,
        stream: int | None,
    ) -> StoredCopy:
        """As :meth:`Tier.put`."""
        buffer = self._memory.allocate(span.nbytes, resident=True)
        out = self._streams.move(buffer, address_of(storage, span), device, stream)
        return HostCopy(buffer, out, stream, self._streams, self._memory)

    def oldest_passage(self) -> Ticket | None:
        """As :meth:`Tier.oldest_passage`."""
        return None

    def describe(self) -> dict[str, object]:
        """As :meth:`Tier.describe`."""
        return {
            "budget": self._memory.budget,
            "resident": self._memory.resident,
            "stats": self._memory.stats(),
        }

    def close(self) -> None:
        """As :meth:`Tier.close`."""


class DiskTier:
    """One volume over the spill directories; nameless files, so that a crash leaves nothing.

    Bytes of a GPU pass through pinned memory, but where GPUDirect Storage serves (``gpudirect``).
    A range larger than what there is for that goes in chunks. In both of these cases the original
    stays until the last byte is written.
    """

    name = "disk"

    def __init__(
        self,
        directories: Sequence[str | os.PathLike[str]],
        budget: int,
        memory: PinnedMemory,
        streams: Streams,
    ) -> None:
        self._directories = [os.fspath(directory) for directory in directories]
        self._budget = budget
        self._memory = memory
        self._streams = streams
        self._engine: io.Engine | None
        self._engine, self._gpudirect = open_engine()
        self._volume: io.Volume | None = io.Volume(self._directories, budget, engine=self._engine)
        self._backend = self._engine.describe()

    def takes(self, kind: str) -> bool:
        """As :meth:`Tier.takes`."""
        return kind in ("cuda", "cpu")

    def put(
        self,
        storage: torch.UntypedStorage,
        span: ByteRange,
        device: torch.device,
        stream: int | None,
    ) -> StoredCopy:
        """As :meth:`Tier.put`."""
        if self._volume is None:
            raise ValueError("the offloader is closed; make a new one")
        nbytes = span.nbytes
        if self._streams.kind(device) == "cpu":
            extent = self._volume.allocate(nbytes)
            return DiskCopy(extent, extent.write(bytes_of(storage, span)))
        if self._gpudirect["used"] or nbytes > self._memory.staging:
            extent = self._volume.allocate(nbytes)
            return DirectCopy(extent, address_of(storage, span), device, stream, self._streams)
        try:
            buffer = self._memory.allocate(nbytes, resident=False)
        except BudgetError as error:
            raise StagingBusyError(str(error)) from error
        extent = self._volume.allocate(nbytes)
        data = address_of(storage, span)
        return StagedCopy(extent, buffer, data, device, stream, self._streams, self._memory)

    @property
    def volume(self) -> io.Volume | None:
        """The volume; None once closed."""
        return self._volume

    def bytes_written(self) -> int:
        """All bytes written to the drives so far."""
        return 0 if self._volume is None else int(self._volume.stats()["bytes_written"])

    def oldest_passage(self) -> Ticket | None:
        """As :meth:`Tier.oldest_passage`."""
        return self._memory.oldest_passage()

    def describe(self) -> dict[str, object]:
        """As :meth:`Tier.describe`."""
        return {
            "budget": self._budget,
            "directories": self._directories,
            "stats": {} if self._volume is None else self._volume.stats(),
            "staging": self._memory.staging,
            "backend": self._backend,
            "gpudirect": dict(self._gpudirect),
        }

    def close(self) -> None:
        """As :meth:`Tier.close`."""
        if self._volume is not None:
            self._volume.close()
            self._volume = None
        if self._engine is not None:
            self._engine.close()
            self._engine = None
