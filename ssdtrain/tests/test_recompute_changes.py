# SPDX-License-Identifier: Apache-2.0
"""Bytes that change where neither a version nor the recorder shows it, while groups are dropped."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from null_streams import NullStreams
from test_computed_again import Orders, measured
from torch import nn

import ssdtrain
from datapath_core import Error
from ssdtrain.plan import Where

Check = Callable[..., Any]
Make = Callable[..., ssdtrain.Offloader]
# A cast's origin is only then not copied into the recipe.
LARGE = (640, 320)


@pytest.fixture(params=["cpu", "strict"])
def make(request: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    if request.param != "cpu":
        streams = NullStreams(0.0002, 1)
        monkeypatch.setattr(ssdtrain.offloader, "Streams", lambda: streams)
    made = []

    def offloader(**options: Any) -> ssdtrain.Offloader:
        given = {"spill": tmp_path, "host": "4MiB", "ssd": "16MiB", "min_bytes": 1024}
        off = ssdtrain.Offloader(**(given | options))
        off.attach(nn.Linear(1, 1))  # Recipes are recorded.
        made.append(off)
        return off

    yield offloader
    for off in made:
        off.close()


def planned(off: ssdtrain.Offloader, step: Callable[[], torch.Tensor], **others: Where) -> bool:
    """Computes again what has a recipe from here on; whether anything has."""
    plan = measured(off, Orders(**others), step)
    return Where.RECOMPUTE in [group.where for group in plan.groups]


class Norms(nn.Module):
    """Three equal norms; a kernel that PyTorch does not see writes to what the last one made."""

    def __init__(self) -> None:
        super().__init__()
        self.linears = nn.ModuleList([nn.Linear(32, 32) for _ in range(4)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.linears[0](x)
        for number, linear in enumerate(self.linears[1:]):
            x = nn.functional.layer_norm(x, (32,))
            if number == 2:
                x.detach().numpy()[:] *= 2
            x = linear(x)
        return x.square().mean()


@pytest.mark.parametrize("others", [Where.KEEP, Where.DISK])
def test_a_recipe_that_is_exact_says_nothing_of_an_equal_one(
    make: Make, same_step: Check, others: Where
) -> None:
    torch.manual_seed(0)
    model, x, off = Norms(), torch.randn(64, 32), make()
    assert planned(off, lambda: model(x), others=others)
    model.zero_grad()
    for _ in range(2):
        report = same_step(model, lambda: model(x), off)
        assert report["bytes"]["recompute"] == 2 * 64 * 32 * 4
        assert "no recipe" not in report["kept_by_reason"]


class Cast(nn.Module):
    """Saves a cast of its buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(LARGE))
        self.register_buffer("table", torch.randn(LARGE).bfloat16())

    def forward(self) -> torch.Tensor:
        return (self.weight * self.table.float()).sum()


def test_a_buffer_that_is_filled_anew_before_backward(make: Make) -> None:
    off, model = make(), Cast()
    planned(off, model)
    expected = model.table.float()
    model.zero_grad()
    with off:
        loss = model()
    model.table.add_(1)
    loss.backward()
    assert torch.equal(model.weight.grad, expected)


def test_the_origin_of_a_cast_that_changes_before_backward(make: Make) -> None:
    off, w, v = make(), torch.randn(LARGE, requires_grad=True), torch.randn(LARGE)
    v.requires_grad_()
    made = []

    def step() -> torch.Tensor:
        made[:] = [(v * 2).bfloat16()]
        return (w * made[0].float()).sum()

    assert planned(off, step)
    with off:
        loss = step()
    made[0].detach().add_(1)
    with pytest.raises(RuntimeError, match=r"an input of cast.* was changed in place after"):
        loss.backward()


def test_checks_find_that_what_a_group_is_computed_from_has_changed(make: Make) -> None:
    off, w, v = make(checks=True), torch.randn(64, 64), torch.randn(64, 64, requires_grad=True)
    w.requires_grad_()
    alive = []

    def step() -> torch.Tensor:
        a = w * 2.0
        alive[:] = [a]
        return (nn.functional.silu(a) * v).sum()

    assert planned(off, step)
    with off:
        loss = step()
    alive[0].detach().numpy()[:] = 0
    with pytest.raises(Error, match="computed again by silu came back changed"):
        torch.autograd.grad(loss, v)


@pytest.mark.parametrize("plan", [None, "auto"])
def test_a_write_that_no_version_shows_is_what_backward_sees(make: Make, plan: str | None) -> None:
    off = make(min_bytes=1, backlog=0, prefetch=0)
    a, b = (torch.randn(64, 32, requires_grad=True) for _ in range(2))

    def step() -> torch.Tensor:
        h = nn.functional.silu(a.detach() * 3)
        first = (h * a).sum()
        h.data.mul_(2)
        y = nn.functional.silu(h * b)
        return first + (y * y).sum()

    expected = torch.autograd.grad(step(), (a, b))
    if plan is None:
        planned(off, step, others=Where.DISK)
        a.grad = b.grad = None
    reasons: set[str] = set()
    for _ in range(4):
        with off:
            loss = step()
        found = torch.autograd.grad(loss, (a, b))
        assert torch.equal(found[0], expected[0])
        assert torch.equal(found[1], expected[1])
        reasons |= off.report()["kept_by_reason"].keys()
    assert "written to after the save" in reasons
