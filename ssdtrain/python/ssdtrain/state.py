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

from .books import Books
from .delays import Delays
from .group import RELEASED, STORING, Group, State
from .guard import Guard
from .loads import Lingering, Loads
from .policy import Actions
from .recomputation import Recomputation
from .saved import Claim
from .selection import Selection
from .steps import Steps
from .storage import WeakStorage
from .stores import Stores
from .streams import Streams
from .table import GroupTable
from .tiers import Tier

__all__ = ["EngineState"]


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

    # ------------------------------------------------------------------ upkeep

    def drop(self, claim: Claim) -> None:
        """The graph has let go of a saved tensor. Safe on any thread, also inside the lock."""
        lock = self._lock
        if lock.is_forked:
            return
        dropped = self._dropped
        dropped.append(claim)
        # One may come between a drain and the end of the lock.
        while dropped and (free := lock.if_free()) is not None:
            with free:
                self._drain()
        self.books.faults.flush()

    def settle(self) -> None:
        """Catch up with ended transfers and dropped tensors."""
        with self._lock.free():
            self._drain()
        while self._dropped and (free := self._lock.if_free()) is not None:
            with free:
                self._drain()
        self.books.faults.flush()

    def _drain(self) -> None:
        dropped, stores, lingering = self._dropped, self._stores, self._lingering.held
        if not (dropped or stores.groups or stores.trailing or lingering):
            return
        if self._lock.is_forked:  # Transfers and tiers are the parent's.
            return
        while dropped:
            # It leaves the queue last: an interrupt in between only repeats what follows.
            claim = dropped[0]
            group = claim.group
            if group.merged_into is not None:
                group = group.resolve()
            if group.state is not RELEASED:
                claims = group.claims
                claims.discard(claim)
                self._loads.consume(claim, group)
                if not claims:
                    self._release(group)
            dropped.popleft()
        if stores.groups or stores.trailing:
            stores.settle()
        if self._lingering.held:
            self._lingering.settle()

    def _release(self, group: Group) -> None:
        # An interrupt may come between any two lines; then all of it is done again.
        books = self.books
        if not group.is_counted:
            books.count(group)
        self._stores.release(group)
        stored = group.stored
        if stored is not None:
            if not stored.out.done():
                self._lingering.add(stored.out, group.held)
            stored.free()
        if group.transfer is not None:
            self._lingering.add(group.transfer, group.held)
        if group.ingredients is not None:
            self._dropped.extend(self.recomputation.release(group))
        group.held = group.loaded = group.stored = group.transfer = group.checksum = None
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
                self._lingering.add(ticket, (group.held, original))
        if group.stored is not None:
            group.stored.free()
        self._dropped.extend(self.recomputation.release(group))
        group.loaded = group.stored = group.transfer = group.checksum = None
        group.held, group.state = original, State.KEPT
        self.books.residency.add(group)
        self.books.count_kept(group, "written to after the save")

    def fetch(
        self, claim: Claim, describe: Callable[[], str], is_tick: bool = True
    ) -> tuple[torch.UntypedStorage, int]:
        """A storage with a saved tensor's bytes; :mod:`ssdtrain.fetching` does it."""
        raise NotImplementedError

    def _run_recipe(self, group: Group) -> torch.Tensor:
        """Compute a group again; :mod:`ssdtrain.fetching` brings what it reads."""
        raise NotImplementedError
