# SPDX-License-Identifier: Apache-2.0
"""Lanes as a plan sees them: first in, first out, slower while the opposite lane is busy too.

Simulated time only; the lanes that move bytes are :mod:`datapath_core`'s.
"""

from __future__ import annotations

import math
from collections import deque
from typing import Literal

from .timeline import Rates

__all__ = ["LaneName", "LaneTransfer", "Lanes"]

LaneName = Literal["d2h", "h2d", "write", "read"]
_OPPOSITE: dict[LaneName, LaneName] = {
    "d2h": "h2d",
    "h2d": "d2h",
    "write": "read",
    "read": "write",
}


class LaneTransfer:
    """One group on one lane.

    Attributes
    ----------
    lane : str
    group : int
    nbytes : int
    ready : float
        Second before which it cannot start.
    after : LaneTransfer or None
        Must have ended before it starts.
    begin, end : float or None
        None: not yet.
    """

    __slots__ = ("after", "begin", "end", "group", "lane", "nbytes", "ready")

    def __init__(
        self, lane: LaneName, group: int, nbytes: int, ready: float, after: LaneTransfer | None
    ) -> None:
        self.lane = lane
        self.group = group
        self.nbytes = nbytes
        self.ready = ready
        self.after = after
        self.begin: float | None = None
        self.end: float | None = None


class _Lane:
    __slots__ = ("alone", "left", "name", "overhead", "queue", "slowed")

    def __init__(self, name: LaneName, busy: float, alone: float, overhead: float) -> None:
        self.name = name
        self.alone = max(alone, busy)
        self.slowed = busy / self.alone if busy else 1.0
        self.overhead = overhead
        self.queue: deque[LaneTransfer] = deque()
        # Seconds that the first of the queue still takes with the opposite lane idle.
        self.left = 0.0


class Lanes:
    """All lanes of a device, moved forward in time together.

    Parameters
    ----------
    rates : Rates
    """

    def __init__(self, rates: Rates) -> None:
        self._now = 0.0
        self._lanes = {
            name: _Lane(name, getattr(rates, name), getattr(rates, f"{name}_alone"), rates.overhead)
            for name in _OPPOSITE
        }
        self._all = list(self._lanes.values())
        # Before this nothing ends and nothing starts.
        self._next_event = math.inf
        self.transfers: list[LaneTransfer] = []
        # Those that read or write the device's memory; a drive only does where there is no link.
        link = (self._lanes["d2h"], self._lanes["h2d"])
        has_link = rates.d2h > 0 or rates.h2d > 0
        self._at_device = link if has_link else (self._lanes["write"], self._lanes["read"])
        self._busy = 0.0

    def submit(
        self,
        lane: LaneName,
        group: int,
        nbytes: int,
        now: float,
        after: LaneTransfer | None = None,
    ) -> LaneTransfer:
        """Queue a transfer at second `now`, which is never before that of an earlier call."""
        self.advance(now)
        transfer = LaneTransfer(lane, group, nbytes, now, after)
        self.transfers.append(transfer)
        target = self._lanes[lane]
        if not target.alone:
            raise ValueError(
                f"group {group} cannot travel: there is no {lane} lane (its rate is 0)"
            )
        target.queue.append(transfer)
        if len(target.queue) == 1:
            target.left = target.overhead + nbytes / target.alone
        self._next_event = -math.inf
        return transfer

    def advance(self, until: float) -> None:
        """Let time pass."""
        while until >= self._next_event:
            self._step(until)

    def device_busy(self, until: float) -> float:
        """Let time pass; seconds in which the device's lanes were busy so far, added up."""
        self.advance(until)
        return self._busy + self._at_work() * max(until - self._now, 0.0)

    def _at_work(self) -> int:
        return sum(1 for lane in self._at_device if lane.queue and lane.queue[0].begin is not None)

    def finish(self, transfer: LaneTransfer) -> float:
        """Let time pass until a transfer has ended; the second of its end."""
        while transfer.end is None:
            if self._next_event == math.inf:
                raise ValueError(
                    f"group {transfer.group}: the {transfer.lane} lane never gets to it"
                )
            self._step(math.inf)
        return transfer.end

    def _step(self, until: float) -> None:
        """Go to the next begin or end, or only find out when it is."""
        now = self._now
        active = []
        later = math.inf
        for lane in self._all:
            if not lane.queue:
                continue
            head = lane.queue[0]
            if head.begin is None:
                ready = head.ready
                if head.after is not None:
                    if head.after.end is None:
                        continue
                    ready = max(ready, head.after.end)
                if ready > now:
                    later = min(later, ready)
                    continue
                head.begin = now
            active.append(lane)
        if not active:
            self._next_event = later
            if later <= until and later < math.inf:
                self._now = later
                self._next_event = -math.inf
            return
        busy = {lane.name for lane in active}
        speeds = [lane.slowed if _OPPOSITE[lane.name] in busy else 1.0 for lane in active]
        ends = [now + lane.left / speed for lane, speed in zip(active, speeds, strict=True)]
        event = min(later, *ends)
        if event > until:
            self._next_event = event
            return
        self._busy += self._at_work() * (event - now)
        for lane, speed, end in zip(active, speeds, ends, strict=True):
            if end <= event:
                lane.queue.popleft().end = event
                if lane.queue:
                    lane.left = lane.overhead + lane.queue[0].nbytes / lane.alone
            else:
                lane.left -= (event - now) * speed
        self._now = event
        self._next_event = -math.inf
