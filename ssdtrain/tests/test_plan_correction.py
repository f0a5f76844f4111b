# SPDX-License-Identifier: Apache-2.0
"""What measured steps teach: contention of copies, the lasting clock, and when to plan anew."""

from __future__ import annotations

import dataclasses
import statistics
from pathlib import Path

import pytest
from plan_steps import LINK, gpt, micro_batches

from ssdtrain.correction import averaged, corrected, faster_drive, typical
from ssdtrain.optimise import optimise
from ssdtrain.plan import Limits, Plan, Prediction
from ssdtrain.simulate import keep_everything, simulate
from ssdtrain.steering import (
    KEPT_STEPS,
    SKIPPED_STEPS,
    STEPS_OF_CALIBRATION,
    Steering,
    StepResult,
)
from ssdtrain.timeline import Rates, Timeline

GIB = 1 << 30
RATES = Rates(d2h=53e9, h2d=53e9, overhead=2e-5)
LEARNING = SKIPPED_STEPS + STEPS_OF_CALIBRATION
MEASURED = Path(__file__).with_name("measured")
NAMES = ["gpt-12288x3-h200", "gpt-8192x4-h200"]
# Milliseconds of steps under one plan each, one after the other, hidden 8192 on an H200
# (docs/benchmarks/gpu/ssdtrain-offloading-4f7eb1a.txt).
STEPS_8192 = {
    0.03: [506.0, 548.1, 522.3, 543.2, 520.2, 538.0, 531.0, 528.7, 531.9, 527.0],
    0.06: [503.1, 542.2, 515.1, 532.9, 516.2, 532.3, 521.4, 528.7, 525.0, 527.0],
}


def load(name: str) -> Timeline:
    return Timeline.load(MEASURED / f"{name}.json")


def scaled(timeline: Timeline, factor: float) -> Timeline:
    ticks = tuple(dataclasses.replace(t, seconds=t.seconds * factor) for t in timeline.ticks)
    return dataclasses.replace(timeline, ticks=ticks, seconds=timeline.seconds * factor)


def result(timeline: Timeline, found: Prediction, seconds: float | None = None) -> StepResult:
    sizes = [group.nbytes for group in timeline.groups]
    seconds = found.seconds if seconds is None else seconds
    return StepResult(sizes, seconds, found.peak_bytes, found.wait_seconds)


def in_use(rates: Rates, seconds: float) -> dict[str, tuple[int, float]]:
    """Lanes of a step in which the drive was busy for so long in each direction."""
    lanes = {"write": rates.write, "read": rates.read}
    return {lane: (int(rate * seconds), seconds) for lane, rate in lanes.items()}


def predicted(plan: Plan) -> Prediction:
    assert plan.prediction is not None
    return plan.prediction


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("contention", [0.01, 0.025])
def test_contention_is_learnt_and_planned_with(name: str, contention: float) -> None:
    timeline = load(name)
    limits = Limits(max_slowdown=0.03, host_bytes=48 * GIB)
    plan = optimise(timeline, RATES, limits)
    truth = dataclasses.replace(RATES, contention=contention)
    played = simulate(timeline, truth, plan).prediction
    assert played.seconds > predicted(plan).seconds
    found, rates = corrected(timeline, RATES, plan, [result(timeline, played)] * 6, RATES)
    assert rates.contention == pytest.approx(contention, rel=0.15)
    assert found.seconds == pytest.approx(timeline.seconds, rel=1e-3)
    again = simulate(found, rates, plan).prediction
    assert again.seconds == pytest.approx(played.seconds, rel=2e-3)
    again = simulate(timeline, truth, optimise(found, rates, limits)).prediction
    assert again.seconds <= 1.031 * timeline.seconds
    assert again.peak_bytes < 0.8 * again.keep_peak_bytes


