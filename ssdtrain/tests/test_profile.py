# SPDX-License-Identifier: Apache-2.0
"""Timelines: ticks, memory of others, waits taken out, what frees and what does not."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import pytest
import torch
from torch import nn

import ssdtrain
from ssdtrain.policy import KeepPolicy, StreamingPolicy
from ssdtrain.profile import Profile
from ssdtrain.residency import Residency
from ssdtrain.run import Run
from ssdtrain.steps import Steps
from ssdtrain.streams import Streams


class FakeMeter:
    """A device whose clock and memory the test sets."""

    device_type: Literal["cuda", "cpu"] = "cuda"
    resident_known = True

    def __init__(self) -> None:
        self.now = 0.0
        self.bytes = 0
        self.highest = 0

    def mark(self) -> float:
        return self.now

    def seconds(self, begin: float, end: float) -> float:
        return end - begin

    def synchronize(self, mark: float) -> None:
        pass

    def has_passed(self, mark: float) -> bool:
        return True

    def allocated(self) -> tuple[int, int]:
        peak = self.highest
        self.start_anew()
        return self.bytes, peak

    def peak(self) -> int:
        return self.highest

    def start_anew(self) -> None:
        """As ``torch.cuda.reset_peak_memory_stats``."""
        self.highest = self.bytes

    def take(self, nbytes: int) -> None:
        self.bytes += nbytes
        self.highest = max(self.highest, self.bytes)


class Story:
    """Plays a step to a profile as the engine does."""

    def __init__(self) -> None:
        self.meter = FakeMeter()
        self.meter.take(1000)
        self.profile = Profile(detailed=True)
        self.profile.begin(self.meter)
        self.residency = Residency()
        self.residency.begin_step(self.profile)
        self.groups: list[Any] = []

    def save(self, nbytes: int) -> Any:
        self.meter.take(nbytes)
        group = SimpleNamespace(index=len(self.groups), nbytes=nbytes, is_resident=False)
        self.groups.append(group)
        self.profile.saved(group, "")
        self.residency.add(group)
        self.profile.tick("save", group, self.residency.nbytes)
        return group

    def drop(self, group: Any) -> None:
        self.meter.take(-group.nbytes)
        self.residency.remove(group)

    def load(self, group: Any) -> None:
        self.residency.add(group)
        self.meter.take(group.nbytes)

    def need(self, group: Any) -> None:
        self.profile.tick("need", group, self.residency.nbytes)

    def end(self) -> Any:
        self.profile.end(self.residency.nbytes)
        return self.profile.timeline()


def test_memory_of_others_does_not_depend_on_what_moves() -> None:
    found = []
    for moves in (False, True):
        story = Story()
        a = story.save(100)
        story.meter.take(50)  # Scratch that comes and goes.
        story.meter.take(-50)
        b = story.save(200)
        if moves:
            story.drop(a)
        story.meter.take(30)
        story.need(b)
        story.drop(b)
        story.profile.released(b)
        if moves:
            story.load(a)
        story.meter.take(7)
        story.need(a)
        story.drop(a)
        story.profile.released(a)
        story.meter.take(500)
        story.meter.take(-500)
        found.append(story.end())
    keep, moved = found
    assert [tick.others for tick in keep.ticks] == [1000, 1000, 1030, 1037]
    # A group's own bytes are others' until its save.
    assert [tick.others_peak for tick in keep.ticks] == [1100, 1200, 1030, 1037]
    assert keep.tail_peak == 1537
    assert keep.ticks == moved.ticks
    assert keep.tail_peak == moved.tail_peak
    assert [group.needed_at for group in keep.groups] == [3, 2]
    assert [group.released_after for group in keep.groups] == [3, 2]


def test_waits_are_taken_out() -> None:
    story = Story()
    a = story.save(100)
    story.meter.now = 1.0
    with story.profile.waiting():
        story.meter.now = 3.0
    b = story.save(100)
    story.meter.now = 4.0
    story.need(b)
    with story.profile.waiting():
        story.meter.now = 4.5
    story.meter.now = 5.0
    story.need(a)
    story.meter.now = 6.0
    timeline = story.end()
    assert [tick.seconds for tick in timeline.ticks] == [0.0, 1.0, 2.0, 2.5]
    assert timeline.seconds == 3.5
    assert story.profile.wait_seconds() == 2.5
    assert story.profile.seconds() == 6.0


def test_a_pass_that_needs_nothing_is_no_step() -> None:
    story = Story()
    story.save(100)
    assert story.end() is None


@pytest.mark.parametrize("detailed", [False, True])
def test_a_peak_that_users_start_anew_between_steps_is_known(detailed: bool) -> None:
    meter = FakeMeter()
    meter.take(1000)
    run = Run(1, KeepPolicy(""), Profile(detailed=detailed))
    assert run.profile is not None
    run.profile.begin(meter)
    groups: list[Any] = [SimpleNamespace(index=index, nbytes=100) for index in range(2)]
    for group in groups:
        meter.take(100)
        assert run.add(group) == group.index
        run.profile.saved(group, "")
        run.tick_of_save(group, 0)
    meter.take(300)
    meter.take(-300)
    for group in reversed(groups):
        run.tick_of_need(group, 0)
        meter.take(-100)
        run.released(group)
        run.released(group)  # An interrupt has come in between.
    meter.start_anew()
    meter.take(50)
    meter.take(-50)
    run.profile.end(0)
    assert run.profile.peak_bytes == 1500


def test_a_maximum_started_anew_within_a_step_is_not_its_peak() -> None:
    meter = FakeMeter()
    meter.take(1000)
    meter.take(500)
    meter.take(-500)
    profile = Profile(detailed=False)
    profile.begin(meter)
    meter.take(400)
    meter.take(-400)
    meter.start_anew()
    profile.end(0)
    assert profile.peak_bytes == 0  # Not known: no new maximum was seen.


def test_a_higher_peak_after_the_last_group_counts_too() -> None:
    meter = FakeMeter()
    run = Run(1, KeepPolicy(""), Profile(detailed=False))
    assert run.profile is not None
    run.profile.begin(meter)
    group: Any = SimpleNamespace(index=0, nbytes=100)
    run.add(group)
    run.tick_of_save(group, 0)
    run.tick_of_need(group, 0)
    run.released(group)
    meter.take(700)  # The optimizer.
    meter.take(-700)
    run.profile.end(0)
    assert run.profile.peak_bytes == 700


def test_an_earlier_peak_is_not_the_steps() -> None:
    meter = FakeMeter()
    meter.take(900)  # An evaluation before.
    meter.take(-900)
    steps = Steps(lambda: StreamingPolicy(0, 0, True), None, Streams())
    steps.device = torch.device("cuda")
    found = []
    for nbytes in (100, 1000, 1000, 500):
        run = Run(1, KeepPolicy(""), Profile(detailed=False))
        assert run.profile is not None
        run.profile.begin(meter)
        meter.take(nbytes)
        meter.take(-nbytes)
        run.profile.end(0)
        found.append(steps._peak(run, run.profile))
    assert found == [0, 1000, 1000, 1000]


class Watch:
    """Stands in for the planner's steering: keeps what it is told."""

    def __init__(self, mode: str) -> None:
        self.mode = mode
        self.results: list[Any] = []
        self.current_plan = None

    def begin_step(self, most_bytes: int | None) -> Any:
        return SimpleNamespace(mode=self.mode, plan=None, profile=True)

    def mismatch(self, group_bytes: Any) -> Any:
        raise AssertionError("nothing was planned")

    def end_step(self, order: Any, result: Any) -> None:
        self.results.append(result)

    def describe(self) -> None:
        return None


