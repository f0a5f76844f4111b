# SPDX-License-Identifier: Apache-2.0
"""Begins and ends steps: which policy each runs under, and what was measured of it."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import torch

from .group import KEPT, STORING, Group
from .module_names import ModuleNames
from .policy import KeepPolicy, Placement, PlannedPolicy, Policy, StreamingPolicy
from .profile import CpuMeter, CudaMeter, Meter, Profile
from .run import Run
from .steering import Steering, StepOrder, StepResult

if TYPE_CHECKING:
    from .books import Books
    from .plan import Plan
    from .policy import Outgoing
    from .streams import Streams

__all__ = ["Steps"]

# Of the memory that could be had, for what the allocator cannot use.
_FRAGMENTS = 0.95


class Steps:
    """The steps of an offloader.

    Parameters
    ----------
    streaming : callable
        Makes the policy of a step without a plan.
    steering : Steering or None
        Decides which plan a step runs under. None: every step streams.
    streams : Streams

    Attributes
    ----------
    device : torch.device or None
        That computes: the first group's.
    """

    def __init__(
        self,
        streaming: Callable[[], StreamingPolicy],
        steering: Steering | None,
        streams: Streams,
    ) -> None:
        self._streaming = streaming
        self.steering = steering
        self._streams = streams
        self.device: torch.device | None = None
        self._meter: Meter | None = None
        self._last_peak = 0
        self._lanes: dict[str, tuple[int, float]] = {}
        self._orders: dict[Run, StepOrder] = {}
        self._ended: deque[Run] = deque()
        self.modules = ModuleNames()

    # ------------------------------------------------------------------ begin and end

    def first(self) -> Run:
        """What is saved before the first step belongs to this one."""
        return Run(0, self._streaming())

    def next(self, books: Books) -> Run:
        """Outside the lock: end the present step, and decide how the next one runs."""
        last = books.run
        self.modules.begin_step()
        if self.steering is None:
            return Run(last.counts.step + 1, self._streaming())
        self._end(last, books)
        self._hand_in()
        order = self.steering.begin_step(self._most_bytes())
        run = Run(last.counts.step + 1, self._streaming(), Profile(detailed=order.profile))
        run.policy = self._policy(order, run)
        self._orders[run] = order
        return run

    def start(self, run: Run, books: Books, groups: Iterable[Group]) -> None:
        """Inside the lock: the step begins, with the groups that there are already."""
        books.begin_step(run, groups)
        if run.profile is not None and self._meter is not None:
            run.profile.begin(self._meter)

    def _policy(self, order: StepOrder, run: Run) -> Policy:
        if order.mode == "planned" and order.plan is not None:
            return PlannedPolicy(order.plan, run.groups, self._streaming())
        if order.mode == "keep":
            return KeepPolicy("kept to measure a step")
        return self._streaming()

    def _end(self, run: Run, books: Books) -> None:
        # An interrupt may have come later in the last call, and left the step the present one.
        if run.profile is None or run not in self._orders or run in self._ended:
            return
        run.profile.end(books.residency.nbytes)
        if run.needs == 0:  # No step, or one whose backward is still to come.
            del self._orders[run]
        else:
            run.peak_bytes = self._peak(run, run.profile)
            run.lanes = self._moved()
            self._ended.append(run)

    def _moved(self) -> dict[str, tuple[int, float]]:
        """Bytes and busy seconds of each lane since the last call."""
        now = {
            lane: (int(stats["bytes"]), float(stats["busy_seconds"]))
            for lane, stats in self._streams.stats().items()
        }
        last, self._lanes = self._lanes, now
        nothing = (0, 0.0)
        return {
            lane: (found[0] - last.get(lane, nothing)[0], found[1] - last.get(lane, nothing)[1])
            for lane, found in now.items()
        }

    def _hand_in(self) -> None:
        assert self.steering is not None
        while self._ended:
            run = self._ended[0]
            profile = run.profile
            assert profile is not None
            if not (profile.detailed or profile.is_over()):
                return
            order = self._orders.pop(run, None)
            self._ended.popleft()
            if order is None:  # An interrupt came between these two lines.
                continue
            self.steering.end_step(order, self._result(run, profile, order))

    @staticmethod
    def _result(run: Run, profile: Profile, order: StepOrder) -> StepResult:
        planned = order.plan.groups if order.mode == "planned" and order.plan else None
        short = planned is not None and len(planned) != len(run.group_bytes)
        return StepResult(
            group_bytes=run.group_bytes,
            seconds=profile.seconds(),
            peak_bytes=run.peak_bytes,
            wait_seconds=profile.wait_seconds(),
            timeline=profile.timeline() if profile.detailed else None,
            followed=run.policy.deviated is None and not short,
            lanes=run.lanes,
        )

    # ------------------------------------------------------------------ memory

    def _peak(self, run: Run, profile: Profile) -> int:
        if self.device is None or self.device.type != "cuda":
            return run.peak_bytes
        # What did not rise above an earlier peak is taken for that of the last step that did.
        self._last_peak = profile.peak_bytes or self._last_peak
        return self._last_peak

    def _most_bytes(self) -> int | None:
        """What may be allocated on the device in all; None on the CPU."""
        if self.device is None or self.device.type != "cuda":
            return None
        free, total = torch.cuda.mem_get_info(self.device)
        reserved = torch.cuda.memory_reserved(self.device)
        fraction = torch.cuda.get_per_process_memory_fraction(self.device)
        most = min(free + reserved, math.floor(total * fraction))
        return int(most * _FRAGMENTS)

    # ------------------------------------------------------------------ while a step runs

    def saved(self, run: Run, group: Group, tensor: torch.Tensor) -> None:
        """A group is new, made for a tensor."""
        if self.device is None:
            self.device = group.device
        profile = run.profile
        if profile is None:
            return
        if self._meter is None:
            cuda = group.device.type == "cuda"
            self._meter = CudaMeter(group.device) if cuda else CpuMeter()
        if not profile.has_begun:
            profile.begin(self._meter)
        if profile.detailed:
            profile.saved(group, self._label(tensor))

    def _label(self, tensor: torch.Tensor) -> str:
        shape = "x".join(str(n) for n in tensor.shape)
        dtype = str(tensor.dtype).removeprefix("torch.")
        return f"{dtype} {shape} {self.modules.current()}".rstrip()

    def place_otherwise(
        self, run: Run, group: Group, outgoing: Outgoing, placement: Placement
    ) -> Placement:
        """Where a new group goes whose step is not the one planned: it may be another known one."""
        if self.steering is None:
            return placement
        order = self.steering.mismatch(run.group_bytes)
        self._orders[run] = order
        if order.mode == "planned" and order.plan is not None:
            run.policy = PlannedPolicy(order.plan, run.groups, self._streaming())
            return run.policy.place(group, outgoing)
        return placement

    def is_alive_elsewhere(self, group: Group) -> bool:
        """Whether something beside its group holds a group's memory, as far as that shows."""
        if group.held is None:
            return group.source.get() is not None
        if group.stored is not None and self._streams.kind(group.device) == "cpu":
            return False  # Its store holds it, too.
        count: int = torch._C._storage_Use_Count(group.held._cdata)
        return (group.state is KEPT or group.state is STORING) and count > 1

    # ------------------------------------------------------------------ to look at

    @property
    def plan(self) -> Plan | None:
        """The plan of the present step."""
        return None if self.steering is None else self.steering.current_plan

    def describe(self) -> dict[str, Any] | None:
        """What steering says."""
        return None if self.steering is None else self.steering.describe()