@pytest.mark.parametrize("name", NAMES)
def test_more_than_copies_can_do_is_the_clock(name: str) -> None:
    timeline = load(name)
    plan = optimise(timeline, RATES, Limits(max_slowdown=0.03, host_bytes=48 * GIB))
    slower = scaled(timeline, 1.05)
    assert slower.seconds == pytest.approx(1.05 * timeline.seconds)
    played = simulate(slower, RATES, plan).prediction
    found, rates = corrected(timeline, RATES, plan, [result(timeline, played)] * 6, RATES)
    assert rates.contention == 0.0
    assert found.seconds == pytest.approx(slower.seconds, rel=5e-3)
    # All is slower then, what keeps everything too.
    assert keep_everything(found).seconds == found.seconds


def test_a_plan_without_copies_says_nothing_about_contention() -> None:
    timeline = load(NAMES[0])
    limits = Limits(max_slowdown=0.03, allow_host=False)
    plan = optimise(timeline, Rates(), limits)
    played = dataclasses.replace(predicted(plan), seconds=1.01 * predicted(plan).seconds)
    _, rates = corrected(
        timeline, Rates(contention=0.02), plan, [result(timeline, played)], Rates()
    )
    assert rates.contention == 0.02


def test_contention_moves_less_and_takes_longer() -> None:
    timeline = load(NAMES[1])
    limits = Limits(max_slowdown=0.02, host_bytes=48 * GIB)
    plan = optimise(timeline, RATES, limits)
    before = simulate(timeline, RATES, plan)
    after = simulate(timeline, dataclasses.replace(RATES, contention=0.02), plan)
    busy = sum((t.end or 0) - (t.begin or 0) for t in before.transfers)
    added = after.prediction.seconds - before.prediction.seconds
    # Computation waits less where it is slower.
    assert 0 < added <= 0.02 * busy * 1.001
    assert after.prediction.keep_seconds == before.prediction.keep_seconds
    assert after.prediction.peak_bytes == before.prediction.peak_bytes


def test_typical_is_the_mean_of_the_middle_half() -> None:
    assert typical([1.0]) == 1.0
    assert typical([1.0, 2.0]) == 1.5
    assert typical([5.0, 1.0, 2.0, 100.0]) == 3.5
    assert typical(iter([0.0, 4.0, 6.0, 8.0, 10.0, 99.0])) == 7.0
    with pytest.raises(statistics.StatisticsError):
        typical([])


def test_kept_steps_count_together() -> None:
    timeline = load(NAMES[1])
    fast, slow = scaled(timeline, 0.97), scaled(timeline, 1.05)
    mean = averaged([fast, slow])
    assert mean.seconds == pytest.approx(1.01 * timeline.seconds)
    assert mean.ticks[5].seconds == pytest.approx(1.01 * timeline.ticks[5].seconds)
    assert mean.groups[0].nbytes == timeline.groups[0].nbytes


@pytest.mark.parametrize("slowdown", sorted(STEPS_8192))
def test_measured_steps_of_a_swinging_clock_are_predicted(slowdown: float) -> None:
    """The first steps under a plan teach what those after them take."""
    timeline = load(NAMES[1])
    steering = Steering(Limits(max_slowdown=slowdown, host_bytes=48 * GIB), lambda: RATES)
    kept = result(timeline, keep_everything(timeline))
    steering.end_step(steering.begin_step(), dataclasses.replace(kept, timeline=timeline))
    # After a pause the first runs above the lasting clock, the second below.
    for factor in (0.965, 1.03):
        order = steering.begin_step()
        assert order.mode == "keep"
        found = scaled(timeline, factor)
        steering.end_step(order, dataclasses.replace(kept, timeline=found))
    steps = [ms / 1e3 for ms in STEPS_8192[slowdown]]
    for seconds in steps[:LEARNING]:
        order = steering.begin_step()
        assert order.plan is not None
        steering.end_step(order, result(timeline, predicted(order.plan), seconds))
    plan = steering.current_plan
    assert plan is not None
    later = statistics.fmean(steps[LEARNING:])
    assert predicted(plan).seconds == pytest.approx(later, rel=0.02)
    assert predicted(plan).peak_bytes == predicted(steering.begin_step().plan or plan).peak_bytes


