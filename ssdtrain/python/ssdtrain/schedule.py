# SPDX-License-Identifier: Apache-2.0
"""When to drop and to load, for given places of the groups and a ceiling of memory.

Not which groups go: that is :mod:`ssdtrain.selecting`. Lanes are taken as independent here, at
their slower rate where both are known to be busy; :mod:`ssdtrain.simulate` has the last word.
"""

from __future__ import annotations

import bisect
import itertools
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .needs import effective_needs
from .plan import GroupPlan, Plan, Where
from .simulate import kept_memory, other_memory
from .timeline import Rates, Timeline

__all__ = ["Margins", "Schedule", "Scheduler"]


@dataclass(frozen=True, slots=True)
class Margins:
    """Safety in time: of a transfer's duration, and on top of it, in transfers' overheads."""

    fraction: float = 0.1
    overheads: float = 2.0


@dataclass(slots=True)
class Schedule:
    """Ticks of a placement.

    Attributes
    ----------
    where : list of Where
        As asked for; what would have gone in vain is KEEP.
    drop_at, read_at, load_at : list of (int or None)
    seconds : float
        Of the step.
    memory : list of int
        Highest allocated bytes before each tick, and after the last.
    peak : int
    """

    where: list[Where]
    drop_at: list[int | None]
    read_at: list[int | None]
    load_at: list[int | None]
    seconds: float
    memory: list[int]
    peak: int

    def plan(self, timeline: Timeline) -> Plan:
        """Return it as a plan without a prediction."""
        groups = tuple(
            GroupPlan(
                nbytes=group.nbytes,
                where=self.where[i],
                drop_at=self.drop_at[i],
                read_at=self.read_at[i],
                load_at=self.load_at[i],
                label=group.label,
            )
            for i, group in enumerate(timeline.groups)
        )
        return Plan(groups, signature=timeline.signature)


class Scheduler:
    """Schedules for one timeline.

    Parameters
    ----------
    timeline : Timeline
    rates : Rates
    margins : Margins
    """

    def __init__(self, timeline: Timeline, rates: Rates, margins: Margins) -> None:
        self.timeline = timeline
        self.rates = rates
        self.margins = margins
        self.direct = timeline.device_type == "cpu"
        out, back = ("write", "read") if self.direct else ("d2h", "h2d")
        self.out_rate = _fastest(rates, out)
        self.back_rate = _fastest(rates, back)
        self.out_busy = getattr(rates, out)
        self.back_busy = getattr(rates, back)
        self.bytes = [group.nbytes for group in timeline.groups]
        self.frees = [group.frees for group in timeline.groups]
        self.others: list[int] = other_memory(timeline).tolist()
        self.kept: NDArray[np.int64] = kept_memory(timeline)
        self.seconds = [tick.seconds for tick in timeline.ticks]
        # Most questions in a row are about the same recomputations.
        self._last_recomputed: tuple[int, ...] = ()
        self._last_times: tuple[list[float], list[int | None], list[int]] | None = None
        self._saved = [tick.group if tick.kind == "save" else -1 for tick in timeline.ticks]

    def times(self, where: Sequence[Where]) -> tuple[list[float], list[int | None], list[int]]:
        """Computation's time at each tick with recomputations, and the groups' needs and ends."""
        recomputed = tuple([i for i, place in enumerate(where) if place is Where.RECOMPUTE])
        if recomputed != self._last_recomputed or self._last_times is None:
            self._last_recomputed = recomputed
            self._last_times = self._times(recomputed)
        times, needed, released = self._last_times
        return times, list(needed), list(released)

    def _times(
        self, recomputed: tuple[int, ...]
    ) -> tuple[list[float], list[int | None], list[int]]:
        needed, released = effective_needs(self.timeline, recomputed)
        if not recomputed:
            return self.seconds, needed, released
        extra = np.zeros(len(self.seconds) + 1)
        for index in recomputed:
            need = needed[index]
            if need is not None:
                # A tick's own recomputations come after what it waits for.
                extra[need + 1] += self.timeline.groups[index].recompute_seconds
        times: list[float] = (np.array(self.seconds) + np.cumsum(extra)[:-1]).tolist()
        return times, needed, released

    def margin(self, duration: float) -> float:
        """Seconds of safety for a transfer."""
        return self.margins.fraction * duration + self.margins.overheads * self.rates.overhead

    def latest_loads(
        self,
        where: Sequence[Where],
        times: Sequence[float],
        needed: Sequence[int | None],
    ) -> tuple[list[int], list[int], list[int]]:
        """Return the groups that come back in the order of their needs, and their latest ticks.

        Returns
        -------
        order : list of int
        load_at, read_at : list of int
            For each group of ``order``; read_at equals load_at where nothing is read.
        """
        moved = [
            (need, index)
            for index, need in enumerate(needed)
            if need is not None and where[index] in (Where.HOST, Where.DISK)
        ]
        moved.sort()
        saved = [group.saved_at for group in self.timeline.groups]
        last_out = 0.0
        for _, index in moved:
            last_out = max(last_out, times[saved[index]])
            last_out += self.bytes[index] / self.out_rate
        order = [index for _, index in moved]
        load_at = [0] * len(order)
        read_at = [0] * len(order)
        start = read_start = float("inf")
        overhead = self.rates.overhead
        for position in range(len(moved) - 1, -1, -1):
            need, index = moved[position]
            deadline = times[need]
            rate = self.back_rate if deadline > last_out else self.back_busy
            duration = overhead + self.bytes[index] / rate
            start = min(deadline - self.margin(duration), start) - duration
            tick = bisect.bisect_right(times, start) - 1
            load_at[position] = read_at[position] = min(max(tick, saved[index]), need)
            if where[index] is Where.DISK and not self.direct:
                duration = overhead + self.bytes[index] / self.rates.read
                begin = times[load_at[position]]
                read_start = min(begin - self.margin(duration), read_start) - duration
                tick = bisect.bisect_right(times, read_start) - 1
                read_at[position] = min(max(tick, saved[index]), load_at[position])
        return order, load_at, read_at

    def schedule(self, where: Sequence[Where], ceiling: float) -> Schedule:
        """Return ticks that hold the memory under a ceiling at the least time, if they can.

        Parameters
        ----------
        where : sequence of Where
        ceiling : float
            Bytes. Computation waits for copies, and loads wait for room, to stay below.

        Returns
        -------
        Schedule
            Its ``peak`` exceeds the ceiling if there was no way.
        """
        return _Run(self, list(where), ceiling).run()


