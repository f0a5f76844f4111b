# SPDX-License-Identifier: Apache-2.0
"""Activation checkpointing in all its forms, inside the offloader."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest
import torch
from frameworks_support import Model, assert_same, batch, gradients, seeded
from torch import nn
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)

HAS_RESPECT = "respect_saved_tensors_hooks" in inspect.signature(checkpoint).parameters

Around = Callable[[nn.Module, torch.Tensor], torch.Tensor]


def _run(around: Around, inside: bool, context: AbstractContextManager[Any]) -> Any:
    model = seeded(Model)
    model.around = around
    # Reentrant checkpointing needs an input with gradients.
    x = batch().requires_grad_()
    with context:
        loss = model(x).square().mean()
        if inside:
            loss.backward()
    if not inside:
        loss.backward()
    return {"loss": loss, "input": x.grad, **gradients(model)}


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoint(reentrant: bool, inside: bool, offloader: Any) -> None:
    def around(block: nn.Module, x: torch.Tensor) -> torch.Tensor:
        return checkpoint(block, x, use_reentrant=reentrant)

    assert_same(functools.partial(_run, around, inside), offloader)


def test_boundary_tensors_are_what_goes(offloader: Any) -> None:
    plain = assert_same(functools.partial(_run, lambda block, x: block(x), False), offloader)
    report = assert_same(
        functools.partial(_run, lambda b, x: checkpoint(b, x, use_reentrant=False), False),
        offloader,
    )
    assert report["bytes"]["disk"] < plain["bytes"]["disk"] / 3


@pytest.mark.parametrize("early_stop", [False, True])
def test_nested_checkpoints(early_stop: bool, offloader: Any) -> None:
    def inner(block: nn.Module, x: torch.Tensor) -> torch.Tensor:
        y = checkpoint(block, x, use_reentrant=False, early_stop=early_stop)
        return block(y.tanh())

    def around(block: nn.Module, x: torch.Tensor) -> torch.Tensor:
        return checkpoint(inner, block, x, use_reentrant=False, early_stop=early_stop)

    assert_same(functools.partial(_run, around, False), offloader)


def test_offloader_inside_a_checkpoint(offloader: Any) -> None:
    def run(context: AbstractContextManager[Any]) -> dict[str, torch.Tensor]:
        model = seeded(Model)

        def blocks(x: torch.Tensor) -> torch.Tensor:
            with context:
                return model(x)

        x = batch().requires_grad_()
        loss = checkpoint(blocks, x, use_reentrant=False).square().mean()
        loss.backward()
        return {"loss": loss, "input": x.grad, **gradients(model)}

    assert_same(run, offloader)


def _save_products(context: Any, op: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
    products = {torch.ops.aten.addmm.default, torch.ops.aten.mm.default}
    return CheckpointPolicy.MUST_SAVE if op in products else CheckpointPolicy.PREFER_RECOMPUTE


@pytest.mark.parametrize(
    "respect",
    [
        None,
        pytest.param(False, marks=pytest.mark.skipif(not HAS_RESPECT, reason="not in this torch")),
        pytest.param(True, marks=pytest.mark.skipif(not HAS_RESPECT, reason="not in this torch")),
    ],
)
@pytest.mark.filterwarnings("ignore:.*respect_saved_tensors_hooks.*")
def test_selective_checkpoint(respect: bool | None, offloader: Any) -> None:
    """With ``respect`` what the policy saves goes too; without it only the boundary tensors."""
    contexts = functools.partial(create_selective_checkpoint_contexts, _save_products)
    more = {} if respect is None else {"respect_saved_tensors_hooks": respect}

    def around(block: nn.Module, x: torch.Tensor) -> torch.Tensor:
        return checkpoint(block, x, use_reentrant=False, context_fn=contexts, **more)

    def boundary(block: nn.Module, x: torch.Tensor) -> torch.Tensor:
        return checkpoint(block, x, use_reentrant=False)

    selective = assert_same(functools.partial(_run, around, False), offloader)
    alone = assert_same(functools.partial(_run, boundary, False), offloader)
    if respect:
        assert selective["bytes"]["disk"] > alone["bytes"]["disk"]
    elif respect is False:
        assert selective["bytes"]["disk"] == alone["bytes"]["disk"]
