# SPDX-License-Identifier: Apache-2.0
"""Groups that a plan computes again: equal to the last bit, whatever happens to their inputs."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from null_streams import NullStreams
from torch import nn

import ssdtrain
from ssdtrain.plan import GroupPlan, Plan, Where

Check = Callable[..., Any]


class Orders:
    """Stands in for the planner: measures two steps, then computes again whatever has a recipe."""

    def __init__(self, others: Where = Where.KEEP) -> None:
        self.mode = "keep"
        self.others = others
        self.current_plan: Plan | None = None
        self.timeline: Any = None

    def begin_step(self, most_bytes: int | None) -> Any:
        return SimpleNamespace(
            mode=self.mode, plan=self.current_plan, profile=self.mode != "planned"
        )

    def mismatch(self, group_bytes: Any) -> Any:
        return SimpleNamespace(mode="stream", plan=None, profile=False)

    def end_step(self, order: Any, result: Any) -> None:
        self.timeline = result.timeline or self.timeline

    def describe(self) -> None:
        return None

    def plan(self) -> Plan:
        entries = []
        for group in self.timeline.groups:
            if group.recipe is not None and group.can_move:
                entries.append(GroupPlan(group.nbytes, Where.RECOMPUTE))
            elif self.others is Where.KEEP or not group.can_move:
                entries.append(GroupPlan(group.nbytes))
            else:
                entries.append(GroupPlan(group.nbytes, self.others, group.saved_at))
        self.mode, self.current_plan = "planned", Plan(tuple(entries))
        return self.current_plan


@pytest.fixture(params=["cpu", "strict"])
def off(
    request: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[ssdtrain.Offloader]:
    if request.param != "cpu":
        streams = NullStreams(0.0002, 1)
        monkeypatch.setattr(ssdtrain.offloader, "Streams", lambda: streams)
    made = ssdtrain.Offloader(tmp_path, "4MiB", "16MiB", min_bytes=1024, checks=True)
    yield made
    made.close()


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.down(nn.functional.gelu(self.up(self.norm(x))))
        return x + nn.functional.dropout(y, 0.2)


def measured(off: ssdtrain.Offloader, orders: Orders, step: Callable[[], torch.Tensor]) -> Plan:
    off._engine.steps.steering = orders  # type: ignore[assignment]
    for _ in range(2):
        with off:
            loss = step()
        loss.backward()
    with off:
        pass
    return orders.plan()


@pytest.mark.parametrize("others", [Where.KEEP, Where.DISK])
def test_bit_equal(off: ssdtrain.Offloader, same_step: Check, others: Where) -> None:
    torch.manual_seed(0)
    model, x = nn.Sequential(*[Block(32) for _ in range(3)]), torch.randn(64, 32)
    off.attach(model)
    plan = measured(off, Orders(others), lambda: model(x).square().mean())
    model.zero_grad()
    wheres = [group.where for group in plan.groups]
    assert wheres.count(Where.RECOMPUTE) >= 3
    for _ in range(3):
        report = same_step(model, lambda: model(x).square().mean(), off)
        assert report["deviated"] is None
        assert report["bytes"]["recompute"] > 0
        if others is Where.DISK:
            assert report["bytes"]["disk"] > 0
    gc.collect()
    assert off.report()["live_bytes"] == {}


def test_retain_graph_and_never(off: ssdtrain.Offloader) -> None:
    torch.manual_seed(0)
    model, x = Block(32), torch.randn(64, 32)
    off.attach(model)
    measured(off, Orders(), lambda: model(x).square().mean())
    model.zero_grad()
    torch.manual_seed(5)
    with off:
        loss = model(x).square().mean()
    loss.backward(retain_graph=True)
    first = model.up.weight.grad.clone()
    loss.backward()
    assert torch.equal(model.up.weight.grad, 2 * first)
    with off:
        loss = model(x).square().mean()
    del loss
    gc.collect()
    assert off.report()["live_bytes"] == {}


def test_an_input_that_changes_in_place(off: ssdtrain.Offloader) -> None:
    w = torch.randn(64, 64, requires_grad=True)
    v = torch.randn(64, 64, requires_grad=True)
    off.attach(nn.Linear(1, 1))

    def step(changes: bool) -> torch.Tensor:
        a = w * 2.0
        b = torch.nn.functional.silu(a)
        loss = (b * v).sum()  # Saves b, which is computed from a.
        if changes:
            a.detach().zero_()
        return loss

    plan = measured(off, Orders(), lambda: step(False))
    assert Where.RECOMPUTE in [group.where for group in plan.groups]
    v.grad = None
    expected = torch.nn.functional.silu(w.detach() * 2.0)
    with off:
        loss = step(True)
    assert off.report()["kept_by_reason"]["what it is computed from changed"]["bytes"] > 0
    # The other branch is what plain autograd refuses, too.
    (found,) = torch.autograd.grad(loss, v)
    assert torch.equal(found, expected)


def test_a_plan_that_wants_what_has_no_recipe(off: ssdtrain.Offloader, same_step: Check) -> None:
    torch.manual_seed(0)
    model, x = Block(32), torch.randn(64, 32)
    off.attach(model)
    orders = Orders()
    plan = measured(off, orders, lambda: model(x).square().mean())
    model.zero_grad()
    orders.current_plan = Plan(
        tuple(replace(g, where=Where.RECOMPUTE, drop_at=None, load_at=None) for g in plan.groups)
    )
    report = same_step(model, lambda: model(x).square().mean(), off)
    assert "no recipe" in report["kept_by_reason"]
