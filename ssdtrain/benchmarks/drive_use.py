# SPDX-License-Identifier: Apache-2.0
"""How much of a drive's bandwidth a planned step uses, and what the drive gives by itself.

*Time available* for writing is the forward pass: a group that is stored before the turn lowers the
peak, one that is stored later does not. For reading it is the backward pass. What was moved in
these times is taken from the trace of a step, and divided by what the same lane moves in that time
when transfers of the same size, as many at a time, follow each other without a pause.
"""

from __future__ import annotations

import contextlib
import json
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from strategies import DEVICE

import ssdtrain
from datapath_core import PinnedPool, io
from datapath_core.streams import Scheduler

__all__ = ["Drive", "DriveMeter", "Use", "Watch", "moved"]


@dataclass
class Drive:
    """Bytes a second of each direction."""

    write: float
    read: float

    @classmethod
    def mean(cls, one: Drive, other: Drive) -> Drive:
        """Of two measurements."""
        return cls((one.write + other.write) / 2, (one.read + other.read) / 2)


class DriveMeter:
    """Measures a drive again and again: extents of `nbytes`, so many at a time.

    It is the engine, the volume and the scheduler that an offloader has, with pinned memory at the
    other end. To be closed, or used with ``with``.
    """

    def __init__(self, folder: str, nbytes: int, at_a_time: int) -> None:
        self._nbytes, self._at_a_time = nbytes, at_a_time
        extents = max(at_a_time, min(64, (1 << 30) // nbytes))
        name = "cuda:0" if DEVICE.type == "cuda" else "cpu"
        with contextlib.ExitStack() as stack:
            engine = stack.enter_context(io.Engine())
            volume = stack.enter_context(io.Volume([folder], 2 * extents * nbytes, engine=engine))
            self._scheduler = stack.enter_context(Scheduler(name))
            pool = stack.enter_context(PinnedPool(2 * at_a_time * nbytes + (64 << 20)))
            self._buffers = [pool.allocate(nbytes) for _ in range(at_a_time)]
            self._places = [volume.allocate(nbytes) for _ in range(extents)]
            # Once around before it counts: the files grow.
            self._rate(write=True, least=extents, seconds=0.0)
            self._stack = stack.pop_all()

    def __enter__(self) -> DriveMeter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give everything back."""
        for place in self._places:
            place.free()
        self._buffers.clear()
        self._stack.close()

    def measure(self, seconds: float) -> Drive:
        """Write, then read; what counts is what the first so many seconds of each moved.

        A drive may take its time to get going, or take a burst faster than a stream.
        """
        least = 2 * self._at_a_time
        write = self._rate(write=True, least=least, seconds=seconds)
        return Drive(write, self._rate(write=False, least=least, seconds=seconds))

    def _rate(self, *, write: bool, least: int, seconds: float) -> float:
        """Bytes a second, within the first seconds; over all of it if these are 0."""
        waiting: deque[tuple[float, Any]] = deque()
        spans: list[tuple[float, float, int]] = []

        def end() -> None:
            submitted, ticket = waiting.popleft()
            ticket.result()
            spans.append((submitted, time.perf_counter(), self._nbytes))

        begun, count = time.perf_counter(), 0
        while count < least or time.perf_counter() - begun < seconds:
            if len(waiting) == self._at_a_time:
                end()
            place = self._places[count % len(self._places)]
            buffer = self._buffers[count % self._at_a_time]
            ends = (place, buffer) if write else (buffer, place)
            waiting.append((time.perf_counter(), self._scheduler.transfer(*ends)))
            count += 1
        while waiting:
            end()
        seconds = seconds or time.perf_counter() - begun
        return moved(spans, begun, begun + seconds) / seconds


@dataclass
class Use:
    """Of one step: bytes moved in the time available, and that time in seconds.

    ``on_disk`` are the bytes that went there in the step, ``behind`` those that stayed because the
    drive was. ``drive`` is what it gave right before and after, on average.
    """

    written: float
    read: float
    forward: float
    backward: float
    drive: Drive
    on_disk: int = 0
    behind: int = 0

    @property
    def shares(self) -> tuple[float, float]:
        """Used parts of both directions' bandwidth."""
        return (
            self.written / (self.drive.write * self.forward),
            self.read / (self.drive.read * self.backward),
        )

    def __str__(self) -> str:
        writing, reading = self.shares
        return (
            f"forward {self.forward:.4f} s, {self.written / 1e9:.3f} GB written, {writing:.1%} of"
            f" {self.drive.write / 1e9:.2f} GB/s; backward {self.backward:.4f} s,"
            f" {self.read / 1e9:.3f} GB read, {reading:.1%} of {self.drive.read / 1e9:.2f} GB/s;"
            f" {self.on_disk / 1e9:.3f} GB went, {self.behind / 1e9:.3f} stayed: drive behind"
        )


@dataclass
class Watch:
    """Traces some steps one by one; `forward_seconds` tells of the last one's forward pass.

    The drive is measured before each and after the last: a virtual one changes within seconds.
    """

    forward_seconds: Callable[[], float]
    measure: Callable[[], Drive]
    steps: int = 5
    uses: list[Use] = field(default_factory=list)

    def __call__(self, off: ssdtrain.Offloader, step: Callable[[], object]) -> None:
        """Run steps, each from an idle device to an idle one."""
        before = self.measure()
        for _ in range(self.steps):
            _synchronize()
            begun = time.perf_counter()
            step()
            _synchronize()
            whole = time.perf_counter() - begun
            forward, report, events = self.forward_seconds(), off.report(), _events(off)
            after = self.measure()
            begin = 1e-6 * max(
                e["ts"] for e in events if e["ph"] == "i" and e["name"].startswith("step ")
            )
            behind = report["kept_by_reason"].get("drives behind", {"bytes": 0})
            self.uses.append(
                Use(
                    moved(_spans(events, "disk write"), begin, begin + forward),
                    moved(_spans(events, "disk read"), begin + forward, begin + whole),
                    forward,
                    whole - forward,
                    Drive.mean(before, after),
                    report["bytes"]["disk"],
                    behind["bytes"],
                )
            )
            before = after

    def median(self) -> Use:
        """The step of the median share of writing."""
        ordered = sorted(self.uses, key=lambda use: use.shares[0])
        return ordered[(len(ordered) - 1) // 2]

    def spread(self) -> tuple[float, float]:
        """Lowest and highest share of writing."""
        shares = [use.shares[0] for use in self.uses]
        return min(shares), max(shares)


def _events(off: ssdtrain.Offloader) -> list[dict[str, Any]]:
    """A trace, right after a step: a scheduler remembers the times of some last transfers only."""
    with tempfile.TemporaryDirectory() as folder:
        off.trace(path := Path(folder) / "trace.json")
        events: list[dict[str, Any]] = json.loads(path.read_text())["traceEvents"]
    return events


def _spans(events: Sequence[dict[str, Any]], lane: str) -> Iterator[tuple[float, float, int]]:
    for event in events:
        if event["ph"] == "X" and event["cat"] == lane:
            begin = event["ts"] * 1e-6
            yield begin, begin + event["dur"] * 1e-6, event["args"].get("bytes", 0)


def moved(spans: Iterable[tuple[float, float, int]], begin: float, end: float) -> float:
    """Bytes that a lane moved in a time: spans overlap, but end one after the other."""
    total, free = 0.0, 0.0
    for started, ended, nbytes in sorted(spans, key=lambda span: span[1]):
        started = max(started, free)
        free = ended
        inside = max(min(ended, end) - max(started, begin), 0.0)
        if ended > started:
            total += nbytes * inside / (ended - started)
        elif begin <= ended <= end:
            total += nbytes
    return total


def _synchronize() -> None:
    if DEVICE.type == "cuda":
        torch.cuda.synchronize()
