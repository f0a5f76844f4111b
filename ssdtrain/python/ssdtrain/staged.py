# SPDX-License-Identifier: Apache-2.0
"""Copies of GPU memory on disk: by way of a pinned buffer, or cut into chunks by the scheduler."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from datapath_core import BudgetError, Error

from .copies import ExtentCopy
from .storage import address_of

if TYPE_CHECKING:
    import torch

    from datapath_core import io
    from datapath_core.streams import Ticket

    from .pinned import PinnedMemory
    from .storage import ByteRange
    from .streams import Streams

__all__ = ["DirectCopy", "StagedCopy"]


class StagedCopy:
    """GPU memory to a pinned buffer in stream order, from there to disk, and back the same way.

    The buffer goes when the write has ended well. If it has not, the bytes stay in the buffer.
    """

    waits_for_drive = False

    def __init__(
        self,
        extent: io.Extent,
        buffer: Any,
        data: torch.Tensor,
        device: torch.device,
        stream: int | None,
        streams: Streams,
        memory: PinnedMemory,
    ) -> None:
        self.extent = extent
        self.nbytes = extent.nbytes
        self.tier = "disk"
        self._buffer = buffer
        self._device = device
        self._stream = stream
        self._streams = streams
        self._memory = memory
        self._is_written = False
        self.out: Ticket = streams.move(buffer, data, device, stream)
        self.write: Ticket = streams.move(extent, buffer, device, None, self.out)
        memory.passes(self.write)
        self._back: Ticket | None = None

    @property
    def phase(self) -> str:
        """As ``StoredCopy.phase``."""
        if not self.out.done():
            return "copying"
        if self._back is not None:
            return "on host" if self._back.done() else "reading"
        if self.tier == "host":
            return "on host"
        return "stored" if self.write.done() else "writing"

    @property
    def is_settled(self) -> bool:
        """As ``StoredCopy.is_settled``."""
        return self._is_written

    def settle(self) -> str | None:
        """As ``StoredCopy.settle``."""
        if self._is_written or not self.write.done():
            return None
        self._is_written = True
        try:
            self.write.result()
        except (Error, OSError) as error:
            if _error_of(self.out) is not None:
                return None  # The engine asks for that one itself.
            self.tier = "host"
            self.extent.free()
            return f"writing {self.nbytes} bytes to disk, kept in host memory instead: {error}"
        self._buffer = None
        return None

    def read_ahead(self) -> None:
        """As ``StoredCopy.read_ahead``; a failure is that of the read which follows."""
        self.settle()
        if self._buffer is not None:
            return
        try:
            buffer = self._memory.allocate(self.nbytes, resident=False)
        except BudgetError:
            return
        self._back = self._streams.move(buffer, self.extent, self._device, None)
        self._buffer = buffer

    def read(
        self,
        storage: torch.UntypedStorage,
        span: ByteRange,
        device: torch.device,
        stream: int | None,
    ) -> Ticket:
        """As ``StoredCopy.read``."""
        into = address_of(storage, span)
        if self._back is not None and self._back.done() and _error_of(self._back) is not None:
            self._buffer = self._back = None  # Another try.
        self.read_ahead()
        if self._buffer is None:
            return self._streams.move(into, self.extent, device, stream, priority=1)
        # The stream of the save comes after the store since the original was given back.
        before = [self._back] if stream == self._stream else [self.out, self._back]
        # Also those that have ended: one may have failed since it was looked at.
        after = [ticket for ticket in before if ticket is not None]
        ticket = self._streams.move(into, self._buffer, device, stream, after, priority=1)
        if self._back is not None:  # The transfer keeps the buffer until it has ended.
            self._buffer = self._back = None
            self._memory.passes(ticket)
        return ticket

    def free(self) -> None:
        """As ``StoredCopy.free``."""
        self._buffer = None
        if self.tier == "disk":
            self.extent.free()


class DirectCopy(ExtentCopy):
    """GPU memory to disk in chunks, by GPUDirect Storage or through the scheduler's own memory."""

    def __init__(
        self,
        extent: io.Extent,
        data: torch.Tensor,
        device: torch.device,
        stream: int | None,
        streams: Streams,
    ) -> None:
        self.extent = extent
        self.nbytes = extent.nbytes
        self._streams = streams
        self.out: Ticket = streams.move(extent, data, device, stream)

    def read(
        self,
        storage: torch.UntypedStorage,
        span: ByteRange,
        device: torch.device,
        stream: int | None,
    ) -> Ticket:
        """As ``StoredCopy.read``."""
        into = address_of(storage, span)
        return self._streams.move(into, self.extent, device, stream, (self.out,), priority=1)


def _error_of(ticket: Ticket) -> Exception | None:
    try:
        ticket.result(0)
    except (Error, OSError) as error:
        return error
    return None
