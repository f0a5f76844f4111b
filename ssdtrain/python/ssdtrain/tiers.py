# SPDX-License-Identifier: Apache-2.0
"""The places that saved bytes can go to: pinned host memory and disk, each with its budget.

A tier says how bytes travel; :mod:`ssdtrain.engine` says which ones, and when.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import torch

from datapath_core import BudgetError, PinnedPool, io

from .checks import poison_buffer
from .staged import DirectCopy, StagedCopy
from .storage import ByteRange, address_of, bytes_of
from .streams import Streams

if TYPE_CHECKING:
    from datapath_core.streams import Ticket

__all__ = ["DiskTier", "HostTier", "PinnedMemory", "StagingBusyError", "StoredCopy", "Tier"]


class StagingBusyError(BudgetError):
    """No pinned memory to pass through; there will be some when a write has ended."""


class StoredCopy(Protocol):
    """Room on a tier, with or without bytes in it yet."""

    tier: str
    nbytes: int

    @property
    def out(self) -> Ticket:
        """The work that reads the original: when it has ended well, the original may go."""

    @property
    def phase(self) -> str:
        """Where the bytes are, for the report: "copying", "on host", "writing", "stored", ..."""

    @property
    def is_settled(self) -> bool:
        """Whether nothing more happens by itself."""

    def settle(self) -> str | None:
        """Catch up with ended work; what went wrong, if the bytes are safe nevertheless."""

    def read_ahead(self) -> None:
        """Bring bytes from disk to the host, where that is a way of its own."""

    def read(
        self,
        storage: torch.UntypedStorage,
        span: ByteRange,
        device: torch.device,
        stream: int | None,
    ) -> Ticket:
        """Start to copy the bytes to a range of a storage, in the order of a stream.

        On a device with streams nothing keeps the memory alive for the copy.
        """

    def free(self) -> None:
        """Give the room back; work in flight ends first."""


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

    def settle(self) -> None:
        """Catch up with ended work."""

    def oldest_write(self) -> Ticket | None:
        """The work that frees room to pass through next."""

    def describe(self) -> dict[str, object]:
        """Budget and use, for the report."""

    def close(self) -> None:
        """Give everything back."""


class PinnedMemory:
    """The pinned host memory of an offloader: for the host tier, and to pass through to disk.

    Parameters
    ----------
    budget : int
        Ceiling in bytes.
    staging : int
        Part of it that only the way to and from disk may use.
    checks : bool
        Overwrite what is given back.
    """

    def __init__(self, budget: int, staging: int, *, checks: bool = False) -> None:
        self.checks = checks
        self.budget = budget
        self.staging = staging
        self.residents: dict[int, int] = {}
        self._pool: PinnedPool | None = None

    def allocate(self, nbytes: int, *, resident: bool) -> Any:
        """A buffer.

        Raises
        ------
        BudgetError
            If the budget, less what is for staging where the bytes are to stay, is used up.
        """
        taken = self.staging + self.resident if resident else 0
        if nbytes > self.budget - taken:
            raise BudgetError(f"{nbytes} bytes do not fit into what is left of {self.budget}")
        if self._pool is None:
            self._pool = PinnedPool(self.budget)
        return self._pool.allocate(nbytes)

    @property
    def resident(self) -> int:
        """Bytes that stay for the time being."""
        return sum(self.residents.values())

    def stats(self) -> dict[str, int]:
        """What the pool says."""
        return {} if self._pool is None else self._pool.stats()

    def close(self) -> None:
        """Give it back."""
        if self._pool is not None:
            self._pool.close()
            self._pool = None


class _HostCopy:
    tier = "host"

    def __init__(
        self, buffer: Any, out: Ticket, stream: int | None, streams: Streams, memory: PinnedMemory
    ) -> None:
        self._buffer = buffer
        self._stream = stream
        self._streams = streams
        self._memory = memory
        self.out = out
        self.nbytes = len(buffer)
        self._last_read: Ticket | None = None
        memory.residents[id(self)] = self.nbytes

    @property
    def phase(self) -> str:
        return "on host" if self.out.done() else "copying"

    @property
    def is_settled(self) -> bool:
        return self.out.done()

    def settle(self) -> str | None:
        return None

    def read_ahead(self) -> None:
        pass

    def read(
        self,
        storage: torch.UntypedStorage,
        span: ByteRange,
        device: torch.device,
        stream: int | None,
    ) -> Ticket:
        # The stream of the save comes after the store since the original was given back.
        ordered = stream == self._stream or self.out.done()
        after = () if ordered else (self.out,)
        into = address_of(storage, span)
        self._last_read = self._streams.move(into, self._buffer, device, stream, after, priority=1)
        return self._last_read

    def free(self) -> None:
        # The pool takes the memory back when the last transfer that uses it has ended.
        if self._buffer is not None:
            read = self._last_read is None or self._last_read.done()
            if self._memory.checks and self.out.done() and read:
                poison_buffer(self._buffer)
            self._buffer = None
        self._memory.residents.pop(id(self), None)

    def __del__(self) -> None:
        self.free()


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
        return _HostCopy(buffer, out, stream, self._streams, self._memory)

    def settle(self) -> None:
        """As :meth:`Tier.settle`."""

    def oldest_write(self) -> Ticket | None:
        """As :meth:`Tier.oldest_write`."""
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


class _DiskCopy:
    """Of a CPU tensor: straight between its memory and the extent."""

    tier = "disk"

    def __init__(self, extent: io.Extent, out: Ticket) -> None:
        self.extent = extent
        self.out = out
        self.nbytes = extent.nbytes

    @property
    def phase(self) -> str:
        return "stored" if self.out.done() else "writing"

    @property
    def is_settled(self) -> bool:
        return self.out.done()

    def settle(self) -> str | None:
        return None

    def read_ahead(self) -> None:
        pass

    def read(
        self,
        storage: torch.UntypedStorage,
        span: ByteRange,
        device: torch.device,
        stream: int | None,
    ) -> Ticket:
        return self.extent.read(bytes_of(storage, span))

    def free(self) -> None:
        self.extent.free()


class DiskTier:
    """One volume over the spill directories; nameless files, so that a crash leaves nothing.

    Bytes of a GPU pass through pinned memory. A range larger than what there is for that goes in
    chunks, and its original stays until the last one is written.
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
        self._engine: io.Engine | None = io.Engine()
        self._volume: io.Volume | None = io.Volume(self._directories, budget, engine=self._engine)
        self._backend = self._engine.describe()
        self._writing: list[StagedCopy] = []

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
            return _DiskCopy(extent, extent.write(bytes_of(storage, span)))
        if nbytes > self._memory.staging:
            extent = self._volume.allocate(nbytes)
            return DirectCopy(extent, address_of(storage, span), device, stream, self._streams)
        try:
            buffer = self._memory.allocate(nbytes, resident=False)
        except BudgetError as error:
            self.settle()
            if self._writing:
                raise StagingBusyError(str(error)) from error
            raise
        extent = self._volume.allocate(nbytes)
        data = address_of(storage, span)
        copy = StagedCopy(extent, buffer, data, device, stream, self._streams, self._memory)
        self._writing.append(copy)
        return copy

    def settle(self) -> None:
        """As :meth:`Tier.settle`."""
        if self._writing:
            self._writing = [copy for copy in self._writing if not copy.is_written()]

    @property
    def volume(self) -> io.Volume | None:
        """The volume; None once closed."""
        return self._volume

    def bytes_written(self) -> int:
        """All bytes written to the drives so far."""
        return 0 if self._volume is None else int(self._volume.stats()["bytes_written"])

    def oldest_write(self) -> Ticket | None:
        """As :meth:`Tier.oldest_write`."""
        return self._writing[0].write if self._writing else None

    def describe(self) -> dict[str, object]:
        """As :meth:`Tier.describe`."""
        return {
            "budget": self._budget,
            "directories": self._directories,
            "stats": {} if self._volume is None else self._volume.stats(),
            "staging": self._memory.staging,
            "backend": self._backend,
        }

    def close(self) -> None:
        """As :meth:`Tier.close`."""
        self._writing.clear()
        if self._volume is not None:
            self._volume.close()
            self._volume = None
        if self._engine is not None:
            self._engine.close()
            self._engine = None
