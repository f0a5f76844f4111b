# SPDX-License-Identifier: Apache-2.0
"""Measures how fast the lanes are: each alone, and each while the opposite one is busy.

Once an offloader, in some milliseconds for the link and for as long as the drive takes for 0.5 to
2 GiB.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any, Protocol

import torch

from datapath_core import BudgetError
from datapath_core.errors import OutOfSpaceError
from datapath_core.io import Volume
from datapath_core.streams import Scheduler

from .timeline import Rates

__all__ = ["Start", "measure_pair", "measure_rates"]

LINK_BYTES = 64 << 20
DRIVE_BYTES = 128 << 20
_SMALLEST = 1 << 20
_SMALL = 4096
_ROUNDS = 3
# Seconds that one round on a drive may take for more to follow: its rate varies.
_PATIENCE = 0.5
_POLL = 20e-6


class _Ticket(Protocol):
    def done(self) -> bool: ...

    def result(self) -> int: ...


# Starts a transfer of so many bytes on a lane.
Start = Callable[[int], _Ticket]
Clock = Callable[[], float]


def measure_pair(
    out: Start, back: Start, nbytes: int, rounds: int = _ROUNDS, clock: Clock = time.perf_counter
) -> tuple[float, float, float, float, float]:
    """Measure two opposite lanes.

    Parameters
    ----------
    out, back : callable
        Start a transfer of a number of bytes, and return its ticket.
    nbytes : int
        Of one transfer.
    rounds : int
        Medians are taken over so many.
    clock : callable
        Seconds.

    Returns
    -------
    out_alone, back_alone : float
        Bytes per second.
    out_busy, back_busy : float
        The same while the opposite lane is busy too; never above those alone.
    overhead : float
        Seconds of a transfer of a few bytes.
    """
    overhead = statistics.median(_seconds(lane, _SMALL, clock) for lane in (out, back) * rounds)
    found = []
    for _ in range(rounds):
        alone = [_rate(nbytes, _seconds(lane, nbytes, clock), overhead) for lane in (out, back)]
        ends = _both(out, back, nbytes, clock)
        first = min(ends)
        busy = []
        for rate, end in zip(alone, ends, strict=True):
            # From the other's end on it was alone.
            rest = min((end - first) * rate, nbytes / 2)
            busy.append(min((nbytes - rest) / max(first, 1e-9), rate))
        found.append((*alone, *busy))
    out_alone, back_alone, out_busy, back_busy = (
        statistics.median(values) for values in zip(*found, strict=True)
    )
    return out_alone, back_alone, min(out_busy, out_alone), min(back_busy, back_alone), overhead


def measure_rates(
    device: torch.device,
    *,
    scheduler: Scheduler | None = None,
    pinned: Callable[[int], Any] | None = None,
    volume: Volume | None = None,
    clock: Clock = time.perf_counter,
) -> Rates:
    """Measure the lanes that an offloader has.

    Parameters
    ----------
    device : torch.device
        That computes.
    scheduler : Scheduler, optional
        Of the CUDA device; None: there is no link to measure.
    pinned : callable, optional
        Returns a pinned buffer of a number of bytes; needed with a scheduler.
    volume : Volume, optional
        Of the disk tier; None: there is no drive.
    clock : callable
        Seconds.

    Returns
    -------
    Rates
        A lane is 0 if it is not there, or had not even room for 1 MiB.

    Raises
    ------
    Error
        If a transfer fails.
    """
    values: dict[str, float] = {}
    overheads = []
    if scheduler is not None and pinned is not None and device.type == "cuda":
        found = _link(device, scheduler, pinned, clock)
        if found is not None:
            values |= dict(zip(("d2h_alone", "h2d_alone", "d2h", "h2d"), found[:4], strict=True))
            overheads.append(found[4])
    if volume is not None:
        take = pinned if device.type == "cuda" and pinned is not None else _plain
        found = _drive(volume, take, clock)
        if found is not None:
            names = ("write_alone", "read_alone", "write", "read")
            values |= dict(zip(names, found[:4], strict=True))
            if device.type != "cuda":
                overheads.append(found[4])
    return Rates(**values, overhead=max(overheads, default=0.0))


_Found = tuple[float, float, float, float, float]


def _link(
    device: torch.device, scheduler: Scheduler, pinned: Callable[[int], Any], clock: Clock
) -> _Found | None:
    def attempt(nbytes: int) -> _Found:
        host = [pinned(nbytes) for _ in range(2)]
        there = [torch.empty(nbytes, dtype=torch.uint8, device=device) for _ in range(2)]
        # The memory may still be used by kernels that were queued before it was freed.
        torch.cuda.current_stream(device).synchronize()

        def out(size: int) -> _Ticket:
            return scheduler.transfer(host[0], there[0], size)

        def back(size: int) -> _Ticket:
            return scheduler.transfer(there[1], host[1], size)

        return measure_pair(out, back, nbytes, clock=clock)

    return _with_room(attempt, LINK_BYTES)


def _drive(volume: Volume, take: Callable[[int], Any], clock: Clock) -> _Found | None:
    def attempt(nbytes: int) -> _Found:
        memory = [take(nbytes) for _ in range(2)]
        small = [take(_SMALL) for _ in range(2)]
        with volume.allocate(nbytes) as one, volume.allocate(nbytes) as other:
            # What is read must have been written, and files have grown by then.
            one.write(memory[0]).result()
            other.write(memory[1]).result()

            def out(size: int) -> _Ticket:
                return one.write(memory[0] if size == nbytes else small[0])

            def back(size: int) -> _Ticket:
                return other.read(memory[1] if size == nbytes else small[1])

            begun = clock()
            found = measure_pair(out, back, nbytes, 1, clock)
            if clock() - begun > _PATIENCE:
                return found
            return measure_pair(out, back, nbytes, clock=clock)

    return _with_room(attempt, DRIVE_BYTES)


def _with_room(attempt: Callable[[int], _Found], nbytes: int) -> _Found | None:
    """Measure with as many bytes as there is room for; None if there is next to none."""
    while nbytes >= _SMALLEST:
        try:
            return attempt(nbytes)
        except (BudgetError, OutOfSpaceError, torch.OutOfMemoryError):
            nbytes //= 2
    return None


def _plain(nbytes: int) -> torch.Tensor:
    return torch.zeros(nbytes, dtype=torch.uint8)


def _seconds(lane: Start, nbytes: int, clock: Clock) -> float:
    begin = clock()
    lane(nbytes).result()
    return max(clock() - begin, 1e-9)


def _rate(nbytes: int, seconds: float, overhead: float) -> float:
    # The fixed part of a transfer is counted apart, but is no more than half of a noisy time.
    return nbytes / max(seconds - overhead, seconds / 2)


def _both(out: Start, back: Start, nbytes: int, clock: Clock) -> list[float]:
    """Start both at once; seconds until each has ended."""
    begin = clock()
    tickets = [out(nbytes), back(nbytes)]
    ends: list[float | None] = [None, None]
    while None in ends:
        for position, ticket in enumerate(tickets):
            if ends[position] is None and ticket.done():
                ticket.result()
                ends[position] = max(clock() - begin, 1e-9)
        time.sleep(_POLL)
    return [end for end in ends if end is not None]
