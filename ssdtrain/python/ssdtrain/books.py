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

if TYPE_CHECKING:
    from .group import Group

__all__ = ["MOVED", "Books"]

# Places that bytes can go to; everything else is a reason for which they stayed.
MOVED = ("host", "disk", "recompute")


class Books:
    """Counts, faults and residency of an engine.

    Attributes
    ----------
    run : Run
        The present step.
    faults : FaultLog
    residency : Residency
    """

    def __init__(self, run: Run) -> None:
        self.run = run
        self.faults = FaultLog()
        self.residency = Residency()

    def begin_step(self, run: Run, groups: Iterable[Group] = ()) -> None:
        """A new step, with the groups that there are already."""
        self.run = run
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
            group.run.counts.moved[where] += group.nbytes
            group.is_counted = True
        else:
            self.count_kept(group, where)

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
        try:
            if profile is None:
                yield
            else:
                with profile.waiting():
                    yield
        finally:
            counts.wait_seconds += time.perf_counter() - begin
