# SPDX-License-Identifier: Apache-2.0
"""Writes the timeline of a step while it runs; plans nothing.

On CUDA it reads the caching allocator's counters and **resets its peak** (what
``torch.cuda.reset_peak_memory_stats`` does) many times in a step that is profiled; no other step
does that.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, Protocol

import torch

from .live_bytes import DevicePeak
from .timeline import SavedGroup, Tick, Timeline, signature_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .group import Group

__all__ = ["CpuMeter", "CudaMeter", "Meter", "Profile"]


class Meter(Protocol):
    """Clock and memory counters of a device."""

    device_type: Literal["cuda", "cpu"]
    resident_known: bool

    def mark(self) -> Any:
        """Now, in the order of the current stream."""

    def seconds(self, begin: Any, end: Any) -> float:
        """Between two marks that have passed."""

    def synchronize(self, mark: Any) -> None:
        """Wait until a mark has passed."""

    def has_passed(self, mark: Any) -> bool:
        """Whether a mark has passed."""

    def allocated(self) -> tuple[int, int]:
        """Bytes allocated now, and at most since the last call: that maximum starts again."""

    def peak(self) -> int:
        """Bytes allocated at most since the maximum was started anew; it goes on."""


class CudaMeter:
    """Events on the current stream, counters of the caching allocator."""

    device_type: Literal["cuda", "cpu"] = "cuda"
    resident_known = True

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._index = device.index
        # The stream's object costs more than the mark: kept with the handle that it is of.
        self._stream: tuple[int, Any] = -1, None

    def mark(self) -> Any:
        """As :meth:`Meter.mark`."""
        event: Any = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        handle, stream = self._stream
        now = torch._C._cuda_getCurrentRawStream(self._index)
        if now != handle:
            stream = torch.cuda.current_stream(self._device)
            self._stream = now, stream
        event.record(stream)
        return event

    def seconds(self, begin: Any, end: Any) -> float:
        """As :meth:`Meter.seconds`."""
        return float(begin.elapsed_time(end)) / 1e3

    def synchronize(self, mark: Any) -> None:
        """As :meth:`Meter.synchronize`."""
        mark.synchronize()

    def has_passed(self, mark: Any) -> bool:
        """As :meth:`Meter.has_passed`."""
        return bool(mark.query())

    def allocated(self) -> tuple[int, int]:
        """As :meth:`Meter.allocated`."""
        # The public functions flatten some hundred counters first.
        counters = torch._C._cuda_memoryStats(self._index)["allocated_bytes"]["all"]
        DevicePeak.starts_anew(self._device, int(counters["peak"]))
        torch._C._cuda_resetPeakMemoryStats(self._index)
        return int(counters["current"]), int(counters["peak"])

    def peak(self) -> int:
        """As :meth:`Meter.peak`."""
        return int(torch._C._cuda_memoryStats(self._index)["allocated_bytes"]["all"]["peak"])


class CpuMeter:
    """The host's clock; nobody counts the host's memory."""

    device_type: Literal["cuda", "cpu"] = "cpu"
    resident_known = False

    def mark(self) -> float:
        """As :meth:`Meter.mark`."""
        return time.perf_counter()

    def seconds(self, begin: float, end: float) -> float:
        """As :meth:`Meter.seconds`."""
        return end - begin

    def synchronize(self, mark: float) -> None:
        """As :meth:`Meter.synchronize`."""

    def has_passed(self, mark: float) -> bool:
        """As :meth:`Meter.has_passed`."""
        return True

    def allocated(self) -> tuple[int, int]:
        """As :meth:`Meter.allocated`."""
        return 0, 0

    def peak(self) -> int:
        """As :meth:`Meter.peak`."""
        return 0


class _Facts:
    """What is known of a group so far."""

    __slots__ = (
        "can_move", "frees", "inputs", "label", "nbytes", "needed_at", "recipe",
        "recompute_seconds", "released_after", "saved_at",
    )  # fmt: skip

    def __init__(self, nbytes: int, saved_at: int) -> None:
        self.nbytes = nbytes
        self.saved_at = saved_at
        self.needed_at: int | None = None
        self.released_after: int | None = None
        self.frees = True
        self.can_move = True
        self.label = ""
        self.recipe: str | None = None
        self.recompute_seconds = 0.0
        self.inputs: tuple[int, ...] = ()


class Profile:
    """What is written down of one step.

    Parameters
    ----------
    detailed : bool
        Whether a timeline is wanted. Otherwise only the step and its waits are timed.

    Attributes
    ----------
    peak_bytes : int
        Highest allocated bytes, as of the last look. 0 where nobody counts, and, if not detailed,
        where they were no higher than some time before the step.
    allocated : int
        Allocated bytes at the last look.
    """

    def __init__(self, *, detailed: bool) -> None:
        self.detailed = detailed
        self.peak_bytes = 0
        self._peak_before = 0
        self.allocated = 0
        self._meter: Meter | None = None
        self._begin: Any = None
        self._end: Any = None
        self._marks: list[tuple[Literal["save", "need"], int, Any, int, int]] = []
        self._waits: list[tuple[int, Any, Any]] = []  # before which tick, begin, end
        self._groups: list[_Facts] = []
        self._peak = 0  # of what is no group's, since the last tick

    # ------------------------------------------------------------------ while the step runs

    def begin(self, meter: Meter) -> None:
        """The clock starts."""
        self._meter = meter
        if self.detailed:
            meter.allocated()
        else:
            self._peak_before = meter.peak()
        self._begin = meter.mark()

    @property
    def has_begun(self) -> bool:
        """Whether the clock runs."""
        return self._begin is not None

    @property
    def _runs(self) -> bool:
        return self._begin is not None and self._end is None

    def look_at_peak(self) -> None:
        """Take the highest allocated bytes so far: users may start that maximum anew later."""
        if self._runs and self._meter is not None and not self.detailed:
            peak = self._meter.peak()
            # A lower one was started anew within the step, and may lack what was highest.
            if peak > self._peak_before:
                self.peak_bytes = max(self.peak_bytes, peak)

    def close_segment(self, resident: int) -> int:
        """The groups' bytes in memory, ``resident`` until now, are about to change.

        Returns
        -------
        int
            Bytes that are no group's, now.
        """
        if not self._runs or self._meter is None or not self.detailed:
            return 0
        allocated, peak = self._meter.allocated()
        self.allocated = allocated
        self.peak_bytes = max(self.peak_bytes, peak)
        if not self._meter.resident_known:
            return 0
        self._peak = max(self._peak, peak - resident)
        return allocated - resident

    def saved(self, group: Group, label: str) -> None:
        """A group is new; its tick follows."""
        facts = _Facts(group.nbytes, len(self._marks))
        facts.label = label
        self._groups.append(facts)

    def tick(self, kind: Literal["save", "need"], group: Group, resident: int) -> None:
        """A tick, when so many bytes of groups are in memory."""
        if self._meter is None or not self._runs or not self.detailed:
            return
        number = len(self._marks)
        others = self.close_segment(resident)
        if kind == "need":
            self._groups[group.index].needed_at = number
        else:
            self._groups[group.index].saved_at = number
        self._marks.append((kind, group.index, self._meter.mark(), others, self._peak))
        self._peak = others

    def stays(self, group: Group) -> None:
        """A group cannot move."""
        if self._runs and self.detailed:
            self._groups[group.index].can_move = False

    def is_alive_elsewhere(self, group: Group) -> None:
        """Giving a group's memory back frees nothing."""
        if self._runs and self.detailed:
            self._groups[group.index].frees = False

    def recipe(self, group: Group, name: str, seconds: float, inputs: tuple[int, ...]) -> None:
        """A group can be computed again."""
        if not (self._runs and self.detailed):
            return
        facts = self._groups[group.index]
        facts.recipe, facts.recompute_seconds, facts.inputs = name, seconds, inputs

    def released(self, group: Group) -> None:
        """The graph has let go of a group."""
        if self._runs and self.detailed:
            self._groups[group.index].released_after = max(len(self._marks) - 1, 0)

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Around a wait for a transfer."""
        meter = self._meter
        if meter is None or not self._runs:
            yield
            return
        begin = meter.mark()
        try:
            yield
        finally:
            self._waits.append((len(self._marks), begin, meter.mark()))

    # ------------------------------------------------------------------ afterwards

    def end(self, resident: int) -> None:
        """The step has ended."""
        if self._meter is not None and self._runs:
            self.close_segment(resident)
            self.look_at_peak()
            self._end = self._meter.mark()

    def is_over(self) -> bool:
        """Whether the device has come to the end."""
        return self._meter is None or self._end is None or self._meter.has_passed(self._end)

    def last_wait(self) -> tuple[Any, Any] | None:
        """Marks of the last wait, if they are a device's."""
        if self._meter is None or self._meter.device_type != "cuda" or not self._waits:
            return None
        return self._waits[-1][1:]

    def seconds(self) -> float:
        """From begin to end, with waits; waits until the device is there."""
        if self._meter is None or self._end is None:
            return 0.0
        self._meter.synchronize(self._end)
        return self._meter.seconds(self._begin, self._end)

    def wait_seconds(self) -> float:
        """The waits of the step."""
        if self._meter is None:
            return 0.0
        return sum(self._meter.seconds(begin, end) for _, begin, end in self._waits)

    def timeline(self) -> Timeline | None:
        """The timeline; None if backward asked for nothing."""
        meter = self._meter
        needs = any(kind == "need" for kind, *_ in self._marks)
        if meter is None or self._end is None or not needs:
            return None
        meter.synchronize(self._end)
        ticks: list[Tick] = []
        waited, waits = 0.0, 0
        for number, (kind, index, mark, others, peak) in enumerate(self._marks):
            while waits < len(self._waits) and self._waits[waits][0] <= number:
                waited += meter.seconds(*self._waits[waits][1:])
                waits += 1
            seconds = max(meter.seconds(self._begin, mark) - waited, 0.0)
            if ticks:
                seconds = max(seconds, ticks[-1].seconds)
            ticks.append(Tick(kind, index, seconds, others, peak))
        waited += sum(meter.seconds(*wait[1:]) for wait in self._waits[waits:])
        seconds = max(meter.seconds(self._begin, self._end) - waited, ticks[-1].seconds)
        return Timeline(
            ticks=tuple(ticks),
            groups=tuple(self._saved_group(facts, len(ticks) - 1) for facts in self._groups),
            seconds=seconds,
            tail_peak=self._peak,
            device_type=meter.device_type,
            resident_known=meter.resident_known,
            signature=signature_of(facts.nbytes for facts in self._groups),
        )

    @staticmethod
    def _saved_group(facts: _Facts, last: int) -> SavedGroup:
        released = last if facts.released_after is None else facts.released_after
        return SavedGroup(
            nbytes=facts.nbytes,
            saved_at=facts.saved_at,
            needed_at=facts.needed_at,
            released_after=max(released, facts.saved_at, facts.needed_at or 0),
            frees=facts.frees,
            can_move=facts.can_move,
            label=facts.label,
            recipe=facts.recipe,
            recompute_seconds=facts.recompute_seconds,
            recompute_inputs=facts.inputs,
        )
