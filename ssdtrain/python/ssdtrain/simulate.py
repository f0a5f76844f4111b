# SPDX-License-Identifier: Apache-2.0
"""Plays a plan on a timeline: what the engine does at each tick, in simulated time.

Decides nothing (:mod:`ssdtrain.optimise` does) and touches no device.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from .lanes import LaneName, Lanes, LaneTransfer
from .needs import effective_needs
from .plan import Plan, Prediction, Where
from .timeline import Rates, Timeline

__all__ = ["Simulation", "Wait", "keep_everything", "kept_memory", "simulate"]


@dataclass(frozen=True, slots=True)
class Wait:
    """Computation stood still.

    Attributes
    ----------
    tick : int
    group : int
        The group whose transfer was waited for.
    begin, seconds : float
    cause : {"drop", "load", "read"}
        Its copy out, its way back to the device, or from disk to the pinned buffer.
    """

    tick: int
    group: int
    begin: float
    seconds: float
    cause: Literal["drop", "load", "read"]


@dataclass(frozen=True)
class Simulation:
    """A step under a plan.

    Attributes
    ----------
    prediction : Prediction
    tick_seconds : ndarray of float64, shape (ticks,)
        When computation goes on after each tick.
    between : ndarray of int64, shape (ticks + 1,)
        Highest allocated bytes before each tick, since the one before; last: after the last tick.
    after : ndarray of int64, shape (ticks,)
        Allocated bytes when a tick's drops and loads are done.
    transfers : tuple of LaneTransfer
    waits : tuple of Wait
    recomputed : tuple of (int, int, float)
        Group, tick and begin in seconds of each recomputation.
    disk_peak : int
        Bytes on disk at most.
    """

    prediction: Prediction
    tick_seconds: NDArray[np.float64]
    between: NDArray[np.int64]
    after: NDArray[np.int64]
    transfers: tuple[LaneTransfer, ...]
    waits: tuple[Wait, ...]
    recomputed: tuple[tuple[int, int, float], ...]
    disk_peak: int


def kept_memory(timeline: Timeline) -> NDArray[np.int64]:
    """Highest allocated bytes before each tick, and after the last, with everything kept.

    Returns
    -------
    ndarray of int64, shape (ticks + 1,)
    """
    change = np.zeros(len(timeline.ticks) + 2, np.int64)
    for group in timeline.groups:
        change[group.saved_at + 1] += group.nbytes
        change[group.released_after + 2] -= group.nbytes
    return np.asarray(np.cumsum(change)[:-1] + other_memory(timeline))


def other_memory(timeline: Timeline) -> NDArray[np.int64]:
    """Bytes of no group: highest before each tick and after the last, shape (ticks + 1,)."""
    peaks = np.array([tick.others_peak for tick in timeline.ticks] + [timeline.tail_peak], np.int64)
    at_ticks = np.array([tick.others for tick in timeline.ticks], np.int64)
    # What is there at a tick is still there right after it.
    np.maximum(peaks[1:], at_ticks, out=peaks[1:])
    return peaks


def keep_everything(timeline: Timeline) -> Prediction:
    """Return the prediction for a step in which nothing moves."""
    peak = int(kept_memory(timeline).max())
    return Prediction(timeline.seconds, timeline.seconds, peak, peak)


def simulate(timeline: Timeline, rates: Rates, plan: Plan) -> Simulation:
    """Play a plan on a timeline.

    Parameters
    ----------
    timeline : Timeline
    rates : Rates
    plan : Plan
        Its ticks are taken as they are; ``plan.check(timeline)`` tells whether they make sense.

    Returns
    -------
    Simulation

    Raises
    ------
    ValueError
        If the plan has another number of groups, or uses a lane whose rate is 0.
    """
    if len(plan.groups) != len(timeline.groups):
        raise ValueError(
            f"the plan is for {len(plan.groups)} groups, the step has {len(timeline.groups)}"
        )
    return _Player(timeline, rates, plan).play()


class _Player:
    """The state of one simulated step."""

    def __init__(self, timeline: Timeline, rates: Rates, plan: Plan) -> None:
        self.timeline = timeline
        self.plans = plan.groups
        self.lanes = Lanes(rates)
        self.contention = rates.contention
        self.direct = timeline.device_type == "cpu"
        recomputed = [i for i, g in enumerate(plan.groups) if g.where is Where.RECOMPUTE]
        self.needed, self.released = effective_needs(timeline, recomputed)
        count = len(timeline.groups)
        self.now = 0.0
        self.resident = 0
        self.in_memory = [False] * count
        self.stores: list[LaneTransfer | None] = [None] * count
        self.writes: list[LaneTransfer | None] = [None] * count
        self.reads: list[LaneTransfer | None] = [None] * count
        self.loads: list[LaneTransfer | None] = [None] * count
        self.loaded = [False] * count
        self.used = [False] * count
        self.waits: list[Wait] = []
        self.recomputed: list[tuple[int, int, float]] = []
        self.tick = 0
        self._index()

    def _index(self) -> None:
        ticks = len(self.timeline.ticks)
        self.drops_at: list[list[int]] = [[] for _ in range(ticks)]
        self.reads_at: list[list[int]] = [[] for _ in range(ticks)]
        self.loads_at: list[list[int]] = [[] for _ in range(ticks)]
        self.needs_at: list[list[int]] = [[] for _ in range(ticks)]
        self.frees_after: list[list[int]] = [[] for _ in range(ticks)]
        for index, plan in enumerate(self.plans):
            self.frees_after[self.released[index]].append(index)
            need = self.needed[index]
            if need is not None:
                self.needs_at[need].append(index)
            if plan.where not in (Where.HOST, Where.DISK):
                continue
            if plan.drop_at is not None:
                self.drops_at[plan.drop_at].append(index)
            if plan.read_at is not None and plan.where is Where.DISK and not self.direct:
                self.reads_at[plan.read_at].append(index)
            if plan.load_at is not None:
                self.loads_at[plan.load_at].append(index)
        for ahead in (*self.loads_at, *self.reads_at):
            ahead.sort(key=self._urgency)

    def _urgency(self, index: int) -> tuple[int, int]:
        """Order of loads that begin at one tick."""
        need = self.needed[index]
        return (len(self.timeline.ticks) if need is None else need, -index)

    def play(self) -> Simulation:
        timeline = self.timeline
        others = other_memory(timeline)
        count = len(timeline.ticks)
        between = np.zeros(count + 1, np.int64)
        after = np.zeros(count, np.int64)
        seconds = np.zeros(count)
        late = 0.0
        for k, tick in enumerate(timeline.ticks):
            self.tick = k
            self._compute(tick.seconds + late)
            between[k] = others[k] + self.resident
            if k:
                for index in self.frees_after[k - 1]:
                    self._release(index)
            if tick.kind == "save":
                self._save(tick.group)
            for index in self.drops_at[k]:
                self._drop(index)
            for index in self.reads_at[k]:
                self._read(index)
            for index in self.loads_at[k]:
                self._load(index)
            for index in self.needs_at[k]:
                self._need(index)
            after[k] = tick.others + self.resident
            seconds[k] = self.now
            late = self.now - tick.seconds
        between[count] = others[count] + self.resident
        self._compute(timeline.seconds + late)
        return self._result(self.now, seconds, between, after)

    def _compute(self, until: float) -> None:
        """Computation until a second, or longer where copies are under way."""
        if self.contention:
            before = self.lanes.device_busy(self.now)
            until += self.contention * (self.lanes.device_busy(until) - before)
        self.now = until

    def _save(self, index: int) -> None:
        group, plan = self.timeline.groups[index], self.plans[index]
        self.resident += group.nbytes
        self.in_memory[index] = True
        if plan.where is Where.RECOMPUTE:
            self._give_back(index)
        elif plan.where in (Where.HOST, Where.DISK):
            first: LaneName = "write" if self.direct else "d2h"
            self.stores[index] = self.lanes.submit(first, index, group.nbytes, self.now)
            if plan.where is Where.DISK and not self.direct:
                self.writes[index] = self.lanes.submit(
                    "write", index, group.nbytes, self.now, self.stores[index]
                )

    def _drop(self, index: int) -> None:
        store = self.stores[index]
        if store is None or self.used[index] or not self.in_memory[index]:
            return
        self._wait(store, "drop")
        self._give_back(index)

    def _read(self, index: int) -> None:
        if not self.in_memory[index] and not self.used[index] and self.reads[index] is None:
            self.reads[index] = self.lanes.submit(
                "read", index, self.plans[index].nbytes, self.now, self.writes[index]
            )

    def _load(self, index: int) -> None:
        plan = self.plans[index]
        if self.in_memory[index] or self.used[index] or self.stores[index] is None:
            return
        self.resident += self.timeline.groups[index].nbytes
        self.in_memory[index] = self.loaded[index] = True
        after = self.stores[index]
        if plan.where is Where.DISK and not self.direct:
            self._read_now(index)
            after = self.reads[index]
            assert after is not None
            # The host starts the copy, and starts nothing more before the read has ended.
            self._wait(after, "read")
        lane: LaneName = "read" if self.direct else "h2d"
        self.loads[index] = self.lanes.submit(lane, index, plan.nbytes, self.now, after)

    def _read_now(self, index: int) -> None:
        if self.reads[index] is None:
            self.reads[index] = self.lanes.submit(
                "read", index, self.plans[index].nbytes, self.now, self.writes[index]
            )

    def _need(self, index: int) -> None:
        if self.used[index]:
            return
        group = self.timeline.groups[index]
        if self.plans[index].where is Where.RECOMPUTE and not self.in_memory[index]:
            for source in group.recompute_inputs:
                self._need(source)
            self.recomputed.append((index, self.tick, self.now))
            self.now += group.recompute_seconds
            self.resident += group.nbytes
            self.in_memory[index] = True
        self._load(index)
        self.used[index] = True
        load = self.loads[index]
        if load is not None:
            self._wait(load, "load")

    def _wait(self, transfer: LaneTransfer, cause: Literal["drop", "load", "read"]) -> None:
        end = self.lanes.finish(transfer)
        if end > self.now:
            self.waits.append(Wait(self.tick, transfer.group, self.now, end - self.now, cause))
            self.now = end

    def _give_back(self, index: int) -> None:
        # What something else keeps alive is served from there, with no transfer.
        if self.timeline.groups[index].frees:
            self.resident -= self.timeline.groups[index].nbytes
            self.in_memory[index] = False

    def _release(self, index: int) -> None:
        if self.in_memory[index]:
            self.resident -= self.timeline.groups[index].nbytes
            self.in_memory[index] = False
        self.used[index] = True

    def _result(
        self,
        end: float,
        seconds: NDArray[np.float64],
        between: NDArray[np.int64],
        after: NDArray[np.int64],
    ) -> Simulation:
        for transfer in self.lanes.transfers:
            self.lanes.finish(transfer)
        keep = keep_everything(self.timeline)
        written = sum(self.plans[t.group].nbytes for t in self.lanes.transfers if t.lane == "write")
        host, disk = self._use_of_tiers(seconds, end)
        prediction = Prediction(
            seconds=end,
            keep_seconds=keep.seconds,
            peak_bytes=int(between.max()),
            keep_peak_bytes=keep.peak_bytes,
            wait_seconds=sum(wait.seconds for wait in self.waits),
            recompute_seconds=sum(
                self.timeline.groups[index].recompute_seconds for index, _, _ in self.recomputed
            ),
            host_bytes=host,
            disk_bytes=written,
        )
        return Simulation(
            prediction,
            seconds,
            between,
            after,
            tuple(self.lanes.transfers),
            tuple(self.waits),
            tuple(self.recomputed),
            disk,
        )

    def _use_of_tiers(self, seconds: NDArray[np.float64], end: float) -> tuple[int, int]:
        """Highest use of pinned memory and of the disk."""
        host: list[tuple[float, int]] = []
        disk: list[tuple[float, int]] = []
        for index, plan in enumerate(self.plans):
            if self.stores[index] is None:
                continue
            group = self.timeline.groups[index]
            saved = float(seconds[group.saved_at])
            last = self.released[index]
            released = float(seconds[last + 1]) if last + 1 < len(seconds) else end
            where = disk if plan.where is Where.DISK else host
            where += [(saved, group.nbytes), (released, -group.nbytes)]
            write, read, load = self.writes[index], self.reads[index], self.loads[index]
            if write is not None:
                host += [(saved, group.nbytes), (_end(write), -group.nbytes)]
            if read is not None:
                begin = read.ready
                done = released if load is None else _end(load)
                host += [(begin, group.nbytes), (done, -group.nbytes)]
        return _highest(host), _highest(disk)


def _end(transfer: LaneTransfer) -> float:
    assert transfer.end is not None
    return transfer.end


def _highest(changes: list[tuple[float, int]]) -> int:
    # At equal times what is taken comes before what is given back.
    changes.sort(key=lambda change: (change[0], -change[1]))
    level = highest = 0
    for _, change in changes:
        level += change
        highest = max(highest, level)
    return highest
