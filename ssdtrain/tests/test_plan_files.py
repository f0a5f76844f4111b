# SPDX-License-Identifier: Apache-2.0
"""Plans and timelines as files: written, read, edited, and what is wrong with a bad one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from plan_steps import gpt, random_step

from ssdtrain.optimise import optimise
from ssdtrain.plan import GroupPlan, Limits, Plan, Where
from ssdtrain.timeline import Rates, Timeline, signature_of


@pytest.fixture
def timeline() -> Timeline:
    return random_step(3, 6)


@pytest.fixture
def plan(timeline: Timeline) -> Plan:
    found = optimise(timeline, Rates(4.0, 4.0), Limits(max_slowdown=0.5, host_bytes=1000))
    assert any(group.where is not Where.KEEP for group in found.groups)
    return found


def test_plans_and_timelines_come_back_as_they_were(
    timeline: Timeline, plan: Plan, tmp_path: Path
) -> None:
    plan.save(tmp_path / "plan.json")
    timeline.save(tmp_path / "step.json")
    assert Plan.load(tmp_path / "plan.json") == plan
    assert Timeline.load(tmp_path / "step.json") == timeline
    large = gpt(2048, 2, 0.1)
    large.save(tmp_path / "step.json")
    assert Timeline.load(tmp_path / "step.json") == large


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "something"}, '"format" must be "ssdtrain plan"'),
        ({"version": 99}, "version 99"),
        ({"grups": []}, r"unknown fields \['grups'\]"),
        ({"groups": 3}, "'groups' is 3, not a list"),
        ({"groups": [7]}, r"groups\[0\]: 7 is not an object"),
        ({"groups": [{}]}, r"groups\[0\]: 'nbytes' is missing"),
        ({"groups": [{"nbytes": -1}]}, "'nbytes' is -1"),
        ({"groups": [{"nbytes": True}]}, "'nbytes' is True"),
        ({"groups": [{"nbytes": 1, "where": "moon"}]}, "where is 'moon'; it must be one of"),
        ({"groups": [{"nbytes": 1, "where": "host"}]}, "without drop_at"),
        ({"groups": [{"nbytes": 1, "drop_at": 2}]}, "means nothing when where is 'keep'"),
        (
            {"groups": [{"nbytes": 1, "where": "host", "drop_at": 5, "load_at": 4}]},
            "load_at is tick 4, before drop_at, 5",
        ),
        (
            {"groups": [{"nbytes": 1, "where": "host", "drop_at": 1, "read_at": 1}]},
            "read_at means nothing when where is 'host'",
        ),
        ({"prediction": {"seconds": "1"}}, "'seconds' is '1', not a number"),
        ({"notes": [1]}, "'notes' is 1, not a text"),
    ],
)
def test_a_bad_plan_says_what_is_wrong_where(
    plan: Plan, tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    path = tmp_path / "plan.json"
    plan.save(path)
    data = json.loads(path.read_text()) | change
    path.write_text(json.dumps(data))
    with pytest.raises(ValueError, match=message) as caught:
        Plan.load(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("where", "change", "message"),
    [
        ("ticks", {"seconds": 1e9}, "before the tick before it"),
        ("ticks", {"kind": "lost"}, "kind is 'lost'"),
        ("ticks", {"group": 99}, "is of group 99; there are 6"),
        ("groups", {"saved_at": 3}, "tick 0 is the save of group 0, which has it at 3"),
        ("groups", {"released_after": 0}, "are not in order within 12 ticks"),
        ("groups", {"recompute_inputs": [77]}, "is computed from group 77"),
    ],
)
def test_a_bad_timeline_says_what_is_wrong_where(
    timeline: Timeline, tmp_path: Path, where: str, change: dict[str, Any], message: str
) -> None:
    path = tmp_path / "step.json"
    timeline.save(path)
    data = json.loads(path.read_text())
    data[where][0] |= change
    path.write_text(json.dumps(data))
    with pytest.raises(ValueError, match=message):
        Timeline.load(path)


@pytest.mark.parametrize("text", ["plan", "[" * 100_000, '{"groups": ' + "9" * 5000, "\0"])
def test_no_json_at_all(tmp_path: Path, text: str) -> None:
    path = tmp_path / "plan.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"plan\.json is not JSON"):
        Plan.load(path)
    with pytest.raises(OSError, match="missing"):
        Plan.load(tmp_path / "missing.json")


def test_editing(timeline: Timeline, plan: Plan) -> None:
    moved = next(i for i, group in enumerate(plan.groups) if group.where is Where.HOST)
    edited = plan.edit(moved, where="keep")
    assert edited.groups[moved] == GroupPlan(plan.groups[moved].nbytes, label=f"g{moved}")
    assert edited.prediction is None
    edited.check(timeline)
    with pytest.raises(ValueError, match=f"group {moved}: load_at is tick 0, before drop_at"):
        plan.edit(moved, drop_at=2, load_at=0)
    with pytest.raises(IndexError, match="group 6 of a plan of 6 groups"):
        plan.edit(6, where=Where.KEEP)
    with pytest.raises(TypeError, match="lod_at"):
        plan.edit(moved, lod_at=3)


def test_a_plan_is_checked_against_a_step(timeline: Timeline) -> None:
    keep = [GroupPlan(group.nbytes) for group in timeline.groups]
    Plan(tuple(keep)).check(timeline)
    with pytest.raises(ValueError, match="for 5 groups, the step has 6"):
        Plan(tuple(keep[1:])).check(timeline)
    other = [GroupPlan(group.nbytes + 1) for group in timeline.groups]
    with pytest.raises(ValueError, match="bytes in the plan and"):
        Plan(tuple(other)).check(timeline)
    plain = next(i for i, group in enumerate(timeline.groups) if group.recipe is None)
    with pytest.raises(ValueError, match=f"group {plain} has no recipe"):
        Plan(tuple(keep)).edit(plain, where="recompute").check(timeline)


def test_signatures_tell_sequences_apart() -> None:
    assert signature_of([1, 23]) != signature_of([12, 3])
    assert signature_of([1, 2]) != signature_of([2, 1])
    assert signature_of(iter([1, 2])) == signature_of((1, 2))
