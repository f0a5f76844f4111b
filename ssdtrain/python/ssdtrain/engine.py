# SPDX-License-Identifier: Apache-2.0
"""The engine of one offloader: saves, gives back, begins steps, reports, closes.

What moves when is :mod:`ssdtrain.policy`'s to say.
"""

from __future__ import annotations

from datapath_core import Error

from .accounting import StepCounts
from .books import MOVED
from .fetching import Fetching
from .quick_saving import QuickSaving
from .stores import end_of

__all__ = ["Engine"]


class Engine(QuickSaving, Fetching):
    """Both halves, and what surrounds a step."""

    def begin_step(self) -> StepCounts | None:
        """A new forward pass: counts start again. Those of the last one; None after a fork."""
        self.settle()
        if self._lock.is_forked:
            return None
        last = self.books.run.counts
        run = self.steps.next(self.books)
        with self._lock.free():
            self._excluded = {k: v for k, v in self._excluded.items() if v[0].get() is not None}
            for group in [group for group in self._table if not group.claims]:
                self._release(group)  # An interrupt came before its first claim.
            self._loads.begin_step()
            self._stores.begin_step()
            self.steps.start(run, self.books, self._table)
        return last

    def report(self) -> dict[str, object]:
        """Counts of the last step, with the groups that are still waiting for their backward."""
        self.settle()
        with self._lock.free():
            if not self._lock.is_forked:
                self._stores.settle_all()
            run = self.books.run
            counts = run.counts.copy()
            live: dict[str, int] = {}
            for group in self._table:
                phase = group.phase()
                live[phase] = live.get(phase, 0) + group.nbytes
                if group.run is run and not group.is_counted:
                    where = group.whereabouts()
                    if where in MOVED:
                        counts.moved[where] += group.nbytes
                    else:
                        counts.keep(where, group.nbytes)
            return {
                **counts.as_dict(),
                "live_bytes": live,
                "faults": self.books.faults.texts(),
                "deviated": run.policy.deviated,
            }

    @property
    def is_closed(self) -> bool:
        """Whether ``close`` was called, also if an interrupt ended it."""
        return self._closing

    def close(self) -> None:
        """Wait for what is on its way, then give everything back."""
        self._closing = self._is_unusual = True
        if self._closed or self._lock.is_forked:
            return
        self._wait_for_all()
        with self._lock.free():
            self._drain()
            for group in list(self._table):
                self._release(group)
        self.books.faults.flush()
        for tier in self.tiers:
            tier.close()
        self._streams.close()
        # Only now: after an interrupt a second call goes on.
        self._closed = True

    def _wait_for_all(self) -> None:
        with self._lock.free():
            tickets = self._lingering.tickets()
            for group in self._table:
                if group.stored is not None:
                    tickets.append(group.stored.out)
                if group.transfer is not None:
                    tickets.append(group.transfer)
        for ticket in tickets:
            try:
                end_of(ticket)
            except (Error, OSError):
                break  # The tier that it belongs to says more about that.

    def __del__(self) -> None:
        # Transfers know the addresses of memory that this engine holds.
        try:
            if not self._closed and not self._lock.is_forked:
                self._wait_for_all()
        except Exception:  # noqa: BLE001
            pass  # The interpreter may be half gone; nobody is left to tell.