def prepared(limits: Limits) -> tuple[Steering, Timeline]:
    timeline = load(NAMES[1])
    steering = Steering(limits, lambda: RATES)
    kept = dataclasses.replace(result(timeline, keep_everything(timeline)), timeline=timeline)
    for _ in range(1 + KEPT_STEPS):
        steering.end_step(steering.begin_step(), kept)
    return steering, timeline


def run(steering: Steering, timeline: Timeline, rates: Rates, steps: int) -> None:
    for _ in range(steps):
        order = steering.begin_step()
        assert order.plan is not None
        played = simulate(timeline, rates, order.plan).prediction
        steering.end_step(order, result(timeline, played))


def test_a_prediction_is_corrected_without_another_plan() -> None:
    steering, timeline = prepared(Limits(max_slowdown=0.03, host_bytes=48 * GIB))
    before = steering.begin_step().plan
    slower = scaled(timeline, 1.028)
    run(steering, slower, RATES, LEARNING)
    after = steering.begin_step().plan
    assert before is not None
    assert after is not None
    assert after.groups is before.groups
    expected = simulate(slower, RATES, before).prediction.seconds
    assert expected > 1.015 * predicted(before).seconds
    assert predicted(after).seconds == pytest.approx(expected, rel=0.003)
    described = steering.describe()
    assert described["replans"] == 0
    run(steering, slower, RATES, 3)
    assert abs(steering.describe()["error"]["seconds"]) < 0.002


def test_a_plan_that_breaks_its_promise_is_replaced() -> None:
    limits = Limits(max_slowdown=0.02, host_bytes=48 * GIB)
    steering, timeline = prepared(limits)
    truth = dataclasses.replace(RATES, contention=0.025)
    run(steering, timeline, truth, LEARNING)
    described = steering.describe()
    assert described["replans"] == 1
    assert "slower than with everything kept, 2.0% allowed" in described["last_replan"]
    plan = steering.begin_step().plan
    assert plan is not None
    assert simulate(timeline, truth, plan).prediction.seconds <= 1.0225 * timeline.seconds


def test_steps_that_disagree_correct_nothing() -> None:
    steering, timeline = prepared(Limits(max_slowdown=0.03, host_bytes=48 * GIB))
    plan = steering.begin_step().plan
    assert plan is not None
    for factor in (1.0, 1.6, 1.0, 1.6, 1.0, 1.6, 1.0, 1.6):
        order = steering.begin_step()
        seconds = factor * predicted(plan).seconds
        steering.end_step(order, result(timeline, predicted(plan), seconds))
    assert steering.begin_step().plan is plan


def test_waits_that_were_not_planned_are_planned_away() -> None:
    """Swings of the clock keep three steps in a row from drifting: the mean counts."""
    timeline = load(NAMES[1])
    others = min(tick.others for tick in timeline.ticks)
    limits = Limits(max_memory=others + 8 * GIB, host_bytes=64 * GIB)
    steering = Steering(limits, lambda: RATES)
    kept = dataclasses.replace(result(timeline, keep_everything(timeline)), timeline=timeline)
    for _ in range(2):
        steering.end_step(steering.begin_step(), kept)
    truth = dataclasses.replace(RATES, d2h=46e9, h2d=46e9)
    waits = []
    for step in range(6 * LEARNING):
        order = steering.begin_step()
        assert order.plan is not None
        played = simulate(timeline, truth, order.plan).prediction
        waits.append(played.wait_seconds)
        swing = (1.02, 0.94)[step % 2]
        steering.end_step(order, result(timeline, played, swing * played.seconds))
    assert waits[0] > 0.02 * timeline.seconds
    assert waits[-1] < 0.01 * timeline.seconds
    assert "of the step more than planned" in str(steering.describe()["last_replan"])


def test_a_clock_that_swings_is_no_drift() -> None:
    steering, timeline = prepared(Limits(max_slowdown=0.03, host_bytes=48 * GIB))
    plan = steering.begin_step().plan
    assert plan is not None
    for step in range(3 * LEARNING):
        seconds = (1.04, 0.96)[step % 2] * predicted(plan).seconds
        steering.end_step(steering.begin_step(), result(timeline, predicted(plan), seconds))
    assert steering.begin_step().plan is plan
    assert steering.describe()["replans"] == 0


