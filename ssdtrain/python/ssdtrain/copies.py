# SPDX-License-Identifier: Apache-2.0
"""Copies of ranges: of GPU memory in pinned memory, of CPU memory on disk."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import torch

from datapath_core import io

from .checks import poison_buffer
from .storage import ByteRange, address_of, bytes_of
from .streams import Streams

if TYPE_CHECKING:
    from datapath_core.streams import Ticket

    from .pinned import PinnedMemory

__all__ = ["DiskCopy", "ExtentCopy", "HostCopy", "StoredCopy"]


class StoredCopy(Protocol):
    """Room on a tier, with or without bytes in it yet."""

    tier: str
    nbytes: int
    waits_for_drive: bool  # whether ``out`` ends no sooner than a drive has the bytes

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


class _OneTransfer:
    """A copy whose store is a single transfer: nothing more happens by itself once it has ended."""

    out: Ticket

    @property
    def is_settled(self) -> bool:
        """As ``StoredCopy.is_settled``."""
        return self.out.done()

    def settle(self) -> str | None:
        """As ``StoredCopy.settle``."""
        return None

    def read_ahead(self) -> None:
        """As ``StoredCopy.read_ahead``."""


class ExtentCopy(_OneTransfer):
    """A copy that one transfer brings to an extent; how its bytes come back is a subclass's."""

    tier = "disk"
    waits_for_drive = True
    extent: io.Extent

    @property
    def phase(self) -> str:
        """As ``StoredCopy.phase``."""
        return "stored" if self.out.done() else "writing"

    def free(self) -> None:
        """As ``StoredCopy.free``."""
        self.extent.free()


class HostCopy(_OneTransfer):
    """Of a GPU's tensor, in pinned memory."""

    tier = "host"
    waits_for_drive = False

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
        """As ``StoredCopy.phase``."""
        return "on host" if self.out.done() else "copying"

    def read(
        self,
        storage: torch.UntypedStorage,
        span: ByteRange,
        device: torch.device,
        stream: int | None,
    ) -> Ticket:
        """As ``StoredCopy.read``."""
        # The stream of the save comes after the store since the original was given back.
        after = () if stream == self._stream else (self.out,)
        into = address_of(storage, span)
        self._last_read = self._streams.move(into, self._buffer, device, stream, after, priority=1)
        return self._last_read

    def free(self) -> None:
        """As ``StoredCopy.free``."""
        # The pool takes the memory back when the last transfer that uses it has ended.
        if self._buffer is not None:
            read = self._last_read is None or self._last_read.done()
            if self._memory.checks and self.out.done() and read:
                poison_buffer(self._buffer)
            self._buffer = None
        self._memory.residents.pop(id(self), None)

    def __del__(self) -> None:
        self.free()


class DiskCopy(ExtentCopy):
    """Of a CPU tensor: straight between its memory and the extent."""

    def __init__(self, extent: io.Extent, out: Ticket) -> None:
        self.extent = extent
        self.out = out
        self.nbytes = extent.nbytes

    def read(
        self,
        storage: torch.UntypedStorage,
        span: ByteRange,
        device: torch.device,
        stream: int | None,
    ) -> Ticket:
        """As ``StoredCopy.read``."""
        return self.extent.read(bytes_of(storage, span))
