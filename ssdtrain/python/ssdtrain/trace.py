# SPDX-License-Identifier: Apache-2.0
"""Remembers what happened when, for people: spans on lanes, instants, counters.

Recording appends a tuple to a ring. What a file looks like is :mod:`ssdtrain.trace_format`'s to
say; nothing in the engine is decided by what stands here.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

import torch

from .trace_records import Counter, Instant, Lane, Quantity, Record, Span, moment, with_hops

if TYPE_CHECKING:
    from .group import Group

__all__ = ["Counter", "DeviceEvent", "Instant", "Lane", "Quantity", "Span", "Tracer"]

# Enough for a few steps of a model with a thousand groups; about 8 MiB when full.
_CAPACITY = 1 << 15


class DeviceEvent(Protocol):
    """A timing event, as ``torch.cuda.Event(enable_timing=True)``."""

    def elapsed_time(self, end_event: Any) -> float:
        """Milliseconds from this event to another."""


# Makes an event on the device of the given one; the event, and the host's time of it in ns.
Anchor = Callable[[DeviceEvent], tuple[DeviceEvent, int]]

_now = time.monotonic_ns


class Tracer:
    """A bounded ring of what happened last; safe on any thread, takes no lock.

    While it is off every method returns at once and nothing is recorded. On, an entry costs a few
    hundred nanoseconds, and NVTX ranges are pushed where CUDA is in use, so that Nsight shows the
    same names.

    Use in the engine::

        token = tracer.begin("wait")
        ...
        tracer.end(token, Lane.COMPUTE, "wait", group=3, nbytes=group.nbytes)
        tracer.counter(Quantity.DEVICE, resident)

    Parameters
    ----------
    capacity : int
        Entries that are kept; older ones are forgotten.
    enabled : bool
    """

    def __init__(self, capacity: int = _CAPACITY, *, enabled: bool = True) -> None:
        if capacity < 1:
            raise ValueError(f"capacity must be at least 1 entry, is {capacity}")
        self._ring: deque[tuple[Any, ...]] = deque(maxlen=capacity)
        self._nvtx = False
        self.enabled = enabled
        self.step = 0

    # ------------------------------------------------------------------ recording

    def begin_step(self, step: int) -> None:
        """Number what follows; also looks whether NVTX can be used from here on."""
        self.step = step
        if self.enabled:
            # Only asks: a tracer must not be what starts CUDA in a process that may fork.
            self._nvtx = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
            self._ring.append(("instant", Lane.COMPUTE, f"step {step}", _now(), step, -1, 0))

    def begin(self, label: str) -> int:
        """Open a span on this thread; the result is for :meth:`end`, also if an error comes."""
        if not self.enabled:
            return 0
        if not self._nvtx:
            return _now()
        torch.cuda.nvtx.range_push(f"ssdtrain: {label}")  # type: ignore[no-untyped-call]
        return -_now()  # Negative: a range was pushed that must be popped.

    def end(self, token: int, lane: Lane, label: str, *, group: int = -1, nbytes: int = 0) -> None:
        """Close a span that :meth:`begin` opened on the same thread."""
        if token == 0:
            return
        if token < 0:
            torch.cuda.nvtx.range_pop()  # type: ignore[no-untyped-call]
            token = -token
        self.span(lane, label, token, _now(), group=group, nbytes=nbytes)

    def span(
        self,
        lane: Lane,
        label: str,
        begin: int,
        end: int,
        *,
        group: int = -1,
        nbytes: int = 0,
        step: int | None = None,
        sequence: tuple[str, int] | None = None,
        failed: bool = False,
    ) -> None:
        """Record a span whose times (``time.monotonic_ns()``) are known.

        For a transfer of a core scheduler give ``sequence``, its device and the number of the
        submission counted from 0: if the scheduler still remembers the hops when the trace is
        exported, their times replace these.
        """
        if self.enabled:
            step = self.step if step is None else step
            self._ring.append(
                ("span", lane, label, begin, end, step, group, nbytes, failed, sequence)
            )

    def moved(self, lane: Lane, label: str, group: Group) -> None:
        """Record that a group's transfer, begun at ``group.begun``, has ended now."""
        if self.enabled:
            self._ring.append(
                ("span", lane, label, group.begun, _now(), self.step, group.index, group.nbytes)
            )

    def device_span(
        self,
        lane: Lane,
        label: str,
        begin: DeviceEvent,
        end: DeviceEvent,
        *,
        group: int = -1,
        nbytes: int = 0,
        step: int | None = None,
    ) -> None:
        """Record a span between two timing events of one CUDA device.

        The events must not be recorded again. Nothing waits for them before the export.
        """
        if self.enabled:
            step = self.step if step is None else step
            self._ring.append(("device", lane, label, begin, end, step, group, nbytes))

    def instant(self, lane: Lane, label: str, *, group: int = -1, nbytes: int = 0) -> None:
        """Record that something happened now."""
        if self.enabled:
            self._ring.append(("instant", lane, label, _now(), self.step, group, nbytes))

    def counter(self, quantity: Quantity, value: int) -> None:
        """Record that a quantity has this value in bytes from now on."""
        if self.enabled:
            self._ring.append(("counter", quantity, _now(), value))

    def clear(self) -> None:
        """Forget everything."""
        self._ring.clear()

    # ------------------------------------------------------------------ looking

    def records(
        self,
        schedulers: Mapping[str, Mapping[str, Any]] | None = None,
        *,
        anchor: Anchor | None = None,
    ) -> list[Record]:
        """What the ring holds, oldest first, all times on the host's clock.

        Parameters
        ----------
        schedulers : mapping of str to dict, optional
            ``Scheduler.describe()`` of core's schedulers, by the name used in ``sequence``. Spans
            whose hops a scheduler remembers are replaced by these.
        anchor : callable, optional
            Makes an event on the device of the given one and says at which host time it happened;
            for tests. By default CUDA's, which waits until the device is idle.

        Returns
        -------
        list of Span, Instant or Counter
        """
        clock = _DeviceClock(_cuda_anchor if anchor is None else anchor)
        found: list[Record] = []
        for kind, *fields in self._snapshot():
            if kind == "span":
                found.append(Span(*fields))
            elif kind == "device":
                lane, label, begin, end, *rest = fields
                found.append(Span(lane, label, clock.time(begin), clock.time(end), *rest))
            elif kind == "instant":
                found.append(Instant(*fields))
            else:
                found.append(Counter(*fields))
        return sorted(with_hops(found, schedulers or {}), key=moment)

    def export(
        self,
        path: str | os.PathLike[str],
        schedulers: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        """Write a JSON file for ``ui.perfetto.dev`` or ``chrome://tracing``.

        Parameters
        ----------
        path : path
        schedulers : mapping of str to dict, optional
            As for :meth:`records`.

        Raises
        ------
        OSError
            If the file cannot be written.
        """
        from .trace_format import write

        write(self.records(schedulers), path)

    def _snapshot(self) -> list[tuple[Any, ...]]:
        for _ in range(100):
            try:
                return list(self._ring)
            except RuntimeError:  # Another thread recorded something in between.
                continue
        raise RuntimeError("the trace changes too fast to be copied; set enabled = False first")


class _DeviceClock:
    """Host times of device events: one anchor, which both clocks know, for each device."""

    def __init__(self, anchor: Anchor) -> None:
        self._make = anchor
        self._anchors: dict[object, tuple[DeviceEvent, int]] = {}

    def time(self, event: DeviceEvent) -> int:
        device = getattr(event, "device", None)
        if device not in self._anchors:
            self._anchors[device] = self._make(event)
        anchor, host = self._anchors[device]
        return host - round(event.elapsed_time(anchor) * 1e6)


def _cuda_anchor(event: DeviceEvent) -> tuple[DeviceEvent, int]:
    device = event.device  # type: ignore[attr-defined]
    with torch.cuda.device(device):
        # Idle, so that the anchor happens when it is recorded.
        torch.cuda.synchronize(device)
        anchor = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        before = _now()
        anchor.record()
        anchor.synchronize()
        return anchor, (before + _now()) // 2
