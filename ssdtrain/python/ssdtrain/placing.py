# SPDX-License-Identifier: Apache-2.0
"""Host or disk for what is to move: host memory first, and to disk what it has no room for.

Estimates from times without waits; :mod:`ssdtrain.simulate` has the last word.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from .plan import Limits, Where
from .schedule import Scheduler

__all__ = ["Placer"]

# Numbers of groups on disk that are tried before the least one is looked for.
_STEPS = 16
# Part of pinned memory that is left free.
_HOLES = 64

_Floats = NDArray[np.float64]


class Placer:
    """Places what moves of one timeline within the budgets of host memory and disk.

    Parameters
    ----------
    scheduler : Scheduler
    limits : Limits

    Attributes
    ----------
    host_allowed, disk_allowed : bool
        Whether groups may wait there.
    pinned_ceiling : int
        Bytes of pinned memory to stay below.
    """

    def __init__(self, scheduler: Scheduler, limits: Limits) -> None:
        self._s = scheduler
        self._limits = limits
        rates = scheduler.rates
        link = scheduler.direct or (scheduler.out_rate > 0 and scheduler.back_rate > 0)
        pinned = link and limits.host_bytes > 0
        self.host_allowed = not scheduler.direct and limits.allow_host and pinned
        # Pools hand out whole pages, and have holes between buffers that stay.
        self.pinned_ceiling = limits.host_bytes
        if self.host_allowed:
            self.pinned_ceiling -= limits.host_bytes // _HOLES
        self.disk_allowed = (
            (pinned or scheduler.direct)
            and rates.write > 0
            and rates.read > 0
            and limits.disk_bytes > 0
            and limits.write_bytes != 0
        )
        groups = scheduler.timeline.groups
        last = max(len(scheduler.seconds) - 1, 0)
        # The search asks for the same at one ceiling after the other.
        self._asked: tuple[tuple[bool, ...], int] | None = None
        self._paced: list[int] = []
        self._bytes = np.array([group.nbytes for group in groups], np.int64)
        self._saved = np.array([group.saved_at for group in groups], np.int64)
        self._released = np.array([min(g.released_after, last) for g in groups], np.int64)

    def assign(self, where: Sequence[Where]) -> list[Where] | None:
        """Say for each group that is to move whether to host memory or to disk.

        Parameters
        ----------
        where : sequence of Where
            HOST means: to move. DISK is left as it is.

        Returns
        -------
        list of Where or None
            None: the budgets do not hold it.
        """
        found = list(where)
        moved = [index for index, place in enumerate(where) if place is Where.HOST]
        for index in moved:
            found[index] = Where.HOST if self.host_allowed else Where.DISK
        if self._fits(found):
            return found
        if not (moved and self.host_allowed and self.disk_allowed):
            return None
        times, needed, _ = self._s.times(found)
        end = self._s.timeline.seconds

        def idle(index: int) -> float:
            need = needed[index]
            return (end if need is None else times[need]) - times[int(self._saved[index])]

        longest = sorted(moved, key=lambda i: (-idle(i), i))
        below = 0
        for step in range(1, _STEPS + 1):
            count = -(-len(moved) * step // _STEPS)
            best = self._with_disk(found, longest[:count])
            if best is None:
                below = count
                continue
            while count - below > 1:
                middle = (below + count) // 2
                placed = self._with_disk(found, longest[:middle])
                if placed is None:
                    below = middle
                else:
                    best, count = placed, middle
            return best
        return None

    def change(self, where: Sequence[Where], changes: Mapping[int, Where]) -> list[Where] | None:
        """Change some groups of a placement that fits, and leave the others where they are.

        Returns
        -------
        list of Where or None
            None: the budgets do not hold it.
        """
        found = list(where)
        for index, place in changes.items():
            found[index] = place
            if place is Where.HOST and not self.host_allowed:
                found[index] = Where.DISK
        if self._fits(found):
            return found
        return self._with_disk(found, [i for i in changes if found[i] is Where.HOST])

    def paced(self, can_move: Sequence[bool]) -> list[int]:
        """Choose groups that fill the drive's lane through the step, with few bytes waiting for it.

        Parameters
        ----------
        can_move : sequence of bool

        Returns
        -------
        list of int
            Groups; empty if no disk, or if the drive takes tensors as they are.
        """
        if not self.disk_allowed or self._s.direct:
            return []
        asked = (tuple(can_move), self.pinned_ceiling)
        if asked != self._asked:
            self._asked, self._paced = asked, self._pace(can_move)
        return self._paced

    def _pace(self, can_move: Sequence[bool]) -> list[int]:
        s = self._s
        limits = self._limits
        room = min(limits.disk_bytes, limits.write_bytes or limits.disk_bytes)
        staging = self.pinned_ceiling
        if self.host_allowed:
            least = max(limits.staging_bytes, staging // 8, 2 * int(self._bytes.max(initial=0)))
            staging = min(staging // 2, least)
        chosen = []
        out, back = _Passage(staging), _Passage(staging)
        for index, group in enumerate(s.timeline.groups):
            nbytes = group.nbytes
            saved = s.seconds[group.saved_at]
            writing = s.rates.overhead + nbytes / s.write_rate
            written = out.end(saved, saved + nbytes / s.out_rate, writing, nbytes)
            if not can_move[index] or nbytes > room or written is None:
                continue
            if group.needed_at is not None:
                # Backwards in time: taken at the need, given back where its reading begins.
                need = s.seconds[group.needed_at]
                link, reading = nbytes / s.back_rate, s.rates.overhead + nbytes / s.read_rate
                due = need - link - s.margin(link) - s.margin(reading)
                begun = back.end(-need, -due, reading, nbytes)
                if begun is None or -begun < written:
                    continue
                back.take(begun, nbytes)
            out.take(written, nbytes)
            room -= nbytes
            chosen.append(index)
        return self._first_that_fit(chosen)

    def _first_that_fit(self, chosen: list[int]) -> list[int]:
        """As many of the first as pinned memory holds on their ways out and back."""
        nothing = [Where.KEEP] * len(self._bytes)
        fitting, too_many = 0, len(chosen) + 1
        while too_many - fitting > 1:
            count = len(chosen) if too_many > len(chosen) else (fitting + too_many) // 2
            if self._with_disk(nothing, chosen[:count]) is None:
                too_many = count
            else:
                fitting = count
        return chosen[:fitting]

    def _with_disk(self, found: Sequence[Where], on_disk: Sequence[int]) -> list[Where] | None:
        placed = list(found)
        for index in on_disk:
            placed[index] = Where.DISK
        return placed if self._fits(placed) else None

    def _fits(self, where: Sequence[Where]) -> bool:
        on_disk = np.array([i for i, place in enumerate(where) if place is Where.DISK], np.int64)
        if len(on_disk):
            total = int(self._bytes[on_disk].sum())
            writes = self._limits.write_bytes
            if not self.disk_allowed or total > self._limits.disk_bytes:
                return False
            if writes is not None and total > writes:
                return False
        if self._s.direct:
            return True
        if self.disk_allowed and self._limits.staging_bytes:
            resident = self._pinned(where, on_disk[:0])
            if resident > max(self.pinned_ceiling - self._limits.staging_bytes, 0):
                return False
        return self._pinned(where, on_disk) <= self.pinned_ceiling

    def _pinned(self, where: Sequence[Where], on_disk: NDArray[np.int64]) -> int:
        """Highest use of pinned memory."""
        times, needed, _ = self._s.times(where)
        at = np.array(times)
        host = np.array([i for i, place in enumerate(where) if place is Where.HOST], np.int64)
        sizes = self._bytes[host]
        moments = [at[self._saved[host]], at[self._released[host]]]
        amounts = [sizes, -sizes]
        if len(on_disk):
            ends = self._s.timeline.seconds
            needs = np.array([ends if (n := needed[i]) is None else times[n] for i in on_disk])
            sizes = self._bytes[on_disk]
            moments += self._journeys(on_disk, at, needs)
            amounts += [sizes, -sizes, sizes, -sizes]
        changes = np.concatenate(amounts)
        levels = np.cumsum(changes[np.lexsort((-changes, np.concatenate(moments)))])
        return int(levels.max(initial=0))

    def _journeys(self, on_disk: NDArray[np.int64], at: _Floats, needs: _Floats) -> list[_Floats]:
        """Seconds at which each group's buffers are taken and given back: out, then back."""
        s = self._s
        sizes = self._bytes[on_disk]
        saved = at[self._saved[on_disk]]
        overhead = s.rates.overhead
        written = _first_in_first_out(saved + sizes / s.out_rate, overhead + sizes / s.write_rate)
        back = sizes / s.back_rate
        reading = overhead + sizes / s.read_rate
        spare = s.margins.overheads * overhead
        deadline = needs - back * (1 + s.margins.fraction) - reading * s.margins.fraction - spare
        # The last that is needed is the first of the lane when time runs backwards.
        order = np.argsort(-needs, kind="stable")
        starts = np.empty_like(deadline)
        starts[order] = -_first_in_first_out(-deadline[order], reading[order])
        starts = np.maximum(starts, written)
        return [saved, written, starts, np.maximum(needs, starts)]


class _Passage:
    """Buffers that pass through a lane one after the other, no more than so many bytes at a time.

    Of what is needed in the reverse order of its saving, the way back is one with time reversed.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._free = -math.inf
        self._under_way: deque[tuple[float, int]] = deque()
        self._taken = 0

    def end(self, arrival: float, ready: float, duration: float, nbytes: int) -> float | None:
        """When a buffer would be through; None if there is no room for it when it arrives."""
        while self._under_way and self._under_way[0][0] <= arrival:
            self._taken -= self._under_way.popleft()[1]
        if self._taken + nbytes > self._most:
            return None
        return max(self._free, ready) + duration

    def take(self, end: float, nbytes: int) -> None:
        """It comes."""
        self._free = end
        self._under_way.append((end, nbytes))
        self._taken += nbytes


def _first_in_first_out(ready: _Floats, durations: _Floats) -> _Floats:
    """Ends of transfers on one lane, in order."""
    total = np.cumsum(durations)
    return np.asarray(total + np.maximum.accumulate(ready - (total - durations)))
