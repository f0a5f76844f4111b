# SPDX-License-Identifier: Apache-2.0
"""Which plan each step runs under: profiling, drift, alternating shapes, plans given by users."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from plan_steps import LINK, gpt

from ssdtrain.optimise import optimise
from ssdtrain.plan import Limits, Plan, Where
from ssdtrain.simulate import keep_everything, simulate
from ssdtrain.steering import (
    KEPT_STEPS,
    MOST_REPLANS,
    MOST_SIGNATURES,
    SKIPPED_STEPS,
    STEPS_OF_CALIBRATION,
    Steering,
    StepOrder,
    StepResult,
)
from ssdtrain.timeline import Rates, Timeline

GIB = 1 << 30
LIMITS = Limits(max_slowdown=0.02, host_bytes=64 * GIB)
STEP = gpt(8192, 2, 0.25)
OTHER = gpt(6144, 3, 0.25)


@dataclass
class Machine:
    """Plays what steering orders, as the engine would, with its own truth."""

    steering: Steering
    rates: Rates = LINK
    orders: list[StepOrder] = field(default_factory=list)

    def step(self, truth: Timeline, most_bytes: int | None = None) -> StepOrder:
        order = self.steering.begin_step(most_bytes)
        sizes = [group.nbytes for group in truth.groups]
        switched = False
        for position in range(len(sizes)):
            if order.plan is not None and (
                position >= len(order.plan.groups)
                or order.plan.groups[position].nbytes != sizes[position]
            ):
                order = self.steering.mismatch(sizes[: position + 1])
                switched = True
        if order.plan is not None and not switched:
            played = simulate(truth, self.rates, order.plan).prediction
        else:
            played = keep_everything(truth)
        self.steering.end_step(
            order,
            StepResult(
                sizes,
                played.seconds,
                played.peak_bytes,
                played.wait_seconds,
                truth if order.profile else None,
            ),
        )
        self.orders.append(order)
        return order

    def modes(self) -> list[str]:
        return [order.mode for order in self.orders]


def machine(limits: Limits = LIMITS, plan: Plan | None = None, rates: Rates = LINK) -> Machine:
    return Machine(Steering(limits, lambda: rates, plan))


def test_stream_then_keep_then_planned() -> None:
    found = machine()
    for _ in range(5):
        found.step(STEP)
    assert found.modes() == ["stream", "keep", "keep", "planned", "planned"]
    assert [order.profile for order in found.orders] == [True, True, True, False, False]
    plan = found.orders[-1].plan
    assert plan == optimise(STEP, LINK, LIMITS)
    described = found.steering.describe()
    assert described["mode"] == "planned"
    assert described["plans"] == 1
    assert described["replans"] == 0
    assert described["error"] == {"seconds": 0.0, "peak_bytes": 0.0}
    assert described["plan"]["bytes"]["host"] > 0
    assert sum(described["plan"]["bytes"].values()) == sum(g.nbytes for g in STEP.groups)
    assert found.steering.current_plan is plan


@pytest.mark.parametrize(
    ("limits", "most_bytes"),
    [(LIMITS, 3 * GIB), (Limits(max_memory=3 * GIB, host_bytes=64 * GIB), None)],
    ids=["no room on the device", "above max_memory"],
)
def test_nothing_is_kept_that_would_not_fit(limits: Limits, most_bytes: int | None) -> None:
    assert keep_everything(STEP).peak_bytes > 3 * GIB
    found = machine(limits)
    for _ in range(3):
        found.step(STEP, most_bytes)
    assert found.modes() == ["stream", "stream", "planned"]


def test_rates_are_measured_once_and_not_before_the_first_plan() -> None:
    calls = []

    def measure() -> Rates:
        calls.append(1)
        return LINK

    found = Machine(Steering(LIMITS, measure))
    found.step(STEP)
    assert not calls
    for _ in range(3):
        found.step(STEP)
        found.step(OTHER)
    assert len(calls) == 1


def test_passes_without_gradients_change_nothing() -> None:
    found = machine()
    found.step(STEP)
    for _ in range(3):
        order = found.steering.begin_step()
        found.steering.end_step(order, StepResult([], 0.01))
    found.step(STEP)
    found.step(STEP)
    found.step(STEP)
    assert found.modes() == ["stream", "keep", "keep", "planned"]


def test_alternating_shapes_each_have_a_plan() -> None:
    found = machine()
    for _ in range(8):
        found.step(STEP)
        found.step(OTHER)
    last = found.orders[-4:]
    assert [order.mode for order in last] == ["planned"] * 4
    assert [len(order.plan.groups) for order in last if order.plan] == [16, 24, 16, 24]
    assert found.steering.describe()["plans"] == 2
    # Expected, not noticed on the way.
    assert {order.reason for order in last} == {"plan made from measured steps"}
    assert found.steering.describe()["replans"] == 0


def test_an_unexpected_known_shape_gets_its_plan_on_the_way() -> None:
    found = machine()
    for truth in (STEP,) * 4 + (OTHER,) * 5 + (STEP,):
        found.step(truth)
    assert found.orders[4].mode == "stream"
    # OTHER was expected after OTHER.
    assert found.orders[-1].mode == "planned"
    assert found.orders[-1].reason == "another known step"
    assert found.orders[-1].plan == optimise(STEP, LINK, LIMITS)
    # Its begin was another plan's: that is no drift.
    for truth in (STEP, OTHER, OTHER) * 6:
        found.step(truth)
    assert any(order.partial for order in found.orders[-6:])
    assert found.steering.describe()["replans"] == 0


def test_a_step_that_is_kept_to_measure_it_may_turn_out_to_be_another() -> None:
    found = machine()
    found.step(STEP)
    order = found.steering.begin_step()
    assert order.mode == "keep"
    assert order.plan is not None
    assert {group.where for group in order.plan.groups} == {Where.KEEP}
    # Nobody knows whether this one fits.
    order = found.step(OTHER)
    assert (order.mode, order.partial) == ("stream", True)


def test_shapes_that_never_come_back_are_streamed_and_forgotten() -> None:
    found = machine()
    for position in range(2 * MOST_SIGNATURES):
        found.step(gpt(1024, 1, 0.01, tokens=1024 + 64 * position))
    assert set(found.modes()) <= {"stream", "keep", "planned"}
    for order in found.orders[1:]:
        # Whatever was begun, the step ended without a plan that was another's.
        assert order.plan is None
    assert len(found.steering._shapes) == MOST_SIGNATURES


def drifted(timeline: Timeline, factor: float) -> Timeline:
    ticks = tuple(dataclasses.replace(t, seconds=t.seconds * factor) for t in timeline.ticks)
    return dataclasses.replace(timeline, ticks=ticks, seconds=timeline.seconds * factor)


def test_drift_of_time_makes_a_new_plan_after_three_steps() -> None:
    found = machine()
    for _ in range(1 + KEPT_STEPS + SKIPPED_STEPS + 1):
        found.step(STEP)
    before = found.orders[-1].plan
    slower = drifted(STEP, 1.3)
    for _ in range(3):
        assert found.step(slower).plan is before
    order = found.step(slower)
    assert order.plan is not before
    described = found.steering.describe()
    assert described["replans"] == 1
    assert "step time +29.8%" in described["last_replan"]
    assert abs(described["error"]["seconds"]) < 0.01


def test_the_first_steps_under_a_plan_are_no_drift() -> None:
    found = machine()
    for _ in range(1 + KEPT_STEPS):
        found.step(STEP)
    slower = drifted(STEP, 2.0)
    for _ in range(SKIPPED_STEPS):
        found.step(slower)
    described = found.steering.describe()
    assert described["error"]["seconds"] > 0.5  # It is told, though.
    for _ in range(2):
        found.step(slower)
    for _ in range(8):
        found.step(STEP)
    assert found.steering.describe()["replans"] == 0


def test_steps_under_a_plan_from_kept_steps_are_not_profiled() -> None:
    found = machine()
    for _ in range(1 + KEPT_STEPS):
        found.step(STEP)
    slower = drifted(STEP, 1.3)
    for _ in range(SKIPPED_STEPS + 6):
        assert not found.step(slower).profile


def test_a_plan_from_a_streamed_step_is_profiled_when_it_drifts() -> None:
    found = machine()
    for _ in range(3):
        found.step(STEP, most_bytes=3 * GIB)
    assert found.modes() == ["stream", "stream", "planned"]
    for _ in range(SKIPPED_STEPS - 1):
        assert not found.step(STEP).profile
    slower = drifted(STEP, 1.3)
    assert [found.step(slower).profile for _ in range(4)] == [False, True, True, False]
    assert found.steering.describe()["replans"] == 1


def test_a_single_slow_step_is_not_drift() -> None:
    found = machine()
    for _ in range(4):
        found.step(STEP)
    for _ in range(4):
        found.step(drifted(STEP, 1.5))
        found.step(drifted(STEP, 1.5))
        found.step(STEP)
    assert found.steering.describe()["replans"] == 0


def test_slower_lanes_than_measured_are_found_out() -> None:
    found = machine()
    for _ in range(3):
        found.step(STEP)
    found.rates = dataclasses.replace(LINK, d2h=25e9, h2d=25e9, d2h_alone=25e9, h2d_alone=25e9)
    for _ in range(4 * (MOST_REPLANS + 1)):
        found.step(STEP)
    described = found.steering.describe()
    assert 1 <= described["replans"] <= MOST_REPLANS
    assert abs(described["error"]["seconds"]) < 0.03


def test_a_higher_peak_is_planned_with() -> None:
    found = machine()
    for _ in range(3):
        found.step(STEP)
    more = dataclasses.replace(
        STEP,
        ticks=tuple(
            dataclasses.replace(t, others=t.others + GIB, others_peak=t.others_peak + GIB)
            for t in STEP.ticks
        ),
    )
    for _ in range(SKIPPED_STEPS + 5):
        found.step(more)
    described = found.steering.describe()
    assert described["replans"] == 1
    assert "peak +" in described["last_replan"]
    assert abs(described["error"]["peak_bytes"]) < 0.01


def test_a_little_above_max_memory_is_too_much() -> None:
    limit = 5 * GIB
    found = machine(Limits(max_memory=limit, host_bytes=64 * GIB))
    for _ in range(3):
        found.step(STEP)
    more = GIB // 16
    ticks = tuple(
        dataclasses.replace(t, others=t.others + more, others_peak=t.others_peak + more)
        for t in STEP.ticks
    )
    for _ in range(SKIPPED_STEPS + 6):
        found.step(dataclasses.replace(STEP, ticks=ticks))
    described = found.steering.describe()
    assert described["replans"] == 1
    assert described["measured"]["peak_bytes"] <= limit


def test_replanning_ends_and_says_so() -> None:
    made: list[int] = []
    steps = 0

    def planner(timeline: Timeline, rates: Rates, limits: Limits) -> Plan:
        made.append(steps)
        plan = optimise(STEP, LINK, LIMITS)
        assert plan.prediction is not None
        return dataclasses.replace(plan, prediction=dataclasses.replace(plan.prediction, seconds=1))

    steering = Steering(LIMITS, lambda: LINK, planner=planner)
    sizes = [group.nbytes for group in STEP.groups]
    for steps in range(1, 1 + KEPT_STEPS + 5 * SKIPPED_STEPS + 3 + 6 + 12 + 24 + 24 + 6):
        order = steering.begin_step()
        # Each plan is better than the one before, none as good as it says, no two steps agree.
        seconds = 10 * 0.9 ** len(made) * (1 + 0.3 * (steps % 2))
        peak = keep_everything(STEP).peak_bytes
        if order.plan is not None and order.plan.prediction is not None:
            peak = order.plan.prediction.peak_bytes
        timeline = STEP if order.profile else None
        steering.end_step(order, StepResult(sizes, seconds, peak, 0.0, timeline))
    # Each is given twice as long as the one before.
    ages = [later - earlier - SKIPPED_STEPS for earlier, later in itertools.pairwise(made)]
    assert ages == [3, 6, 12, 24]
    described = steering.describe()
    assert described["replans"] == MOST_REPLANS
    assert any("still differ from the prediction" in note for note in described["notes"])


def test_new_plans_that_make_nothing_faster_are_made_once() -> None:
    calls = []

    def planner(timeline: Timeline, rates: Rates, limits: Limits) -> Plan:
        calls.append(timeline)
        return optimise(timeline, rates, limits)

    found = Machine(Steering(LIMITS, lambda: LINK, planner=planner))
    for _ in range(1 + KEPT_STEPS):
        found.step(STEP)
    # Slower and slower, whatever the plan.
    for count in range(40):
        found.step(drifted(STEP, 1.04**count))
    described = found.steering.describe()
    assert len(calls) == 2
    assert "back to an earlier plan" in described["last_replan"]
    assert any("still differ from the prediction" in note for note in described["notes"])


def test_what_is_faster_than_predicted_is_predicted_and_not_planned_again() -> None:
    found = machine(Limits(max_memory=8 * GIB, host_bytes=64 * GIB))
    for _ in range(1 + KEPT_STEPS):
        found.step(STEP)
    plan = found.steering.current_plan
    assert plan is not None
    assert any(group.where is not Where.KEEP for group in plan.groups)
    for _ in range(SKIPPED_STEPS + 2 * STEPS_OF_CALIBRATION):
        found.step(drifted(STEP, 0.9))
    described = found.steering.describe()
    assert described["replans"] == 0
    assert found.steering.current_plan.groups is plan.groups
    assert abs(described["error"]["seconds"]) < 0.01


def test_a_plan_given_is_followed_and_never_replaced() -> None:
    given = optimise(STEP, LINK, LIMITS)
    found = machine(plan=given)
    for _ in range(2):
        assert found.step(STEP).plan is given
    for _ in range(6):
        assert found.step(drifted(STEP, 1.5)).plan is given
    described = found.steering.describe()
    assert described["reason"] == "plan given by the user"
    assert described["replans"] == 0
    assert described["error"]["seconds"] > 0.4
    order = found.step(OTHER)
    assert (order.mode, order.plan) == ("stream", None)
    assert found.step(STEP).plan is given


def test_results_may_come_late() -> None:
    steering = Steering(LIMITS, lambda: LINK)
    sizes = [group.nbytes for group in STEP.groups]
    waiting: list[tuple[StepOrder, StepResult]] = []
    modes = []
    for _ in range(8):
        order = steering.begin_step()
        modes.append(order.mode)
        truth = keep_everything(STEP)
        if order.plan is not None:
            truth = simulate(STEP, LINK, order.plan).prediction
        timeline = STEP if order.profile else None
        waiting.append((order, StepResult(sizes, truth.seconds, truth.peak_bytes, 0.0, timeline)))
        if len(waiting) > 2:
            steering.end_step(*waiting.pop(0))
    assert modes[:3] == ["stream"] * 3
    assert modes[-1] == "planned"
    assert set(modes) == {"stream", "keep", "planned"}


def test_before_the_first_step_there_is_little_to_say() -> None:
    described = machine().steering.describe()
    assert described["plan"] is None
    assert described["measured"] is None
    assert described["plans"] == 0


def prefix(timeline: Timeline, count: int) -> Sequence[int]:
    return [group.nbytes for group in timeline.groups[:count]]


def test_a_mismatch_that_nobody_knows_is_streamed_and_profiled() -> None:
    found = machine()
    for _ in range(3):
        found.step(STEP)
    found.steering.begin_step()
    order = found.steering.mismatch([*prefix(STEP, 3), 77])
    assert (order.mode, order.profile) == ("stream", True)
