# SPDX-License-Identifier: Apache-2.0
"""On a GPU, through pinned host memory: what the other files of this folder run on the CPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from frameworks_support import Model, assert_equal, batch, gradients, seeded
from frameworks_variants import (
    autocast,
    checkpointed,
    compiled,
    plain,
    reentrant,
    selective,
)
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

import ssdtrain

pytestmark = pytest.mark.gpu

# The fused kernels' backward may add in another order each time.
SAME_EACH_TIME = SDPBackend.MATH


@pytest.fixture
def pinned() -> Iterator[ssdtrain.Offloader]:
    off = ssdtrain.Offloader(None, "256MiB", min_bytes=1, plan="all", checks=True, backlog=0)
    yield off
    off.close()


def inductor(model: Model) -> nn.Module:
    return torch.compile(model)


@pytest.mark.parametrize(
    "change", [plain, checkpointed, reentrant, selective, compiled, inductor, autocast]
)
def test_same_training(change: Callable[[Model], nn.Module], pinned: ssdtrain.Offloader) -> None:
    def run(offload: bool) -> dict[str, torch.Tensor]:
        torch.compiler.reset()
        called = change(
            model := seeded(lambda: Model(dropout=0.0 if change is inductor else 0.1)).cuda()
        )
        losses = []
        for step in range(4):
            x = batch(step).cuda().requires_grad_()
            # Around backward as well: checkpointed attention runs there again.
            with sdpa_kernel(SAME_EACH_TIME):
                with pinned if offload else nullcontext():
                    loss = called(x).float().square().mean()
                loss.backward()
            losses.append(loss.detach())
        return {"losses": torch.stack(losses), **gradients(model)}

    expected = run(False)
    assert_equal(run(True), expected)
    report = pinned.report()
    assert report["bytes"]["host"] > 0
    assert report["faults"] == []


def test_transformers(tmp_path: Path, pinned: ssdtrain.Offloader) -> None:
    pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    from test_frameworks_transformers import llama, train

    from ssdtrain.integrations.transformers import OffloadCallback

    settings: dict[str, Any] = {"use_cpu": False, "bf16": True}
    with sdpa_kernel(SAME_EACH_TIME):
        expected, _ = train(tmp_path, llama, [], **settings)
        moved, _ = train(tmp_path, llama, [OffloadCallback(pinned)], **settings)
    assert_equal(moved, expected)
    assert pinned.report()["bytes"]["host"] > 0
