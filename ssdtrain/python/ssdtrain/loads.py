# SPDX-License-Identifier: Apache-2.0
"""Bytes on their way back: from a tier to a copy that every saved tensor of a group shares.

:class:`Loads` is used inside the engine's lock, but for what says that it waits.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic_ns
from typing import TYPE_CHECKING, Any
from weakref import ref

import torch

from datapath_core import Error

from .books import Books
from .checks import verify
from .faults import lost
from .group import LOADED, LOADING, STORED, Group
from .saved import Claim
from .storage import ByteRange, alignment_of, storage_of
from .streams import Streams
from .trace import Lane

if TYPE_CHECKING:
    from datapath_core.streams import Ticket

__all__ = ["Lingering", "Loads", "allocate", "consume"]

_READ = Lane.READ
_empty = torch.empty
_is_inference = torch.is_inference_mode_enabled


def allocate(nbytes: int, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Memory for so many bytes at least, in the order of the device's current stream.

    Returns
    -------
    torch.Tensor
        One-dimensional, of this dtype: to lay tensors of the same dtype on it costs least.
    """
    count = -(-nbytes // dtype.itemsize)
    if _is_inference():  # Backward may hand it on to where there is none.
        with torch.inference_mode(False):
            return _empty(count, dtype=dtype, device=device)
    return _empty(count, dtype=dtype, device=device)


class Loads:
    """The way back.

    Parameters
    ----------
    streams : Streams
    books : Books
    checks : bool
        Verify a checksum of every range that comes back.
    """

    def __init__(self, streams: Streams, books: Books, *, checks: bool) -> None:
        self._streams = streams
        self._books = books
        self._checks = checks
        self._begun: list[torch.UntypedStorage] = []
        self._interrupted: list[torch.UntypedStorage] = []

    def start(self, group: Group, what: Callable[[], str]) -> torch.Tensor:
        """Start to load a group that is on a tier; its copy."""
        device, nbytes, first, stored = group.device, group.nbytes, group.span[0], group.stored
        assert stored is not None
        # A group that has no stream is on the CPU.
        stream = None if group.stream is None else self._streams.current(device)
        begun = 0 if stream is None else self._streams.submitted(device)
        padding = (group.source.pointer + first) % alignment_of(device)
        books = self._books
        residency = books.residency
        if not group.is_resident:
            residency.add(group)
        try:
            copy = allocate(padding + nbytes, group.dtype, device)
            storage = copy.untyped_storage()
            span = group.span if padding == first else ByteRange(padding, padding + nbytes)
            # Held from before the transfer knows its address until long after: an interrupt in
            # between must not free memory that is being written to.
            self._begun.append(storage)
            group.begun = monotonic_ns()
            transfer = stored.read(storage, span, device, stream)
        except (Error, OSError) as error:
            residency.remove(group)
            raise lost(error, what(), group) from error
        except BaseException:
            residency.remove(group)
            raise
        # A storage's Python object lives as long as the storage.
        group.loaded = ref(storage)
        group.loaded_start, group.load_stream = first - padding, stream
        group.transfer, group.copy, group.state = transfer, copy, LOADING
        self._begun.pop()
        group.load_count += 1
        group.awaited = group.claims
        books.run.counts.loaded_bytes += nbytes
        if stream is not None:
            self._trace(group, self._streams.submitted(device) - 1, begun)
        return copy

    def begin_step(self) -> None:
        """Let go of what was held for interrupted loads, two steps ago."""
        self._interrupted, self._begun = self._begun, []

    def _trace(self, group: Group, number: int, first: int) -> None:
        sequence = (f"cuda:{group.device.index or 0}", number) if number >= first else None
        self._books.tracer.span(
            Lane.H2D,
            "load",
            group.begun,
            monotonic_ns(),
            group=group.index,
            nbytes=group.nbytes,
            sequence=sequence,
        )

    def start_early(self, group: Group) -> None:
        """Start to load a group before it is asked for, if it has to be loaded at all."""
        if group.state is STORED:
            if storage_of(group.source.key) is not None and group.source.get() is not None:
                return
        elif group.stored is None or group.copy is not None or group.alive() is not None:
            return
        try:
            self.start(group, _early)
        except (Error, OSError, RuntimeError):
            return  # The fetch that needs it tries again, and reports.

    def arrive(self, group: Group, transfer: Ticket) -> None:
        """Outside the lock: let the current stream, or on the CPU the host, wait for a load."""
        stream = self._streams.current(group.device)
        if transfer.done():
            transfer.result()
        else:
            with self._books.waiting():
                self._streams.order(transfer, stream)
        copy = group.copy
        if copy is not None and stream != group.load_stream:
            self._streams.use(copy)

    def take(self, claim: Claim, group: Group, transfer: Ticket) -> bool:
        """Let a claim have the copy that a load made, if nothing has to be waited for or ordered.

        Returns
        -------
        bool
            If not, :meth:`arrive` does it.
        """
        if self._checks or not transfer.done():
            return False
        stream = group.load_stream
        if stream is not None and stream != self._streams.current(group.device):
            return False
        try:
            transfer.result()
        except (Error, OSError):
            return False  # :meth:`arrive` raises it again, where it can be reported.
        group.state, group.transfer = LOADED, None
        tracer = self._books.tracer
        if stream is None and tracer.enabled:
            tracer.moved(_READ, "load", group)
        if claim.load_seen != group.load_count:
            consume(claim, group)
        return True

    def verify(self, group: Group, describe: Callable[[], str]) -> None:
        """Outside the lock: compare what came back with what went."""
        copy = group.copy
        if self._checks and copy is not None:
            verify(group, copy.untyped_storage(), describe())

    def arrived(self, group: Group, transfer: Ticket) -> None:
        """After :meth:`arrive`."""
        if group.transfer is transfer:
            group.state = LOADED
            if group.load_stream is None:
                self._books.tracer.moved(_READ, "load", group)
            # Consumers on other streams have to wait as well, until the host has seen the end.
            if transfer.done():
                group.transfer = None

    def failed(self, group: Group, transfer: Ticket) -> None:
        """After an error in :meth:`arrive`: as before the load."""
        if group.transfer is transfer:
            group.state = STORED
            group.copy = group.transfer = None
            self._books.residency.remove(group)


def consume(claim: Claim, group: Group) -> None:
    """Let go of a loaded copy once every saved tensor in it has asked for it."""
    if claim.load_seen == group.load_count:
        return
    claim.load_seen = group.load_count
    group.awaited -= 1
    if group.awaited <= 0 and group.state is LOADED:
        group.copy = None


def _early() -> str:
    return "loaded early"


class Lingering:
    """Memory that transfers use, though nothing else needs it any more.

    Attributes
    ----------
    held : list of (Ticket, memory)
    ordered : list of (Ticket, memory, stream)
        The same, where the stream may come after the transfer: memory can go in its order then,
        instead of when the host has seen the end.
    """

    def __init__(self) -> None:
        self.held: list[tuple[Ticket, Any]] = []
        self.ordered: list[tuple[Ticket, Any, int]] = []

    def add(self, ticket: Ticket, memory: Any, stream: int | None = None) -> None:
        """Hold memory until a transfer has ended, or until its stream comes after that."""
        if not ticket.done():
            if stream is not None:
                self.ordered.append((ticket, memory, stream))
            self.held.append((ticket, None if stream is not None else memory))

    def settle(self) -> None:
        """Let go of what is no longer used."""
        self.held = [entry for entry in self.held if not entry[0].done()]
        if self.ordered:
            self.ordered = [entry for entry in self.ordered if not entry[0].done()]

    def followed(self, ticket: Ticket) -> None:
        """Let go of memory whose stream comes after a transfer."""
        self.ordered = [entry for entry in self.ordered if entry[0] is not ticket]

    def tickets(self) -> list[Ticket]:
        """The transfers."""
        return [ticket for ticket, _ in self.held]
