# SPDX-License-Identifier: Apache-2.0
"""From a measured step, rates and limits to a plan: a search over ceilings of memory and places.

Pure computation. For a ceiling, :mod:`ssdtrain.selecting` says which groups go and
:mod:`ssdtrain.schedule` when; the lowest ceiling whose step is fast enough wins, and single groups
are then exchanged as long as that helps.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from .needs import effective_needs
from .plan import GroupPlan, Limits, Plan, Where
from .schedule import Margins, Schedule, Scheduler
from .selecting import RecomputeMode, Selector
from .simulate import keep_everything, simulate
from .sizes import size
from .timeline import Rates, Timeline

__all__ = ["kept_plan", "optimise"]

DEFAULT_SLOWDOWN = 0.02
# A plan that lowers the peak by less than this fraction is not worth its transfers.
LEAST_GAIN = 0.005
# Ceilings are told apart to this fraction of the peak.
_RESOLUTION = 0.001
# Ticks that the improvement may play in all: bounds the time of planning, the same everywhere.
_TICKS_OF_IMPROVEMENT = 250_000
# Searches with less time or pinned memory, when the simulation found the first result to take more.
_CORRECTIONS = 5
_MODES: tuple[RecomputeMode, ...] = ("none", "late", "all")

# What to compute again, and whether the drive's lane is filled first.
_Way = tuple[RecomputeMode, bool]


def optimise(
    timeline: Timeline, rates: Rates, limits: Limits, margins: Margins | None = None
) -> Plan:
    """Make a plan.

    Parameters
    ----------
    timeline : Timeline
    rates : Rates
    limits : Limits
    margins : Margins, optional
        Safety in time of each transfer.

    Returns
    -------
    Plan
        With prediction, and notes on limits that are out of reach. All groups are kept if nothing
        is gained by moving any.

    Raises
    ------
    ValueError
        If a limit is negative.
    """
    _check(limits)
    return _Search(timeline, rates, limits, margins or Margins()).plan()


def kept_plan(timeline: Timeline) -> Plan:
    """Return the plan by which nothing moves."""
    groups = tuple(GroupPlan(group.nbytes, label=group.label) for group in timeline.groups)
    return Plan(groups, keep_everything(timeline), timeline.signature)


def _check(limits: Limits) -> None:
    for name in (
        "max_memory",
        "max_slowdown",
        "host_bytes",
        "staging_bytes",
        "disk_bytes",
        "write_bytes",
    ):
        value = getattr(limits, name)
        if value is not None and not value >= 0:
            raise ValueError(f"{name} is {value}; it must be at least 0")


class _Search:
    def __init__(self, timeline: Timeline, rates: Rates, limits: Limits, margins: Margins) -> None:
        self.timeline = timeline
        self.rates = rates
        self.limits = limits
        self.notes: list[str] = []
        recipes = [i for i, group in enumerate(timeline.groups) if group.recipe is not None]
        try:
            effective_needs(timeline, recipes)
        except ValueError as error:
            self.notes.append(f"nothing is computed again: {error}")
            limits = dataclasses.replace(limits, allow_recompute=False)
        self.scheduler = Scheduler(timeline, rates, margins)
        self.selector = Selector(self.scheduler, limits)
        self.keep = keep_everything(timeline)
        disk_too = self.selector.placer.disk_allowed and not self.scheduler.direct
        self.ways: list[_Way] = [
            (mode, paced)
            for paced in ((False, True) if disk_too else (False,))
            for mode in (_MODES if self.selector.cheap else _MODES[:1])
        ]
        self.evaluations = self.budget = max(
            _TICKS_OF_IMPROVEMENT // max(len(timeline.ticks), 1), 20
        )

    def plan(self) -> Plan:
        limits = self.limits
        slowdown = limits.max_slowdown
        if slowdown is None and limits.max_memory is None:
            slowdown = DEFAULT_SLOWDOWN
        # Sums in another order differ in the last digits.
        allowed = math.inf if slowdown is None else self.timeline.seconds * (1 + slowdown + 1e-9)
        keep = kept_plan(self.timeline)
        if not self.timeline.groups:
            return keep
        if limits.max_memory is None:
            best = self._settled(self._lowest, allowed)
            gain = 0 if best is None else self.keep.peak_bytes - _peak(best)
            if best is None or gain < LEAST_GAIN * self.keep.peak_bytes:
                return self._with_notes(keep)
            return self._with_notes(best)
        if self.keep.peak_bytes <= limits.max_memory:
            return self._with_notes(keep)
        ceiling = limits.max_memory
        best = self._settled(lambda _: self._fastest_below(ceiling), math.inf)
        if best is None:
            best = self._settled(self._lowest, math.inf)
            reached = self.keep.peak_bytes if best is None else _peak(best)
            self.notes.append(self._out_of_reach(limits.max_memory, reached))
            if best is None:
                return self._with_notes(keep)
        if limits.max_slowdown is not None and _seconds(best) > allowed:
            self.notes.append(
                f"max_slowdown={limits.max_slowdown:g} is exceeded: max_memory needs"
                f" {_seconds(best) / self.timeline.seconds - 1:.1%}"
            )
        return self._with_notes(best)

    def _with_notes(self, plan: Plan) -> Plan:
        return dataclasses.replace(plan, notes=tuple(self.notes))

    def _out_of_reach(self, wanted: int, reached: int) -> str:
        others = max(self.scheduler.others)
        text = (
            f"max_memory={size(wanted)} is out of reach: the lowest peak found is {size(reached)}"
        )
        if others > wanted:
            return (
                f"{text}; {size(others)} are allocated by others than saved tensors:"
                " a smaller batch, or a sharded model, would be needed"
            )
        return f"{text}; more host or disk budget, recomputation or a smaller batch would be needed"

    # ------------------------------------------------------------------ searches

    def _lowest(self, allowed: float) -> Schedule | None:
        """Return the schedule of the lowest peak within a time, or None."""
        nothing = self.scheduler.schedule([Where.KEEP] * len(self.timeline.groups), math.inf)
        starts = [nothing]
        for way in self.ways:
            start = self._lowest_by(way, allowed)
            if start is not None and start.where not in [other.where for other in starts]:
                starts.append(start)
        improved = []
        for start in sorted(starts, key=_peak_then_seconds):
            self.budget = self.evaluations // len(starts)
            improved.append(self._improve_peak(start, allowed))
        best = min(improved, key=_peak_then_seconds)
        if best.peak >= nothing.peak:
            return None
        # At that peak there may be a faster way, with less that moves.
        found = [self._attempt(best.peak, way) for way in self.ways]
        found.append(self._trimmed(best, best.peak))
        fitting = [s for s in found if s is not None and s.peak <= best.peak]
        return min(fitting, key=lambda s: s.seconds)

    def _lowest_by(self, way: _Way, allowed: float) -> Schedule | None:
        """Return the schedule of the lowest peak that one way of choosing groups leads to."""
        high = self.keep.peak_bytes
        low = max(self.scheduler.others)
        best: Schedule | None = None
        resolution = max(int(_RESOLUTION * high), 1)
        while high - low > resolution:
            middle = (high + low) // 2
            found = self._attempt(middle, way)
            if found is None or found.peak > middle or found.seconds > allowed:
                low = middle
            else:
                best = found
                high = found.peak
        return best

    def _fastest_below(self, ceiling: int) -> Schedule | None:
        """Return the fastest schedule found below a ceiling, or None."""
        found = [self._attempt(ceiling, way) for way in self.ways]
        fitting = [s for s in found if s is not None and s.peak <= ceiling]
        self.budget = self.evaluations
        if fitting:
            best = min(fitting, key=lambda s: s.seconds)
        else:
            nothing = self.scheduler.schedule([Where.KEEP] * len(self.timeline.groups), math.inf)
            best = self._improve_peak(nothing, math.inf, ceiling)
            if best.peak > ceiling:
                return None
        return self._improve_time(best, ceiling)

    def _attempt(self, ceiling: int, way: _Way) -> Schedule | None:
        mode, paced = way
        where = self.selector.select(ceiling, mode, paced=paced)
        if where is None:
            return None
        found = self.scheduler.schedule(where, ceiling)
        return found if found.peak > ceiling else self._trimmed(found, ceiling)

    def _trimmed(self, found: Schedule, ceiling: int) -> Schedule:
        """Return the schedule without what does not help, if that is no slower."""
        trimmed = self.selector.trim(found, ceiling)
        if trimmed == found.where:
            return found
        again = self.scheduler.schedule(trimmed, ceiling)
        return again if again.peak <= ceiling and again.seconds <= found.seconds else found

    # ------------------------------------------------------------------ single groups

    def _improve_peak(self, start: Schedule, allowed: float, enough: int | None = None) -> Schedule:
        """Exchange groups as long as the peak falls."""
        best = start
        improving = True
        while improving and self.budget > 0 and (enough is None or best.peak > enough):
            improving = False
            for where in self._neighbours(best):
                if self.budget <= 0:
                    break
                found = self.scheduler.schedule(where, best.peak - 1)
                if found.peak < best.peak and found.seconds <= allowed:
                    best = found
                    improving = True
                    break
        return best

    def _improve_time(self, best: Schedule, ceiling: int) -> Schedule:
        """Exchange groups as long as the step gets faster."""
        ideal = self.timeline.seconds
        improving = True
        while improving and self.budget > 0 and best.seconds > ideal * (1 + 1e-4):
            improving = False
            for where in self._neighbours(best):
                if self.budget <= 0:
                    break
                found = self.scheduler.schedule(where, ceiling)
                if found.peak <= ceiling and found.seconds < best.seconds * (1 - 1e-6):
                    best = found
                    improving = True
                    break
        return best

    def _neighbours(self, schedule: Schedule) -> Iterator[list[Where]]:
        """Yield placements with one group, or two, at another place, what looks best first."""
        groups = self.timeline.groups
        peak_at = int(np.argmax(schedule.memory))
        where = schedule.where
        entering = [
            (index, place)
            for index, group in enumerate(groups)
            if where[index] is Where.KEEP and group.saved_at < peak_at <= group.released_after + 1
            for place in self._places(index)
        ]
        entering.sort(key=lambda change: -groups[change[0]].nbytes)
        leaving = [index for index, place in enumerate(where) if place is not Where.KEEP]
        for index, place in entering:
            yield from self._changed(where, {index: place})
        for index in leaving:
            for place in (Where.KEEP, *self._places(index)):
                if place is not where[index]:
                    yield from self._changed(where, {index: place})
        for index, place in entering:
            for other in leaving:
                for instead in (Where.KEEP, *self._places(other)):
                    if instead is not where[other]:
                        yield from self._changed(where, {index: place, other: instead})
        for index, place in entering:
            for other, second in entering:
                if other > index:
                    yield from self._changed(where, {index: place, other: second})

    def _places(self, index: int) -> list[Where]:
        places = []
        if self.selector.can_move[index]:
            places.append(Where.HOST)
        if self.selector.can_recompute[index]:
            places.append(Where.RECOMPUTE)
        return places

    def _changed(self, where: Sequence[Where], changes: dict[int, Where]) -> Iterator[list[Where]]:
        self.budget -= 1
        placed = self.selector.placer.change(where, changes)
        if placed is not None:
            yield placed

    # ------------------------------------------------------------------ the last word

    def _settled(self, search: Callable[[float], Schedule | None], allowed: float) -> Plan | None:
        """Search, simulate what was found, and search with less where it takes too much.

        Schedules take lanes as independent and pinned memory as estimated; the simulation does not.
        """
        within = allowed
        pinned = self.selector.placer.pinned_ceiling
        for attempt in range(1, _CORRECTIONS + 1):
            found = search(within)
            if found is None:
                return None
            plan = found.plan(self.timeline)
            played = simulate(self.timeline, self.rates, plan).prediction
            late = played.seconds - allowed
            over = played.host_bytes - self.limits.host_bytes
            if late <= 0 and over <= 0:
                return dataclasses.replace(plan, prediction=played)
            if late > 0:
                within -= 1.1 * attempt * late
            if over > 0:
                pinned -= int(1.1 * over)
                self.selector.placer.pinned_ceiling = max(pinned, 0)
        return None


def _peak_then_seconds(schedule: Schedule) -> tuple[int, float]:
    return schedule.peak, schedule.seconds


def _peak(plan: Plan) -> int:
    assert plan.prediction is not None
    return plan.prediction.peak_bytes


def _seconds(plan: Plan) -> float:
    assert plan.prediction is not None
    return plan.prediction.seconds
