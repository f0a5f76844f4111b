# SPDX-License-Identifier: Apache-2.0
"""Which of several plans that were tried is the best, and when steering goes back to it."""

from __future__ import annotations

import dataclasses

import pytest
from plan_steps import LINK, gpt

from ssdtrain.optimise import optimise
from ssdtrain.plan import Limits, Plan
from ssdtrain.shapes import Tried, best_of
from ssdtrain.simulate import keep_everything, simulate
from ssdtrain.steering import KEPT_STEPS, SKIPPED_STEPS, Steering, StepResult
from ssdtrain.timeline import Rates, Timeline

GIB = 1 << 30
STEP = gpt(8192, 2, 0.25)
BELIEVED = dataclasses.replace(LINK, d2h=200e9, h2d=200e9, d2h_alone=200e9, h2d_alone=200e9)
LIMITS = Limits(max_slowdown=0.02, host_bytes=64 * GIB)


def tried(seconds: float, peak: int) -> Tried:
    return Tried(Plan(()), seconds, peak)


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        # Fast enough with the lowest peak; the fastest, if none is; 0.02 if nothing is said.
        (Limits(max_slowdown=0.05), 1),
        (Limits(max_slowdown=0.001), 0),
        (Limits(), 0),
        # Below the ceiling and the fastest; the fastest, if none is below.
        (Limits(max_memory=60), 2),
        (Limits(max_memory=40), 0),
    ],
)
def test_the_best_keeps_to_its_limits(limits: Limits, expected: int) -> None:
    plans = [tried(1.02, 100), tried(1.04, 70), tried(1.2, 50)]
    assert best_of(plans, limits, 1.0) is plans[expected]


def test_of_equals_the_last_stays() -> None:
    plans = [tried(1.01, 50), tried(1.01, 50)]
    assert best_of(plans, LIMITS, 1.0) is plans[1]


def test_steering_goes_back_to_a_plan_that_did_better_than_all_that_came_after() -> None:
    plans: list[Plan] = []

    def planner(timeline: Timeline, rates: Rates, limits: Limits) -> Plan:
        # The first is good, all others believe in lanes that there are not; none knows its time.
        plan = optimise(STEP, BELIEVED if plans else LINK, limits)
        assert plan.prediction is not None
        wrong = dataclasses.replace(plan.prediction, seconds=plan.prediction.seconds / 1.2)
        plans.append(dataclasses.replace(plan, prediction=wrong))
        return plans[-1]

    steering = Steering(LIMITS, lambda: LINK, planner=planner)
    sizes = [group.nbytes for group in STEP.groups]
    for _ in range(1 + KEPT_STEPS + 3 * SKIPPED_STEPS + 3 + 6 + 6):
        order = steering.begin_step()
        found = keep_everything(STEP)
        if order.mode == "planned":
            assert order.plan is not None
            found = simulate(STEP, LINK, order.plan).prediction
        timeline = STEP if order.profile else None
        steering.end_step(
            order,
            StepResult(sizes, found.seconds, found.peak_bytes, found.wait_seconds, timeline),
        )
    # The second is no faster, so that nobody asks for a third.
    assert len(plans) == 2
    told = steering.describe()
    assert steering.current_plan is not None
    assert steering.current_plan.groups is plans[0].groups
    assert "back to an earlier plan" in told["last_replan"]
    assert told["error"] == {"seconds": 0.0, "peak_bytes": 0.0}
    assert told["notes"] == list(plans[0].notes)