def test_a_drive_is_planned_with_as_it_is_in_use() -> None:
    step = micro_batches(gpt(8192, 2, 0.5 / 8, tokens=1024), 8)
    assumed = dataclasses.replace(LINK, write=1.6e9, read=5e9, write_alone=1.7e9)
    truth = dataclasses.replace(LINK, write=2.2e9, read=5e9)
    limits = Limits(None, 0.01, GIB, 100 * GIB, allow_host=False, staging_bytes=GIB,
                    allow_recompute=False)  # fmt: skip
    steering = Steering(limits, lambda: assumed)
    for _ in range(1 + KEPT_STEPS + 2 * LEARNING):
        order = steering.begin_step()
        found = keep_everything(step)
        if order.mode == "planned":
            assert order.plan is not None
            found = simulate(step, truth, order.plan).prediction
        timeline = step if order.profile else None
        measured = dataclasses.replace(result(step, found), timeline=timeline,
                                       lanes=in_use(truth, 0.1))  # fmt: skip
        steering.end_step(order, measured)
    assert steering.describe()["replans"] == 1
    assert (
        "the drive writes 2.20 GB/s where 1.70 were assumed" in steering.describe()["last_replan"]
    )
    plan = steering.current_plan
    assert plan is not None
    best = predicted(optimise(step, truth, limits))
    assert predicted(plan).disk_bytes == pytest.approx(best.disk_bytes, rel=0.05)
    assert predicted(plan).disk_bytes > 1.2 * predicted(optimise(step, assumed, limits)).disk_bytes


def test_a_few_bytes_say_nothing_about_a_drive() -> None:
    rates = dataclasses.replace(LINK, write=1e9, read=1e9)
    moved = StepResult([1], 1.0, lanes={"write": (1 << 20, 1e-4), "read": (0, 0.0)})
    assert faster_drive(rates, [moved] * 6) == ""
    moved = dataclasses.replace(moved, lanes={"write": (1 << 30, 0.5)})
    assert "2.15 GB/s" in faster_drive(rates, [moved] * 6)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("part", [0.5, 0.2, 0.0])
def test_fewer_waits_than_expected_do_not_make_lanes_faster_than_measured(
    name: str, part: float
) -> None:
    timeline = load(name)
    plan = optimise(timeline, LINK, Limits(max_slowdown=0.03, host_bytes=48 * GIB))
    found = predicted(plan)
    assert found.wait_seconds > 0.01 * timeline.seconds
    less = (1 - part) * found.wait_seconds
    measured = dataclasses.replace(
        result(timeline, found, found.seconds - less), wait_seconds=part * found.wait_seconds
    )
    _, rates = corrected(timeline, LINK, plan, [measured] * 6, LINK)
    assert (rates.d2h, rates.h2d) == (LINK.d2h, LINK.h2d)
    # Lanes that were thought slower may be as fast as they were measured again.
    slow = dataclasses.replace(LINK, d2h=39.2e9, h2d=39.2e9, d2h_alone=44e9, h2d_alone=44e9)
    plan = optimise(timeline, slow, Limits(max_slowdown=0.03, host_bytes=48 * GIB))
    found = predicted(plan)
    measured = dataclasses.replace(
        result(timeline, found, found.seconds - found.wait_seconds), wait_seconds=0.0
    )
    _, rates = corrected(timeline, slow, plan, [measured] * 6, LINK)
    assert 39.2e9 < rates.d2h <= LINK.d2h * (1 + 1e-9)
    assert rates.d2h_alone <= LINK.d2h_alone * (1 + 1e-9)


def test_a_step_that_waited_for_its_host_is_no_measure_of_the_device() -> None:
    timeline = load(NAMES[0])
    swing = averaged([scaled(timeline, 0.96), scaled(timeline, 1.04)])
    assert swing.seconds == pytest.approx(timeline.seconds)
    assert swing.ticks[-1].seconds == pytest.approx(timeline.ticks[-1].seconds)
    assert averaged([scaled(timeline, 1.4), timeline]) == timeline
    assert averaged([timeline, scaled(timeline, 1.4)]) == timeline
