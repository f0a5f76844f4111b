# SPDX-License-Identifier: Apache-2.0
"""When to drop and to load, for given places of the groups and a ceiling of memory.

Not which groups go: that is :mod:`ssdtrain.selecting`. Lanes are taken as independent here, at
their slower rate where both are known to be busy; :mod:`ssdtrain.simulate` has the last word.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .needs import effective_needs
from .plan import Where
from .simulate import kept_memory, other_memory
from .timeline import Rates, Timeline
from .walk import Schedule, Walk

__all__ = ["Margins", "Schedule", "Scheduler"]


@dataclass(frozen=True, slots=True)
class Margins:
    """Safety in time: of a transfer's duration, and on top of it, in transfers' overheads."""

    fraction: float = 0.1
    overheads: float = 2.0


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
        self.write_rate, self.read_rate = _fastest(rates, "write"), _fastest(rates, "read")
        self.bytes = [group.nbytes for group in timeline.groups]
        self.frees = [group.frees for group in timeline.groups]
        self.others: list[int] = other_memory(timeline).tolist()
        self.kept: NDArray[np.int64] = kept_memory(timeline)
        self.seconds = [tick.seconds for tick in timeline.ticks]
        # Most questions in a row are about the same recomputations.
        self._last_recomputed: tuple[int, ...] = ()
        self._last_times: tuple[list[float], list[int | None], list[int]] | None = None
        self.saved = [tick.group if tick.kind == "save" else -1 for tick in timeline.ticks]

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
        moved.sort(key=lambda item: (item[0], -item[1]))
        saved = [group.saved_at for group in self.timeline.groups]
        last_out = 0.0
        for index in sorted((index for _, index in moved), key=saved.__getitem__):
            last_out = max(last_out, times[saved[index]])
            last_out += self.bytes[index] / self.out_rate
        order = [index for _, index in moved]
        last_write = self._last_write(where, times)
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
                begin = times[load_at[position]]
                rate = self.read_rate if begin > last_write else self.rates.read
                duration = overhead + self.bytes[index] / rate
                read_start = min(begin - self.margin(duration), read_start) - duration
                tick = bisect.bisect_right(times, read_start) - 1
                read_at[position] = min(max(tick, saved[index]), load_at[position])
        return order, load_at, read_at

    def _last_write(self, where: Sequence[Where], times: Sequence[float]) -> float:
        """When the drive would have written everything, were nothing read before."""
        end = 0.0
        if self.direct:
            return end
        for index, group in enumerate(self.timeline.groups):
            if where[index] is Where.DISK:
                end = max(end, times[group.saved_at]) + self.bytes[index] / self.write_rate
        return end

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
        return Walk(self, list(where), ceiling).run()


def _fastest(rates: Rates, lane: str) -> float:
    return float(max(getattr(rates, lane), getattr(rates, f"{lane}_alone")))
