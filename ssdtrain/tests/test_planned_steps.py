# SPDX-License-Identifier: Apache-2.0
"""A plan is followed tick by tick; a step that is another one streams from there on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from null_streams import NullStreams
from torch import nn

import ssdtrain
from ssdtrain.plan import GroupPlan, Plan, Where
from ssdtrain.policy import PlannedPolicy

Make = Callable[..., ssdtrain.Offloader]
Check = Callable[..., Any]
WIDTH, BATCH, LAYERS = 16, 32, 4
NBYTES = 4 * WIDTH * BATCH


@pytest.fixture(params=["cpu", "strict", "ahead"])
def make(request: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    if request.param != "cpu":
        streams = NullStreams(0.0002, 1, runs_ahead=request.param == "ahead")
        monkeypatch.setattr(ssdtrain.offloader, "Streams", lambda: streams)
    made = []

    def offloader(plan: Plan | Path, **options: Any) -> ssdtrain.Offloader:
        given = {"spill": tmp_path, "host": "1MiB", "ssd": "1MiB", "min_bytes": NBYTES}
        off = ssdtrain.Offloader(**(given | options), plan=plan)
        made.append(off)
        return off

    yield offloader
    for off in made:
        off.close()


class Chain(nn.Module):
    """Saves one tensor a layer, each of ``NBYTES``, and needs them in reverse."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(WIDTH))

    def forward(self, x: torch.Tensor, layers: int = LAYERS) -> torch.Tensor:
        for _ in range(layers):
            x = (x * self.weight).sin()
        return x.sum()


def group(where: Where, drop: int | None = None, **ticks: int) -> GroupPlan:
    return GroupPlan(NBYTES, where, drop, ticks.get("read_at"), ticks.get("load_at"))


def recorded(off: ssdtrain.Offloader) -> list[tuple[str, int]]:
    """What the engine does from here on: (action, group)."""
    done: list[tuple[str, int]] = []
    stores, loads = off._engine._stores, off._engine._loads
    have_ended, start = stores.have_ended, loads.start

    def watched_have_ended(actions: Any) -> bool:
        done.extend(("drop", group.index) for group in actions.drops)
        return have_ended(actions)

    def watched_start(group: Any, what: Any) -> torch.Tensor:
        done.append(("load", group.index))
        return start(group, what)

    stores.have_ended, loads.start = watched_have_ended, watched_start  # type: ignore[method-assign]
    return done


def keep_plan(groups: int) -> list[GroupPlan]:
    return [group(Where.KEEP) for _ in range(groups)]


def groups_of_chain(layers: int = LAYERS) -> int:
    # Of each layer the factor of the product, but for the input, and the argument of the sine.
    return 2 * layers - 1


def test_ticks(make: Make, same_step: Check) -> None:
    count = groups_of_chain()
    entries = keep_plan(count)
    entries[0] = group(Where.DISK, drop=2, load_at=count + 3)
    entries[1] = group(Where.DISK, drop=5, load_at=count + 3)
    entries[3] = group(Where.DISK, drop=3, load_at=count + 2)
    off = make(Plan(tuple(entries)))
    model, x = Chain(), torch.randn(BATCH, WIDTH, requires_grad=True)
    done = recorded(off)
    report = same_step(model, lambda: model(x), off)
    drops = [entry for entry in done if entry[0] == "drop"]
    loads = [entry for entry in done if entry[0] == "load"]
    assert drops == [("drop", 0), ("drop", 3), ("drop", 1)]
    assert report["deviated"] is None
    assert loads == [("load", 3), ("load", 1), ("load", 0)]
    assert report["bytes"] == {
        "host": 0, "disk": 3 * NBYTES, "recompute": 0, "kept": (count - 3) * NBYTES,
    }  # fmt: skip
    assert report["kept_by_reason"]["planned to stay"]["bytes"] > 0


def test_plan_of_the_host_tier(make: Make, same_step: Check) -> None:
    count = groups_of_chain()
    entries = keep_plan(count)
    entries[1] = group(Where.HOST, drop=3, load_at=count + 2)
    off = make(Plan(tuple(entries)))
    model, x = Chain(), torch.randn(BATCH, WIDTH, requires_grad=True)
    report = same_step(model, lambda: model(x), off)
    assert report["deviated"] is None
    moved = report["bytes"]
    assert moved["host"] + moved["disk"] == NBYTES


