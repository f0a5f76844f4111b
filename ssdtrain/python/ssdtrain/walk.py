# SPDX-License-Identifier: Apache-2.0
"""One walk through the ticks of a step below a ceiling of memory: what is dropped and loaded when.

The rules are :class:`Walk`'s; what is worked out beforehand is :mod:`ssdtrain.schedule`'s.
"""

from __future__ import annotations

import itertools
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .plan import GroupPlan, Plan, Where
from .timeline import Timeline

if TYPE_CHECKING:
    from .schedule import Scheduler

__all__ = ["Schedule", "Walk"]


@dataclass(slots=True)
class Schedule:
    """Ticks of a placement.

    Attributes
    ----------
    where : list of Where
        As asked for; what would have gone in vain is KEEP.
    drop_at, read_at, load_at, need_at : list of (int or None)
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
    need_at: list[int | None]
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
                need_at=self.need_at[i],
            )
            for i, group in enumerate(timeline.groups)
        )
        return Plan(groups, signature=timeline.signature)


class Walk:
    """Decides drops and loads tick by tick.

    Copies are dropped when they have ended, or earlier, while computation waits, where memory
    would pass the ceiling. Loads start at their latest moment, or later where there is no room.

    Parameters
    ----------
    scheduler : Scheduler
    where : list of Where
        Changed: what would go in vain becomes KEEP.
    ceiling : float
        Bytes.
    """

    def __init__(self, scheduler: Scheduler, where: list[Where], ceiling: float) -> None:
        self.s = s = scheduler
        self.where = where
        self.ceiling = ceiling
        count, ticks = len(where), len(s.seconds)
        self.drop_at: list[int | None] = [None] * count
        self.read_at: list[int | None] = [None] * count
        self.load_at: list[int | None] = [None] * count
        self.out_end = [0.0] * count
        self.written = [0.0] * count
        self.back_end = [0.0] * count
        self.read_end = [0.0] * count
        self.out_free = self.back_free = self.write_free = self.read_free = 0.0
        self.present = [False] * count
        self.resident = 0
        self.now = 0.0
        # On their way out, in order; and those that have ended, but are due to come back already:
        # they stay unless room is needed.
        self.outstanding: deque[int] = deque()
        self.idle: deque[int] = deque()
        # Due to be read, but not yet gone; due to come back, in the order of their needs.
        self.unread: list[int] = []
        self.overdue: dict[int, None] = {}
        self.times, self.needed, self.released = s.times(where)
        self.order, self.latest, reads = s.latest_loads(where, self.times, self.needed)
        self.begun = 0
        self.committed = self._least_memory(self.needed, self.released)
        self.needs_at: list[list[int]] = [[] for _ in range(ticks)]
        self.frees_after: list[list[int]] = [[] for _ in range(ticks)]
        for index, place in enumerate(where):
            self.frees_after[self.released[index]].append(index)
            need = self.needed[index]
            if need is not None and place is not Where.KEEP:
                self.needs_at[need].append(index)
        self.reads_at: dict[int, list[int]] = {}
        for position, index in enumerate(self.order):
            if where[index] is Where.DISK and not s.direct:
                self.reads_at.setdefault(reads[position], []).append(index)

    def run(self) -> Schedule:
        """Walk; the schedule."""
        s = self.s
        late = 0.0
        memory = s.others[:1]
        for k, time in enumerate(self.times):
            self.now = time + late
            if k:
                self._release(k - 1)
            saved = s.saved[k]
            if saved >= 0:
                self._save(saved)
            if self.needs_at[k]:
                self._settle_needs(k)
            room = self.ceiling - s.others[k + 1]
            self._drop_what_has_ended(k)
            if self.idle or self.outstanding:
                self._make_room(k, room)
            self._read_what_is_due(k)
            self._load_what_is_due(k, room)
            for index in self.needs_at[k]:
                self._need(k, index)
            late = self.now - time
            memory.append(s.others[k + 1] + self.resident)
        return self._result(late, memory)

    # ------------------------------------------------------------------ within a tick

    def _release(self, tick: int) -> None:
        for index in self.frees_after[tick]:
            if self.present[index]:
                self.resident -= self.s.bytes[index]
                self.present[index] = False

    def _save(self, index: int) -> None:
        place = self.where[index]
        if place is not Where.RECOMPUTE or not self.s.frees[index]:
            self.resident += self.s.bytes[index]
            self.present[index] = True
        if place in (Where.HOST, Where.DISK):
            self._store(index, self.now)

    def _settle_needs(self, k: int) -> None:
        """What is computed again now, and what is asked for before it left."""
        for index in self.needs_at[k]:
            if self.where[index] is Where.RECOMPUTE:
                if not self.present[index]:
                    self.resident += self.s.bytes[index]
                    self.present[index] = True
            elif self.present[index] and self.load_at[index] is None:
                # It would go in vain.
                self.where[index] = Where.KEEP

    def _drop_what_has_ended(self, k: int) -> None:
        outstanding = self.outstanding
        while outstanding and (
            self.where[outstanding[0]] is Where.KEEP or self._safe(outstanding[0]) <= self.now
        ):
            index = outstanding.popleft()
            if index in self.overdue:
                self.idle.append(index)
            else:
                self._drop(k, index)

    def _make_room(self, k: int, room: float) -> None:
        """Wait for copies until what must be there fits."""
        incoming = sum(
            self.s.bytes[index]
            for index in self.needs_at[k]
            if not self.present[index] and self.where[index] is not Where.KEEP
        )
        while (self.idle or self.outstanding) and self.resident + incoming > room:
            index = (self.idle or self.outstanding).popleft()
            if self.where[index] is not Where.KEEP:
                self.now = max(self.now, self.out_end[index])
            self._drop(k, index)

    def _read_what_is_due(self, k: int) -> None:
        self.unread += self.reads_at.get(k, ())
        if self.unread:
            for index in self.unread:
                if not self.present[index]:
                    self._read(index, k)
            self.unread = [index for index in self.unread if self.present[index]]

    def _load_what_is_due(self, k: int, room: float) -> None:
        while self.begun < len(self.order) and self.latest[self.begun] <= k:
            self.overdue[self.order[self.begun]] = None
            self.begun += 1
        if not self.overdue:
            return
        for index in [i for i in self.overdue if not self.present[i]]:
            need = self.needed[index]
            assert need is not None
            nbytes = self.s.bytes[index]
            ahead = range(k + 1, need + 1)
            if self.resident + nbytes > room or any(
                self.committed[i] + nbytes > self.ceiling for i in ahead
            ):
                return
            for i in ahead:
                self.committed[i] += nbytes
            self._load(index, k)
            del self.overdue[index]

    def _need(self, k: int, index: int) -> None:
        self.overdue.pop(index, None)
        if not self.present[index] and self.where[index] is not Where.KEEP:
            self._load(index, k)
        self.now = max(self.now, self.back_end[index])

    # ------------------------------------------------------------------ single groups

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
            rate = s.write_rate if self.read_free <= begin else s.rates.write
            self.write_free = begin + s.rates.overhead + s.bytes[index] / rate
            self.written[index] = self.write_free

    def _drop(self, tick: int, index: int) -> None:
        if self.where[index] is Where.KEEP or not self.present[index]:
            return
        self.drop_at[index] = tick
        if self.s.frees[index]:
            self.resident -= self.s.bytes[index]
            self.present[index] = False

    def _read(self, index: int, tick: int) -> None:
        if self.where[index] is Where.KEEP or self.read_at[index] is not None:
            return
        s = self.s
        begin = max(self.now, self.read_free, self.written[index])
        rate = s.read_rate if self.write_free <= begin else s.rates.read
        self.read_free = begin + s.rates.overhead + s.bytes[index] / rate
        self.read_end[index] = self.read_free
        self.read_at[index] = tick

    def _load(self, index: int, tick: int) -> None:
        s = self.s
        self.load_at[index] = tick
        self.resident += s.bytes[index]
        self.present[index] = True
        if self.where[index] is Where.DISK and not s.direct:
            self._read(index, tick)
            self.now = max(self.now, self.read_end[index])
        begin = max(self.now, self.back_free, self.out_end[index])
        rate = s.back_rate if self.out_free <= begin else s.back_busy
        self.back_free = begin + s.rates.overhead + s.bytes[index] / rate
        self.back_end[index] = self.back_free

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

    def _contention(self) -> float:
        """Seconds by which computation falls behind because of copies."""
        s = self.s
        if not s.rates.contention:
            return 0.0
        out = sum(s.bytes[i] for i, tick in enumerate(self.drop_at) if tick is not None)
        back = sum(s.bytes[i] for i, tick in enumerate(self.load_at) if tick is not None)
        return s.rates.contention * (out / s.out_rate + back / s.back_rate) if out else 0.0

    def _result(self, late: float, memory: list[int]) -> Schedule:
        groups = self.s.timeline.groups
        for index, place in enumerate(self.where):
            if place in (Where.HOST, Where.DISK) and self.drop_at[index] is None:
                self.where[index] = Where.KEEP
            if self.where[index] is Where.KEEP:
                self.drop_at[index] = self.read_at[index] = self.load_at[index] = None
        recomputing = sum(
            groups[index].recompute_seconds
            for index, place in enumerate(self.where)
            if place is Where.RECOMPUTE and self.needed[index] is not None
        )
        need_at = [
            need if place in (Where.HOST, Where.DISK) else None
            for need, place in zip(self.needed, self.where, strict=True)
        ]
        return Schedule(
            self.where,
            self.drop_at,
            self.read_at,
            self.load_at,
            need_at,
            self.s.timeline.seconds + recomputing + late + self._contention(),
            memory,
            max(memory),
        )
