# SPDX-License-Identifier: Apache-2.0
"""State of the engine, and its upkeep: transfers that end, saved tensors that are dropped.

One lock guards all state and is never held while a transfer is waited for. The graph may drop a
saved tensor on any thread at any moment, also inside the lock: dropped ones go to a queue that
whoever holds the lock empties.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

import torch

from datapath_core import Error

from .books import Books
from .delays import Delays
from .group import LOADED, RELEASED, STORING, Group, State
from .guard import Guard
from .loads import Lingering, Loads, consume
from .policy import Actions
from .recomputation import Recomputation
from .saved import Claim
from .selection import Selection, is_capturing
from .steps import Steps
from .storage import Memory, WeakStorage
from .stores import Stores
from .streams import Streams
from .table import GroupTable
from .tiers import Tier

__all__ = ["EngineState"]

# Saved tensors that are dropped after their need keep nothing but room on tiers. So many may wait
# for whoever holds the lock next, as long as there are others that will ask.
_PATIENCE = 16


class EngineState:
    """State of one offloader.

    Parameters
    ----------
    selection : Selection
    tiers : sequence of Tier
        In the order in which they are tried.
    streams : Streams
    steps : Steps
        Which policy each step runs under.
    checks : bool
        Verify a checksum of every range that comes back.
    """

    def __init__(
        self,
        selection: Selection,
        tiers: Sequence[Tier],
        streams: Streams,
        steps: Steps,
        *,
        checks: bool,
    ) -> None:
        self.selection = selection
        self.steps = steps
        self.books = Books(steps.first())
        self.tiers = list(tiers)
        self._streams = streams
        self._stores = Stores(tiers, streams, self.books, checks=checks)
        self._loads = Loads(streams, self.books, checks=checks)
        self._lock = Guard()
        self._table = GroupTable()
        self.recomputation = Recomputation(self._table, self._before_write, checks=checks)
        self._dropped: deque[Claim] = deque()
        self._lingering = Lingering()
        self._excluded: dict[int, tuple[WeakStorage, str]] = {}
        self._delays = Delays.from_environment() if checks else None
        self._closing = False
        # Whether a tensor may not go the short way.
        self._is_unusual = self._delays is not None
        self._closed = False

    # ------------------------------------------------------------------ what a policy wants

    def _pause(self, group: Group) -> None:
        if self._delays is not None:
            self._delays.pause(group.device)

    def _carry_out(self, actions: Actions) -> None:
        for group in actions.drops:
            stored = group.stored
            if group.state is STORING and stored is not None:
                self._pause(group)
                self._stores.wait(group, stored)
        with self._lock.free():
            for group in actions.drops:
                self._stores.give_back(group)
            self._read(actions)

    def _read(self, actions: Actions) -> None:
        for group in actions.reads:
            if group.stored is not None and group.alive() is None:
                group.stored.read_ahead()
        for group in actions.loads:
            self._loads.start_early(group)
            if group.begun >= self.books.next_count:
                self.books.count_bytes(group.begun, self._stores.nbytes)

    # ------------------------------------------------------------------ upkeep

    def drop(self, claim: Claim) -> None:
        """The graph has let go of a saved tensor. Safe on any thread, also inside the lock."""
        dropped, group = self._dropped, claim.group
        dropped.append(claim)
        if (
            group.state is LOADED
            and group.copy is None
            and group.ingredients is None
            and _PATIENCE > len(dropped) < len(self._table.by_storage)
            and self.books.residency.profile is None
        ):
            return
        # One may come between a drain and the end of the lock.
        while dropped and (free := self._lock.if_free()) is not None:
            with free:
                self._drain()
        if self._lingering.ordered:
            self._follow()
        if self.books.faults.unlogged is not None:
            self.books.faults.flush()

    def settle(self) -> None:
        """Catch up with ended transfers and dropped tensors."""
        with self._lock.free():
            self._drain()
        while self._dropped and (free := self._lock.if_free()) is not None:
            with free:
                self._drain()
        self._follow()
        self.books.faults.flush()

    def _follow(self) -> None:
        """Outside the lock: give memory back that copies to the host still read, in stream order.

        Backward may be through with a tensor before its copy is. A host that runs ahead would see
        the copy's end only when the step is over, and its memory would be one with the peak.
        """
        if self._lock.is_forked or (self.selection.device_type == "cuda" and is_capturing()):
            return
        for ticket, _, stream in self._lingering.ordered:
            if self._lock.if_free() is None:
                return
            if not ticket.done():
                try:
                    with self.books.waiting():
                        self._streams.order(ticket, stream)
                except (Error, OSError, ValueError):
                    continue  # The host will see its end.
            with self._lock.free():
                self._lingering.followed(ticket)

    def _drain(self) -> None:
        """See to saved tensors that were dropped, and to transfers that have ended."""
        dropped = self._dropped
        if self._lock.is_forked:  # Transfers and tiers are the parent's.
            dropped.clear()
            return
        while dropped:
            # It leaves the queue last: an interrupt in between only repeats what follows.
            claim = dropped[0]
            group = claim.group
            if group.merged_into is not None:
                group = group.resolve()
            if group.state is not RELEASED:
                if claim.is_counted:
                    claim.is_counted, group.claims = False, group.claims - 1
                if not group.claims:
                    self._release(group)
                else:
                    consume(claim, group)
            dropped.popleft()
        self._stores.settle()
        if self._lingering.held:
            self._lingering.settle()

    def _release(self, group: Group) -> None:
        # An interrupt may come between any two lines; then all of it is done again.
        books, stored = self.books, group.stored
        if not group.is_counted:
            books.count(group)
        if group.state is STORING or self._stores.trailing:
            self._stores.release(group)
        lingers = False
        if stored is not None:
            if not stored.out.done():
                lingers = group.held is not None
                stream = None if stored.waits_for_drive else group.stream
                self._lingering.add(stored.out, (group.held, group.copy), stream)
            stored.free()
        if group.transfer is not None:
            self._lingering.add(group.transfer, group.copy)
        if group.ingredients is not None:
            self._dropped.extend(self.recomputation.release(group))
        group.held = group.copy = group.stored = group.transfer = group.checksum = None
        if lingers:
            books.residency.given_back(group)
        elif group.is_resident:
            books.residency.remove(group)
        self._table.remove(group)
        group.state = RELEASED
        group.run.released(group)

    def _before_write(self, groups: list[Group], readers: list[Group]) -> None:
        """The bytes of groups, and what readers are computed from, are about to change.

        Whether a version will show it nobody knows yet (``.data`` has a counter of its own). Where
        none does, the graph means the memory itself, as it is in backward.
        """
        with self._lock.free():
            for group in groups:
                self._hold_again(group)
        for group in readers:
            if group.state is not State.DROPPED:
                continue
            output = self._run_recipe(group)
            with self._lock.free():
                if group.state is State.DROPPED:
                    self._dropped.extend(self.recomputation.keep(group, output))
                    self.books.residency.add(group)
                    self.books.count_kept(group, "what it is computed from changed")

    def _hold_again(self, group: Group) -> None:
        original = group.source.get()
        if original is None or group.state in (State.KEPT, State.RELEASED):
            return
        self._stores.release(group)
        out = None if group.stored is None else group.stored.out
        for ticket in (out, group.transfer):
            if ticket is not None:
                self._lingering.add(ticket, (group.copy, original))
        if group.stored is not None:
            group.stored.free()
        self._dropped.extend(self.recomputation.release(group))
        group.copy = group.stored = group.transfer = group.checksum = None
        group.held, group.state = original, State.KEPT
        self.books.residency.add(group)
        self.books.count_kept(group, "written to after the save")

    def fetch(
        self, claim: Claim, describe: Callable[[], str], is_tick: bool = True
    ) -> tuple[Memory, int]:
        """Memory with a saved tensor's bytes; :mod:`ssdtrain.fetching` does it."""
        raise NotImplementedError

    def _run_recipe(self, group: Group) -> torch.Tensor:
        """Compute a group again; :mod:`ssdtrain.fetching` brings what it reads."""
        raise NotImplementedError
