# SPDX-License-Identifier: Apache-2.0
"""Which groups go for a ceiling of memory: those that are needed again last.

When they go and come is :mod:`ssdtrain.schedule`, host or disk is :mod:`ssdtrain.placing`; the
search over ceilings is :mod:`ssdtrain.optimise`.
"""

from __future__ import annotations

import bisect
import heapq
from typing import Literal

import numpy as np

from .placing import Placer
from .plan import Limits, Where
from .schedule import Schedule, Scheduler

__all__ = ["RecomputeMode", "Selector"]

RecomputeMode = Literal["none", "late", "all"]


class Selector:
    """Chooses places of groups for one timeline.

    Parameters
    ----------
    scheduler : Scheduler
    limits : Limits

    Attributes
    ----------
    placer : Placer
    can_move, can_recompute : list of bool
        What may be done with each group.
    """

    def __init__(self, scheduler: Scheduler, limits: Limits) -> None:
        self.scheduler = scheduler
        self.placer = Placer(scheduler, limits)
        groups = scheduler.timeline.groups
        free = [g.frees and g.can_move and g.nbytes > 0 for g in groups]
        self.has_lane = self.placer.host_allowed or self.placer.disk_allowed
        self.can_move = [f and self.has_lane for f in free]
        self.can_recompute = [
            f and g.recipe is not None and limits.allow_recompute
            for f, g in zip(free, groups, strict=True)
        ]
        # What takes less time to compute again than to copy.
        self.cheap = {
            i
            for i, can in enumerate(self.can_recompute)
            if can and (not self.has_lane or groups[i].recompute_seconds < self.copy_seconds(i))
        }

    def copy_seconds(self, index: int) -> float:
        """Time of a group's way out, alone."""
        s = self.scheduler
        return s.rates.overhead + s.bytes[index] / s.out_rate

    def select(
        self, ceiling: float, mode: RecomputeMode, *, paced: bool = False
    ) -> list[Where] | None:
        """Choose places whose memory could stay below a ceiling if copies took no time.

        Parameters
        ----------
        ceiling : float
            Bytes.
        mode : {"none", "late", "all"}
            What to compute again: nothing; what no lane could take in time; all that takes less
            time than a copy.
        paced : bool
            Fill the drive's lane through the whole step first, as fast as it writes, so that little
            pinned memory waits for it.

        Returns
        -------
        list of Where or None
            None: there is no way.
        """
        computed = self.cheap if mode != "none" else set()
        may = [can and index not in computed for index, can in enumerate(self.can_move)]
        on_disk = self.placer.paced(may) if paced else []
        return _Selection(self, ceiling, mode, on_disk).run()

    def trim(self, schedule: Schedule, ceiling: float) -> list[Where]:
        """Keep what can be kept below a ceiling, what costs time or wears the drive first.

        Parameters
        ----------
        schedule : Schedule
        ceiling : float

        Returns
        -------
        list of Where
        """
        s = self.scheduler
        groups = s.timeline.groups
        where = list(schedule.where)
        memory = np.array(schedule.memory)
        _, needed, _ = s.times(where)
        wear = {Where.DISK: 1, Where.HOST: 2}

        def order(index: int) -> tuple[int, float, int]:
            if where[index] is Where.RECOMPUTE:
                return (0, -groups[index].recompute_seconds, index)
            return (wear[where[index]], -float(s.bytes[index]), index)

        moved = [i for i, place in enumerate(where) if place is not Where.KEEP]
        for index in sorted(moved, key=order):
            end: int | None
            if where[index] is Where.RECOMPUTE:
                begin, end = groups[index].saved_at, needed[index]
            else:
                drop = schedule.drop_at[index]
                begin, end = -1 if drop is None else drop, schedule.load_at[index]
            if end is None:
                end = groups[index].released_after + 1
            span = memory[begin + 1 : end + 1]
            if not len(span) or span.max() + s.bytes[index] <= ceiling:
                span += s.bytes[index]
                where[index] = Where.KEEP
        return where


