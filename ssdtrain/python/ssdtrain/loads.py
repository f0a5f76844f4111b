# SPDX-License-Identifier: Apache-2.0
"""Bytes on their way back: from a tier to a copy that every saved tensor of a group shares.

:class:`Loads` is used inside the engine's lock, but for what says that it waits.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic_ns
from typing import TYPE_CHECKING, Any

import torch

from datapath_core import Error

from .books import Books
from .checks import verify
from .faults import lost
from .group import LOADED, LOADING, STORED, Group
from .saved import Claim
from .storage import ByteRange, WeakStorage, bytes_of
from .streams import Streams
from .trace import Lane

if TYPE_CHECKING:
    from datapath_core.streams import Ticket

__all__ = ["Lingering", "Loads"]

_READ = Lane.READ


def _allocate(nbytes: int, device: torch.device) -> torch.UntypedStorage:
    """Memory of the device, in the order of its current stream."""
    if device.type == "cpu":  # A tensor would be made for nothing.
        return torch.UntypedStorage(nbytes, device=device)  # type: ignore[no-untyped-call]
    return torch.empty(nbytes, dtype=torch.uint8, device=device).untyped_storage()


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

    def start(self, group: Group, what: Callable[[], str]) -> None:
        """Start to load a group that is on a tier."""
        device, nbytes, streams, books = group.device, group.nbytes, self._streams, self._books
        padding = group.span[0] - group.loaded_start
        stream = streams.current(device)
        first = 0 if stream is None else streams.submitted(device)
        books.residency.add(group)
        try:
            storage = _allocate(padding + nbytes, device)
            span = ByteRange(padding, padding + nbytes)
            # Held from before the transfer knows its address until long after: an interrupt in
            # between must not free memory that is being written to.
            self._begun.append(storage)
            group.begun = monotonic_ns()
            stored = group.stored
            assert stored is not None
            transfer = stored.read(storage, span, device, stream)
        except (Error, OSError) as error:
            books.residency.remove(group)
            raise lost(error, what(), group) from error
        except BaseException:
            books.residency.remove(group)
            raise
        group.transfer, group.held, group.state = transfer, storage, LOADING
        self._begun.pop()
        group.loaded = WeakStorage(storage)
        group.load_stream = stream
        group.load_count += 1
        group.awaited = len(group.claims)
        books.run.counts.loaded_bytes += nbytes
        if stream is not None:
            self._trace(group, streams.submitted(device) - 1, first)

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
            if group.source.get() is not None:
                return
        elif group.stored is None or group.in_memory_again() or group.alive() is not None:
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
        storage = group.held
        if storage is not None and stream != group.load_stream:
            self._streams.use(bytes_of(storage, ByteRange(0, storage.nbytes())))

    def has_arrived(self, group: Group, transfer: Ticket) -> bool:
        """Whether nothing has to be waited for, ordered or compared; then it is as arrived."""
        if (
            self._checks
            or not transfer.done()
            or self._streams.current(group.device) != group.load_stream
        ):
            return False
        try:
            transfer.result()
        except (Error, OSError):
            return False  # :meth:`arrive` raises it again, where it can be reported.
        if group.transfer is transfer:
            group.state = LOADED
            if group.load_stream is None:
                self._books.tracer.moved(_READ, "load", group)
            group.transfer = None
        return True

    def verify(self, group: Group, describe: Callable[[], str]) -> None:
        """Outside the lock: compare what came back with what went."""
        storage = group.held
        if self._checks and storage is not None:
            verify(group, storage, describe())

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
            group.held = group.loaded = group.transfer = None
            self._books.residency.remove(group)

    @staticmethod
    def consume(claim: Claim, group: Group) -> None:
        """Let go of a loaded copy once every saved tensor in it has asked for it."""
        if claim.load_seen == group.load_count:
            return
        claim.load_seen = group.load_count
        group.awaited -= 1
        if group.awaited <= 0 and group.state is LOADED:
            group.held = None


def _early() -> str:
    return "loaded early"


class Lingering:
    """Memory that transfers use, though nothing else needs it any more.

    Attributes
    ----------
    held : list of (Ticket, memory)
    """

    def __init__(self) -> None:
        self.held: list[tuple[Ticket, Any]] = []

    def add(self, ticket: Ticket, memory: Any) -> None:
        """Hold memory until a transfer has ended."""
        if not ticket.done():
            self.held.append((ticket, memory))

    def settle(self) -> None:
        """Let go of what is no longer used."""
        self.held = [entry for entry in self.held if not entry[0].done()]

    def tickets(self) -> list[Ticket]:
        """The transfers."""
        return [ticket for ticket, _ in self.held]
