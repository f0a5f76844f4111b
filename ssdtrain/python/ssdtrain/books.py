# SPDX-License-Identifier: Apache-2.0
"""Where each group is entered under what happened to it, once; decides nothing."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from .faults import FaultLog
from .residency import Residency
from .run import Run
from .trace import Lane, Quantity, Tracer

if TYPE_CHECKING:
    from .group import Group

__all__ = ["MOVED", "Books"]

# Places that bytes can go to; everything else is a reason for which they stayed.
MOVED = ("host", "disk", "recompute")

_COUNTER_NS = 500_000


class Books:
    """Counts, faults and residency of an engine.

    Attributes
    ----------
    run : Run
        The present step.
    faults : FaultLog
    residency : Residency
    tracer : Tracer
    """

    def __init__(self, run: Run) -> None:
        self.run = run
        self.faults = FaultLog()
        self.residency = Residency()
        self.tracer = Tracer()
        self.next_count = 0

    def begin_step(self, run: Run, groups: Iterable[Group] = ()) -> None:
        """A new step, with the groups that there are already."""
        self.run = run
        self.tracer.begin_step(run.counts.step)
        profile = run.profile
        self.residency.begin_step(
            profile if profile is not None and profile.detailed else None, groups
        )

    def count(self, group: Group) -> None:
        """Enter a group under where it is, the first time that backward, or its end, shows that."""
        if group.is_counted:
            return
        where = group.whereabouts()
        if where in MOVED:
            self.count_moved(group, where)
        else:
            self.count_kept(group, where)

    def count_moved(self, group: Group, where: str) -> None:
        """Enter a group, for the first time, as one that went somewhere."""
        moved = group.run.counts.moved
        moved[where], group.is_counted = moved[where] + group.nbytes, True

    def count_kept(self, group: Group, reason: str) -> None:
        """Enter a group as one that stays."""
        if not group.is_counted:
            group.is_counted = True
            group.run.counts.keep(reason, group.nbytes)

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Around a wait for a transfer."""
        counts, profile = self.run.counts, self.run.profile
        counts.waits += 1
        begin = time.perf_counter()
        token = self.tracer.begin("wait")
        try:
            if profile is None:
                yield
            else:
                with profile.waiting():
                    yield
        finally:
            marks = None if profile is None else profile.last_wait()
            if marks is None:
                self.tracer.end(token, Lane.COMPUTE, "wait")
            else:  # The device waits, and the host does not.
                self.tracer.end(token, Lane.COMPUTE, "wait, asked for")
                self.tracer.device_span(Lane.COMPUTE, "wait", *marks)
            counts.wait_seconds += time.perf_counter() - begin

    def count_bytes(self, now: int, backlog: int) -> None:
        """Enter what is where into the trace, with so many bytes on their way out.

        Worth a call from :attr:`next_count` on, in ``time.monotonic_ns()``.
        """
        self.next_count = now + _COUNTER_NS
        device = self.residency.nbytes
        profile = self.run.profile
        if profile is not None and profile.detailed and profile.allocated:
            device = profile.allocated
        self.tracer.counter(Quantity.DEVICE, device)
        self.tracer.counter(Quantity.BACKLOG, backlog)