@pytest.mark.parametrize("layers", [LAYERS - 1, LAYERS + 1])
def test_another_number_of_groups(make: Make, same_step: Check, layers: int) -> None:
    entries = [group(Where.DISK, drop=i) for i in range(groups_of_chain())]
    off = make(Plan(tuple(entries)))
    model, x = Chain(), torch.randn(BATCH, WIDTH, requires_grad=True)
    report = same_step(model, lambda: model(x, layers), off)
    if layers > LAYERS:
        assert "more than the" in report["deviated"]


def test_other_bytes(make: Make, same_step: Check) -> None:
    entries = [group(Where.DISK, drop=i) for i in range(groups_of_chain())]
    off = make(Plan(tuple(entries)))
    model, x = Chain(), torch.randn(2 * BATCH, WIDTH, requires_grad=True)
    report = same_step(model, lambda: model(x), off)
    assert f"group 0 has {2 * NBYTES} bytes" in report["deviated"]
    # The same offloader follows the plan again when its step comes back.
    x = torch.randn(BATCH, WIDTH, requires_grad=True)
    assert same_step(model, lambda: model(x), off)["deviated"] is None


def test_needed_before_planned(make: Make, same_step: Check) -> None:
    count = groups_of_chain()
    entries = [group(Where.DISK, drop=2 * count - 1, load_at=2 * count - 1) for _ in range(count)]
    off = make(Plan(tuple(entries)))
    model, x = Chain(), torch.randn(BATCH, WIDTH, requires_grad=True)
    assert "before planned" in same_step(model, lambda: model(x), off)["deviated"]


def test_a_plan_as_a_file(make: Make, same_step: Check, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    Plan(tuple(group(Where.DISK, drop=i) for i in range(groups_of_chain()))).save(path)
    off = make(path)
    model, x = Chain(), torch.randn(BATCH, WIDTH, requires_grad=True)
    report = same_step(model, lambda: model(x), off)
    assert report["bytes"]["disk"] > 0
    assert off.plan is not None
    assert off.plan.groups[0].where is Where.DISK


def test_policy_looks_at_no_group_that_is_gone() -> None:
    plan = Plan((group(Where.DISK, drop=0),))
    policy = PlannedPolicy(plan, [None], PlannedPolicy(plan, [], None))  # type: ignore[arg-type]
    assert list(policy._at(0).drops) == []


@pytest.mark.parametrize(
    ("entry", "text"),
    [
        (GroupPlan(NBYTES, Where.DISK), r"groups\[0\]: where is 'disk' without drop_at"),
        (GroupPlan(NBYTES, "attic"), "where is 'attic'"),
        (GroupPlan("8KiB"), "'nbytes' is '8KiB', not a whole number"),
        (GroupPlan(True), "'nbytes' is True"),
        (GroupPlan(-1), "'nbytes' is -1"),
        (GroupPlan(NBYTES, Where.DISK, 5, load_at=2), "load_at is tick 2, before drop_at, 5"),
        (GroupPlan(NBYTES, Where.DISK, -3), "'drop_at' is -3"),
        (GroupPlan(NBYTES, Where.DISK, 2.5), "'drop_at' is 2.5"),
        (GroupPlan(NBYTES, Where.KEEP, 3), "drop_at means nothing"),
        (NBYTES, "is 2048, not a GroupPlan"),
    ],
)
def test_plans_put_together_wrongly(tmp_path: Path, entry: Any, text: str) -> None:
    with pytest.raises((TypeError, ValueError), match=text):
        ssdtrain.Offloader(tmp_path, 0, "1MiB", plan=Plan((entry,)))


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_any_ticks_give_equal_gradients(make: Make, same_step: Check, data: st.DataObject) -> None:
    count = groups_of_chain()
    entries = []
    for _ in range(count):
        where = data.draw(st.sampled_from(list(Where)))
        ticks = sorted(data.draw(st.lists(st.integers(0, 3 * count), min_size=4, max_size=4)))
        if where in (Where.KEEP, Where.RECOMPUTE):
            entries.append(GroupPlan(NBYTES, where))
        else:
            read = None if where is Where.HOST else ticks[1]
            load = data.draw(st.sampled_from([None, ticks[2]]))
            entries.append(GroupPlan(NBYTES, where, ticks[0], read, load, "", ticks[3]))
    off = make(Plan(tuple(entries)), host=data.draw(st.sampled_from(["0", NBYTES - 1, "1MiB"])))
    off.attach(nn.Linear(1, 1))
    model, x = Chain(), torch.randn(BATCH, WIDTH, requires_grad=True)
    for _ in range(2):
        same_step(model, lambda: model(x), off)
    assert off.report()["live_bytes"] == {}
    off.close()