class _Selection:
    """One walk through the ticks: whenever memory exceeds the ceiling, something goes."""

    def __init__(
        self, selector: Selector, ceiling: float, mode: RecomputeMode, on_disk: list[int]
    ) -> None:
        self.owner = selector
        self.s = s = selector.scheduler
        self.groups = s.timeline.groups
        self.ceiling = ceiling
        self.mode = mode
        self.where = [Where.KEEP] * len(self.groups)
        if mode == "all":
            for index in selector.cheap:
                self.where[index] = Where.RECOMPUTE
        for index in on_disk:
            self.where[index] = Where.DISK
        self.times, needed, self.released = s.times(self.where)
        self.needed = [r if n is None else n for n, r in zip(needed, self.released, strict=True)]
        self.back = self._back_ticks(needed)
        self.memory = s.kept.copy()
        for index, group in enumerate(self.groups):
            # Held longer for what is computed from it.
            if self.released[index] > group.released_after:
                self.memory[group.released_after + 2 : self.released[index] + 2] += s.bytes[index]
            if self.where[index] is Where.RECOMPUTE:
                self._absent(index, group.saved_at, self.needed[index])
        for index in on_disk:
            begin = self.times[self.groups[index].saved_at] + selector.copy_seconds(index)
            gone = bisect.bisect_left(self.times, begin + s.margin(selector.copy_seconds(index)))
            self._absent(index, gone, self.back[index])
        self.saved_at = np.array([group.saved_at for group in self.groups], np.int64)
        self.last_tick = np.array(self.needed, np.int64)
        self.back_at = np.array(self.back, np.int64)
        self.movable = np.array(
            [
                can and place is not Where.RECOMPUTE
                for can, place in zip(selector.can_move, self.where, strict=True)
            ],
            bool,
        )
        # Those in memory, the furthest way ahead first; the cheapest to compute again first.
        self.waiting: list[tuple[int, int]] = []
        self.computable: list[tuple[float, int]] = []
        self.lane_free = 0.0

    def run(self) -> list[Where] | None:
        for k, tick in enumerate(self.s.timeline.ticks):
            index = tick.group
            if tick.kind == "save" and self.where[index] is Where.KEEP:
                if self.owner.can_move[index]:
                    heapq.heappush(self.waiting, (-self.back[index], index))
                if self.mode == "late" and index in self.owner.cheap:
                    cost = self.groups[index].recompute_seconds / self.s.bytes[index]
                    heapq.heappush(self.computable, (cost, index))
            while self.memory[k + 1] > self.ceiling:
                if not self._evict(k):
                    return None
        return self.owner.placer.assign(self.where)

    def _evict(self, k: int) -> bool:
        moving = self._first_to_move(k)
        computing = self._first_to_compute(k)
        if moving is not None:
            saved = self.times[self.groups[moving].saved_at]
            end = max(self.lane_free, saved) + self.owner.copy_seconds(moving)
            late = end - self.times[k]
            if computing is None or late <= self.groups[computing].recompute_seconds:
                heapq.heappop(self.waiting)
                self.lane_free = end
                self.where[moving] = Where.HOST
                self._absent(moving, k, self.back[moving])
                return True
        if computing is None:
            return self._postpone(k)
        heapq.heappop(self.computable)
        self.where[computing] = Where.RECOMPUTE
        self.movable[computing] = False
        self._absent(computing, self.groups[computing].saved_at, self.needed[computing])
        return True

    def _postpone(self, k: int) -> bool:
        """Let a group come back no sooner than it is needed: computation will wait for it."""
        there = self.movable & (self.saved_at <= k) & (self.last_tick > k) & (self.back_at <= k)
        if not there.any():
            return False
        index = int(np.where(there, self.last_tick, -1).argmax())
        if self.where[index] is Where.KEEP:
            self.where[index] = Where.HOST
        self.back_at[index] = self.last_tick[index]
        self._absent(index, k, int(self.last_tick[index]))
        return True

    def _first_to_move(self, k: int) -> int | None:
        while self.waiting:
            back, index = self.waiting[0]
            if -back > k and self.where[index] is Where.KEEP:
                return index
            heapq.heappop(self.waiting)
        return None

    def _first_to_compute(self, k: int) -> int | None:
        while self.computable:
            index = self.computable[0][1]
            if self.needed[index] > k and self.where[index] is Where.KEEP:
                return index
            heapq.heappop(self.computable)
        return None

    def _absent(self, index: int, gone: int, back: int) -> None:
        self.memory[gone + 1 : back + 1] -= self.s.bytes[index]

    def _back_ticks(self, needed: list[int | None]) -> list[int]:
        """Latest tick at which each group would start to come back, had the lane nothing else."""
        s = self.s
        if not self.owner.has_lane:
            return [0] * len(needed)
        found = []
        for index, need in enumerate(needed):
            if need is None:
                found.append(self.released[index])
                continue
            duration = s.rates.overhead + s.bytes[index] / s.back_rate
            start = self.times[need] - duration - s.margin(duration)
            found.append(max(bisect.bisect_right(self.times, start) - 1, 0))
        return found
