# SPDX-License-Identifier: Apache-2.0
"""Which groups go, and where, for a ceiling of memory: those that are needed again last.

When they go and come is :mod:`ssdtrain.schedule`; the search over ceilings is
:mod:`ssdtrain.optimise`.
"""

from __future__ import annotations

import bisect
import heapq
from typing import Literal

import numpy as np

from .plan import Limits, Where
from .schedule import Schedule, Scheduler

__all__ = ["RecomputeMode", "Selector"]

RecomputeMode = Literal["none", "late", "all"]

# Numbers of groups on disk that are tried before the least one is looked for.
_STEPS = 16


class Selector:
    """Chooses places of groups for one timeline.

    Parameters
    ----------
    scheduler : Scheduler
    limits : Limits
    """

    def __init__(self, scheduler: Scheduler, limits: Limits) -> None:
        self.s = scheduler
        self.limits = limits
        groups = scheduler.timeline.groups
        free = [g.frees and g.can_move and g.nbytes > 0 for g in groups]
        self.has_lane = (
            scheduler.out_rate > 0
            and scheduler.back_rate > 0
            and (self.disk_allowed or (self.host_allowed))
        )
        self.can_move = [f and self.has_lane for f in free]
        self.can_recompute = [
            f and g.recipe is not None and limits.allow_recompute
            for f, g in zip(free, groups, strict=True)
        ]

    @property
    def host_allowed(self) -> bool:
        """Whether groups may wait in pinned memory."""
        limits = self.limits
        return not self.s.direct and limits.allow_host and limits.host_bytes > 0

    @property
    def disk_allowed(self) -> bool:
        """Whether groups may go to disk."""
        rates, limits = self.s.rates, self.limits
        pinned = self.s.direct or limits.host_bytes > 0
        writes = limits.write_bytes is None or limits.write_bytes > 0
        return limits.disk_bytes > 0 and writes and rates.write > 0 and rates.read > 0 and pinned

    def select(self, ceiling: float, mode: RecomputeMode) -> list[Where] | None:
        """Choose places whose memory could stay below a ceiling if copies took no time.

        Parameters
        ----------
        ceiling : float
            Bytes.
        mode : {"none", "late", "all"}
            What to compute again: nothing; what no lane could take in time; all that takes less
            time than a copy.

        Returns
        -------
        list of Where or None
            None: there is no way.
        """
        s = self.s
        groups = s.timeline.groups
        where = [Where.KEEP] * len(groups)
        cheap = self._cheap() if mode != "none" else set()
        if mode == "all":
            for index in cheap:
                where[index] = Where.RECOMPUTE
        times, needed, released = s.times(where)
        memory = s.kept.copy()
        for index in cheap if mode == "all" else ():
            end = released[index] if needed[index] is None else needed[index]
            assert end is not None
            memory[groups[index].saved_at + 1 : end + 1] -= s.bytes[index]
        if mode != "none":
            for index, group in enumerate(groups):
                # Held longer for what is computed from it.
                if released[index] > group.released_after:
                    memory[group.released_after + 2 : released[index] + 2] += s.bytes[index]
        back = self._back_ticks(times, needed, released)
        live: list[tuple[int, int]] = []
        live_cheap: list[tuple[float, int]] = []
        clock = 0.0
        for k, tick in enumerate(s.timeline.ticks):
            if tick.kind == "save" and where[tick.group] is Where.KEEP:
                index = tick.group
                if self.can_move[index]:
                    heapq.heappush(live, (-back[index], index))
                if mode == "late" and index in cheap:
                    cost = groups[index].recompute_seconds / s.bytes[index]
                    heapq.heappush(live_cheap, (cost, index))
            while memory[k + 1] > ceiling:
                index = self._furthest(live, where, k)
                if index is not None and mode == "late":
                    duration = s.bytes[index] / s.out_rate
                    late = max(clock, times[groups[index].saved_at]) + duration - times[k]
                    other = self._cheapest(live_cheap, where, needed, released, k)
                    if other is not None and late > groups[other].recompute_seconds:
                        heapq.heappush(live, (-back[index], index))
                        index = other
                elif index is None and mode == "late":
                    index = self._cheapest(live_cheap, where, needed, released, k)
                    other = index
                else:
                    other = None
                if index is None:
                    return None
                if mode == "late" and index == other:
                    where[index] = Where.RECOMPUTE
                    end = released[index] if needed[index] is None else needed[index]
                    assert end is not None
                    memory[groups[index].saved_at + 1 : end + 1] -= s.bytes[index]
                    continue
                where[index] = Where.HOST
                duration = s.bytes[index] / s.out_rate
                clock = max(clock, times[groups[index].saved_at]) + duration
                memory[k + 1 : back[index] + 1] -= s.bytes[index]
        return self.assign(where)

    def _cheap(self) -> set[int]:
        """Groups that are computed again in less time than they are copied."""
        s = self.s
        groups = s.timeline.groups
        return {
            i
            for i, can in enumerate(self.can_recompute)
            if can
            and (
                not self.has_lane
                or groups[i].recompute_seconds < s.rates.overhead + s.bytes[i] / s.out_rate
            )
        }

    def _back_ticks(
        self, times: list[float], needed: list[int | None], released: list[int]
    ) -> list[int]:
        """Latest tick at which each group would start to come back, had the lane nothing else."""
        s = self.s
        if not self.has_lane:
            return [0] * len(needed)
        found = []
        for index, need in enumerate(needed):
            if need is None:
                found.append(released[index])
                continue
            duration = s.rates.overhead + s.bytes[index] / s.back_rate
            start = times[need] - duration - s.margin(duration)
            found.append(max(bisect.bisect_right(times, start) - 1, 0))
        return found

    def _furthest(self, live: list[tuple[int, int]], where: list[Where], k: int) -> int | None:
        while live:
            back, index = heapq.heappop(live)
            if -back > k and where[index] is Where.KEEP:
                return index
        return None

    def _cheapest(
        self,
        live: list[tuple[float, int]],
        where: list[Where],
        needed: list[int | None],
        released: list[int],
        k: int,
    ) -> int | None:
        while live:
            index = live[0][1]
            end = released[index] if needed[index] is None else needed[index]
            if where[index] is Where.KEEP and end is not None and end > k:
                return index
            heapq.heappop(live)
        return None

    # ------------------------------------------------------------------ host or disk

    def assign(self, where: list[Where]) -> list[Where] | None:
        """Send what is to move to host memory, and to disk what that has no room for.

        Returns
        -------
        list of Where or None
            None: the budgets do not hold it.
        """
        moved = [i for i, place in enumerate(where) if place in (Where.HOST, Where.DISK)]
        found = list(where)
        for index in moved:
            found[index] = Where.DISK if self.s.direct else Where.HOST
        if not moved:
            return found
        if self.s.direct:
            return found if self._disk_holds(moved) else None
        if self.host_allowed and self._pinned(found, moved) <= self.limits.host_bytes:
            return found
        if not self.disk_allowed:
            return None
        groups = self.s.timeline.groups
        times, needed, _ = self.s.times(found)
        last = self.s.timeline.seconds

        def idle(index: int) -> float:
            need = needed[index]
            return (last if need is None else times[need]) - times[groups[index].saved_at]

        longest = sorted(moved, key=lambda i: (-idle(i), i))
        if not self.host_allowed:
            return self._with_disk(found, moved, longest, len(moved))
        return self._least_on_disk(found, moved, longest)

    def _least_on_disk(
        self, found: list[Where], moved: list[int], longest: list[int]
    ) -> list[Where] | None:
        """Send as few as will do to disk, those that wait longest."""
        below = 0
        for step in range(1, _STEPS + 1):
            count = -(-len(moved) * step // _STEPS)
            placed = self._with_disk(found, moved, longest, count)
            if placed is None:
                below = count
                continue
            best = placed
            while count - below > 1:
                middle = (below + count) // 2
                placed = self._with_disk(found, moved, longest, middle)
                if placed is None:
                    below = middle
                else:
                    best, count = placed, middle
            return best
        return None

    def _with_disk(
        self, found: list[Where], moved: list[int], longest: list[int], count: int
    ) -> list[Where] | None:
        on_disk = longest[:count]
        if not self._disk_holds(on_disk):
            return None
        placed = list(found)
        for index in on_disk:
            placed[index] = Where.DISK
        return placed if self._pinned(placed, moved) <= self.limits.host_bytes else None

    def _disk_holds(self, groups: list[int]) -> bool:
        total = sum(self.s.bytes[index] for index in groups)
        limits = self.limits
        return total <= limits.disk_bytes and (
            limits.write_bytes is None or total <= limits.write_bytes
        )

    def _journeys(
        self, on_disk: list[int], times: list[float]
    ) -> list[tuple[float, float, float, float]]:
        """Seconds of save, end of writing, begin of reading and need of each group on disk."""
        s = self.s
        groups = s.timeline.groups
        if not on_disk:
            return []
        order = sorted(on_disk, key=lambda i: groups[i].saved_at)
        free = 0.0
        written = {}
        for index in order:
            begin = max(free, times[groups[index].saved_at] + s.bytes[index] / s.out_rate)
            free = written[index] = begin + s.rates.overhead + s.bytes[index] / s.rates.write
        starts = {}
        needs = {}
        start = float("inf")
        for index in sorted(on_disk, key=lambda i: -_or_last(groups[i].needed_at, len(times))):
            need = groups[index].needed_at
            needs[index] = s.timeline.seconds if need is None else times[need]
            back = s.bytes[index] / s.back_rate
            reading = s.rates.overhead + s.bytes[index] / s.rates.read
            begin = needs[index] - back - s.margin(back)
            start = min(begin - s.margin(reading), start) - reading
            starts[index] = max(start, written[index])
        return [(times[groups[i].saved_at], written[i], starts[i], needs[i]) for i in order]

    def _pinned(self, where: list[Where], moved: list[int]) -> int:
        """Highest use of pinned memory, estimated."""
        s = self.s
        groups = s.timeline.groups
        times = s.seconds
        moments: list[float] = []
        amounts: list[int] = []
        on_disk = [index for index in moved if where[index] is Where.DISK]
        order = sorted(on_disk, key=lambda i: groups[i].saved_at)
        for index, journey in zip(order, self._journeys(on_disk, times), strict=True):
            moments += [*journey]
            amounts += [s.bytes[index], -s.bytes[index]] * 2
        for index in moved:
            if where[index] is Where.HOST:
                moments += [times[groups[index].saved_at], times[groups[index].released_after]]
                amounts += [s.bytes[index], -s.bytes[index]]
        sizes = np.array(amounts)
        levels = np.cumsum(sizes[np.lexsort((-sizes, np.array(moments)))])
        return int(levels.max(initial=0))

    # ------------------------------------------------------------------ undoing what does not help

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
        s = self.s
        groups = s.timeline.groups
        where = list(schedule.where)
        memory = np.array(schedule.memory)
        _, needed, _ = s.times(where)
        cost = {Where.RECOMPUTE: 0, Where.DISK: 1, Where.HOST: 2}
        moved = [i for i, place in enumerate(where) if place is not Where.KEEP]

        def order(index: int) -> tuple[int, float, int]:
            if where[index] is Where.RECOMPUTE:
                return (0, -groups[index].recompute_seconds, index)
            return (cost[where[index]], -float(s.bytes[index]), index)

        for index in sorted(moved, key=order):
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


def _or_last(tick: int | None, last: int) -> int:
    return last if tick is None else tick
