# SPDX-License-Identifier: Apache-2.0
"""The planner at work: steps that are profiled, then planned, then run under the plan.

Each case trains for a dozen steps, so that every stage of it is passed.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from frameworks_processes import Outcome, assert_trained_alike, two_processes
from frameworks_support import Model, assert_equal, batch, gradients, seeded
from torch import nn
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)

import ssdtrain

STEPS = 12


@pytest.fixture
def planner(tmp_path: Path) -> Iterator[ssdtrain.Offloader]:
    torch.compiler.reset()
    off = ssdtrain.Offloader(tmp_path, 0, "64MiB", min_bytes=1, plan="auto", checks=True)
    yield off
    off.close()
    torch.compiler.reset()


def _save_products(context: Any, op: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
    products = {torch.ops.aten.addmm.default, torch.ops.aten.mm.default}
    return CheckpointPolicy.MUST_SAVE if op in products else CheckpointPolicy.PREFER_RECOMPUTE


def plain(model: Model) -> nn.Module:
    return model


def checkpointed(model: Model) -> nn.Module:
    model.around = lambda block, x: checkpoint(block, x, use_reentrant=False)
    return model


def reentrant(model: Model) -> nn.Module:
    model.around = lambda block, x: checkpoint(block, x, use_reentrant=True)
    return model


def selective(model: Model) -> nn.Module:
    contexts = functools.partial(create_selective_checkpoint_contexts, _save_products)
    model.around = lambda block, x: checkpoint(block, x, use_reentrant=False, context_fn=contexts)
    return model


def compiled(model: Model) -> nn.Module:
    return torch.compile(model, backend="aot_eager")


def compiled_blocks(model: Model) -> nn.Module:
    for block in model.blocks:
        block.compile(backend="aot_eager")
    return model


def autocast(model: Model) -> nn.Module:
    forward = model.forward
    model.forward = torch.autocast("cpu", torch.bfloat16)(forward)
    return model


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


CASES = [
    "ddp_planned", "one_forward_one_backward_planned", "one_forward_one_backward_by_stage_planned"
]  # fmt: skip


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Outcome]]:
    return two_processes(CASES, tmp_path_factory.mktemp("planned"))


@pytest.mark.parametrize("case", CASES)
def test_two_processes(case: str, outcomes: dict[str, list[Outcome]]) -> None:
    assert_trained_alike(outcomes[case], moves=False)
    assert all(outcome.report["steering"]["mode"] == "planned" for outcome in outcomes[case])


@pytest.mark.xfail(
    strict=True, reason="attach() asks the DTensor parameters of a model for their storage"
)
@pytest.mark.parametrize("case", ["fsdp2_planned", "tensor_parallel_planned"])
def test_attached_model_with_distributed_parameters(case: str, tmp_path: Path) -> None:
    assert_trained_alike(two_processes([case], tmp_path)[case], moves=False)