@pytest.mark.parametrize("mode", ["stream", "keep"])
def test_timeline_of_a_model(tmp_path: Path, mode: str) -> None:
    off = ssdtrain.Offloader(tmp_path, 0, "16MiB", min_bytes=1, backlog=0)
    watch = Watch(mode)
    off._engine.steps.steering = watch  # type: ignore[assignment]
    model = nn.Sequential(nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 16), nn.ReLU())
    x = torch.randn(8, 16)
    handle = off.attach(model)
    for _ in range(3):
        with off, torch.no_grad():  # Not a step.
            model(x)
        with off:
            y = model(x)
            loss = y.square().sum()
        loss.backward()
    with off:
        pass
    handle.remove()
    assert len(watch.results) == 3
    for result in watch.results[1:]:
        timeline = result.timeline
        kinds = [tick.kind for tick in timeline.ticks]
        assert kinds == sorted(kinds, key=["save", "need"].index)
        assert timeline.device_type == "cpu"
        assert not timeline.resident_known
        assert len(timeline.groups) == len(result.group_bytes) >= 2
        assert all(g.needed_at is not None for g in timeline.groups)
        if mode == "keep":  # While it is stored, the store holds it, too.
            # y is the local variable's, and the last group's.
            assert [g.frees for g in timeline.groups][-1] is False
        assert timeline.groups[0].frees
        assert timeline.groups[0].label.startswith("float32 8x16 1")
        assert 0 < timeline.ticks[-1].seconds <= timeline.seconds <= result.seconds
    off.close()


def test_steps_that_overlap_are_not_measured(tmp_path: Path) -> None:
    off = ssdtrain.Offloader(tmp_path, 0, "16MiB", min_bytes=1, backlog=0)
    watch = Watch("stream")
    off._engine.steps.steering = watch  # type: ignore[assignment]
    w = torch.randn(16, 16, requires_grad=True)
    losses = []
    for _ in range(3):
        with off:
            losses.append((w @ w).tanh().sum())
    for loss in losses:
        loss.backward()
    with off:
        pass
    assert len(watch.results) <= 1
    off.close()


def test_trace_of_an_offloader(tmp_path: Path) -> None:
    off = ssdtrain.Offloader(tmp_path, 0, "16MiB", min_bytes=1, plan="all", backlog=0)
    w = torch.randn(64, 64, requires_grad=True)
    for _ in range(2):
        with off:
            loss = (w @ w).tanh().sum()
        loss.backward()
    off.trace(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    names = [event.get("name") for event in events]
    assert "store" in names
    assert "load" in names
    assert "wait" in names
    assert any(event.get("ph") == "C" for event in events)
    off.close()