class _Run:
    def __init__(self, scheduler: Scheduler, where: list[Where], ceiling: float) -> None:
        self.s = scheduler
        self.where = where
        self.ceiling = ceiling
        count = len(where)
        self.drop_at: list[int | None] = [None] * count
        self.read_at: list[int | None] = [None] * count
        self.load_at: list[int | None] = [None] * count
        self.out_end = [0.0] * count
        self.written = [0.0] * count
        self.back_end = [0.0] * count
        self.read_end = [0.0] * count
        self.outstanding: deque[int] = deque()
        # Copied, and due to come back before they had to leave.
        self.idle: deque[int] = deque()
        self.resident = 0
        self.out_free = self.back_free = self.write_free = self.read_free = 0.0

    def run(self) -> Schedule:
        s = self.s
        where = self.where
        times, needed, released = s.times(where)
        order, latest, reads = s.latest_loads(where, times, needed)
        ticks = len(s.seconds)
        needs_at: list[list[int]] = [[] for _ in range(ticks)]
        frees_after: list[list[int]] = [[] for _ in range(ticks)]
        for index, place in enumerate(where):
            frees_after[released[index]].append(index)
            need = needed[index]
            if need is not None and place is not Where.KEEP:
                needs_at[need].append(index)
        reads_at: dict[int, list[int]] = {}
        for position, index in enumerate(order):
            if where[index] is Where.DISK and not s.direct:
                reads_at.setdefault(reads[position], []).append(index)
        committed = self._least_memory(needed, released)
        present = [False] * len(where)
        memory = [0] * (ticks + 1)
        if ticks:
            memory[0] = s.others[0]
        now = shift = 0.0
        pending = 0
        # Due to be read, but not yet gone.
        unread: list[int] = []
        # Due to come back, in the order of their needs.
        overdue: dict[int, None] = {}
        for k in range(ticks):
            now = times[k] + shift
            if k:
                for index in frees_after[k - 1]:
                    if present[index]:
                        self.resident -= s.bytes[index]
                        present[index] = False
            saved = s._saved[k]
            if saved >= 0:
                if where[saved] is not Where.RECOMPUTE or not s.frees[saved]:
                    self.resident += s.bytes[saved]
                    present[saved] = True
                if where[saved] in (Where.HOST, Where.DISK):
                    self._store(saved, now)
            # What must be there now, whatever the ceiling.
            for index in needs_at[k]:
                if where[index] is Where.RECOMPUTE:
                    if not present[index]:
                        self.resident += s.bytes[index]
                        present[index] = True
                elif present[index] and self.load_at[index] is None:
                    # Asked for before it left: it would go in vain.
                    where[index] = Where.KEEP
            while self.outstanding and (
                where[self.outstanding[0]] is Where.KEEP or self._safe(self.outstanding[0]) <= now
            ):
                if self.outstanding[0] in overdue:
                    self.idle.append(self.outstanding.popleft())
                else:
                    self._drop(k, self.outstanding.popleft(), present)
            room = self.ceiling - s.others[k + 1]
            forced = [i for i in needs_at[k] if not present[i] and where[i] is not Where.KEEP]
            incoming = sum(s.bytes[index] for index in forced)
            while (self.idle or self.outstanding) and self.resident + incoming > room:
                index = (self.idle or self.outstanding).popleft()
                if where[index] is not Where.KEEP:
                    now = max(now, self.out_end[index])
                self._drop(k, index, present)
            unread += reads_at.get(k, ())
            if unread:
                for index in unread:
                    if not present[index]:
                        self._read(index, now, k)
                unread = [index for index in unread if present[index]]
            while pending < len(order) and latest[pending] <= k:
                # It stays in memory if it has not left yet, unless room is needed.
                overdue[order[pending]] = None
                pending += 1
            for index in [i for i in overdue if not present[i]]:
                need = needed[index]
                assert need is not None
                ahead = range(k + 1, need + 1)
                highest = max((committed[i] for i in ahead), default=0)
                if (
                    max(self.resident - room + self.ceiling, highest) + s.bytes[index]
                    > self.ceiling
                ):
                    break
                for i in ahead:
                    committed[i] += s.bytes[index]
                now = self._load(index, now, k, present)
                del overdue[index]
            for index in needs_at[k]:
                overdue.pop(index, None)
                if not present[index] and where[index] is not Where.KEEP:
                    now = self._load(index, now, k, present)
                now = max(now, self.back_end[index])
            shift = now - times[k]
            memory[k + 1] = s.others[k + 1] + self.resident
        for index, place in enumerate(where):
            if place in (Where.HOST, Where.DISK) and self.drop_at[index] is None:
                where[index] = Where.KEEP
            if where[index] is Where.KEEP:
                self.drop_at[index] = self.read_at[index] = self.load_at[index] = None
        return self._result(where, shift, needed, memory)

    def _least_memory(self, needed: list[int | None], released: list[int]) -> list[int]:
        """Memory before each tick, were all that moves away from its save to its need."""
        change = [0] * (len(self.s.seconds) + 2)
        for index, place in enumerate(self.where):
            begin: int | None = self.s.timeline.groups[index].saved_at
            if place is not Where.KEEP and self.s.frees[index]:
                begin = needed[index]
            if begin is not None:
                change[begin + 1] += self.s.bytes[index]
                change[released[index] + 2] -= self.s.bytes[index]
        levels = itertools.accumulate(change[:-1])
        return [others + level for others, level in zip(self.s.others, levels, strict=True)]

    def _result(
        self, where: list[Where], shift: float, needed: list[int | None], memory: list[int]
    ) -> Schedule:
        groups = self.s.timeline.groups
        recomputing = sum(
            groups[index].recompute_seconds
            for index, place in enumerate(where)
            if place is Where.RECOMPUTE and needed[index] is not None
        )
        seconds = self.s.timeline.seconds + recomputing + shift
        peak = max(memory, default=0)
        return Schedule(where, self.drop_at, self.read_at, self.load_at, seconds, memory, peak)

    def _safe(self, index: int) -> float:
        duration = self.s.bytes[index] / self.s.out_rate
        return self.out_end[index] + self.s.margin(duration)

    def _store(self, index: int, now: float) -> None:
        s = self.s
        begin = max(now, self.out_free)
        rate = s.out_rate if self.back_free <= begin else s.out_busy
        self.out_free = begin + s.rates.overhead + s.bytes[index] / rate
        self.out_end[index] = self.out_free
        self.outstanding.append(index)
        if self.where[index] is Where.DISK and not s.direct:
            begin = max(self.out_free, self.write_free)
            self.write_free = begin + s.rates.overhead + s.bytes[index] / s.rates.write
            self.written[index] = self.write_free

    def _drop(self, tick: int, index: int, present: list[bool]) -> None:
        if self.where[index] is Where.KEEP or not present[index]:
            return
        self.drop_at[index] = tick
        if self.s.frees[index]:
            self.resident -= self.s.bytes[index]
            present[index] = False

    def _read(self, index: int, now: float, tick: int) -> None:
        if self.where[index] is Where.KEEP or self.read_at[index] is not None:
            return
        begin = max(now, self.read_free, self.written[index])
        self.read_free = begin + self.s.rates.overhead + self.s.bytes[index] / self.s.rates.read
        self.read_end[index] = self.read_free
        self.read_at[index] = tick

    def _load(self, index: int, now: float, tick: int, present: list[bool]) -> float:
        """Start a load; the time at which computation goes on."""
        s = self.s
        self.load_at[index] = tick
        self.resident += s.bytes[index]
        present[index] = True
        if self.where[index] is Where.DISK and not s.direct:
            self._read(index, now, tick)
            now = max(now, self.read_end[index])
        begin = max(now, self.back_free, self.out_end[index])
        rate = s.back_rate if self.out_free <= begin else s.back_busy
        self.back_free = begin + s.rates.overhead + s.bytes[index] / rate
        self.back_end[index] = self.back_free
        return now


def _fastest(rates: Rates, lane: str) -> float:
    return float(max(getattr(rates, lane), getattr(rates, f"{lane}_alone")))
