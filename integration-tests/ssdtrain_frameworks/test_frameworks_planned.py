# SPDX-License-Identifier: Apache-2.0
"""The planner at work: steps that are profiled, then planned, then run under the plan.

Each case trains for a dozen steps, so that every stage of it is passed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch
from frameworks_processes import Outcome, assert_trained_alike, two_processes
from frameworks_support import Model, assert_equal, batch, gradients, seeded
from frameworks_variants import (
    autocast,
    checkpointed,
    compiled,
    compiled_blocks,
    plain,
    reentrant,
    selective,
)
from torch import nn

import ssdtrain

STEPS = 12


@pytest.fixture
def planner(tmp_path: Path) -> Iterator[ssdtrain.Offloader]:
    torch.compiler.reset()
    off = ssdtrain.Offloader(tmp_path, 0, "64MiB", min_bytes=1, plan="auto", checks=True)
    yield off
    off.close()
    torch.compiler.reset()


@pytest.mark.parametrize("attach", [False, True])
@pytest.mark.parametrize(
    "change",
    [plain, checkpointed, reentrant, selective, compiled, compiled_blocks, autocast],
)
def test_same_training(
    change: Callable[[Model], nn.Module], attach: bool, planner: ssdtrain.Offloader
) -> None:
    def run(offload: bool) -> dict[str, torch.Tensor]:
        torch.compiler.reset()
        dropout = 0.0 if "compiled" in change.__name__ else 0.1
        model = seeded(lambda: Model(dropout=dropout))
        called = change(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        losses = []
        if offload and attach:
            planner.attach(model)
        for step in range(STEPS):
            optimizer.zero_grad()
            with planner if offload else nullcontext():
                loss = called(batch(step).requires_grad_()).float().square().mean()
            loss.backward()
            losses.append(loss.detach())
            found = gradients(model)
            optimizer.step()
        return {"losses": torch.stack(losses), **found}

    expected = run(False)
    assert_equal(run(True), expected)
    report = planner.report()
    assert report["faults"] == []
    assert report["steering"]["mode"] == "planned"


def test_evaluation_between_the_steps(planner: ssdtrain.Offloader) -> None:
    """Passes without gradients, and steps of another shape, neither train nor disturb a plan."""

    def run(offload: bool) -> dict[str, torch.Tensor]:
        model = seeded(Model)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        losses = []
        if offload:
            planner.attach(model)
        for step in range(2 * STEPS):
            with planner if offload else nullcontext():
                loss = model(batch(step, tokens=8 if step % 2 else 12)).square().mean()
            loss.backward()
            losses.append(loss.detach())
            optimizer.step()
            optimizer.zero_grad()
            with torch.no_grad(), planner if offload else nullcontext():
                losses.append(model(batch(step, tokens=20)).square().mean())
        return {"losses": torch.stack(losses), **dict(model.named_parameters())}

    expected = run(False)
    assert_equal(run(True), expected)
    report = planner.report()
    assert report["faults"] == []
    assert report["live_bytes"] == {}


CASES = [
    "ddp_planned", "fsdp2_planned", "tensor_parallel_planned",
    "one_forward_one_backward_planned", "one_forward_one_backward_by_stage_planned",
]  # fmt: skip


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Outcome]]:
    return two_processes(CASES, tmp_path_factory.mktemp("planned"))


@pytest.mark.parametrize("case", CASES)
def test_two_processes(case: str, outcomes: dict[str, list[Outcome]]) -> None:
    assert_trained_alike(outcomes[case], moves=False)
    assert all(outcome.report["steering"]["mode"] == "planned" for outcome in outcomes[case])
