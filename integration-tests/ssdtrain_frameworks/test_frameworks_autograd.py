# SPDX-License-Identifier: Apache-2.0
"""Autograd's own features and mixed precision, on a transformer."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import pytest
import torch
from frameworks_support import Model, assert_same, batch, gradients, seeded

Context = AbstractContextManager[Any]


def test_training_with_an_optimiser(offloader: Any) -> None:
    def run(context: Context) -> dict[str, torch.Tensor]:
        model = seeded(Model)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        losses = []
        for step in range(4):
            optimizer.zero_grad()
            with context:
                # Another shape at each step.
                loss = model(batch(step, tokens=8 + step)).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        return {"losses": torch.stack(losses), **dict(model.named_parameters())}

    assert_same(run, offloader)


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("cache", [False, True])
def test_autocast(inside: bool, cache: bool, offloader: Any) -> None:
    def run(context: Context) -> dict[str, torch.Tensor]:
        model = seeded(Model)
        autocast = torch.autocast("cpu", torch.bfloat16, cache_enabled=cache)
        first, second = (context, autocast) if inside else (autocast, context)
        with first, second:
            loss = model(batch()).float().square().mean()
        loss.backward()
        return {"loss": loss, **gradients(model)}

    assert_same(run, offloader)


@pytest.mark.gpu
def test_scaled_float16_on_the_gpu(offloader: Any, tmp_path: Any) -> None:
    def run(context: Context) -> dict[str, torch.Tensor]:
        model = seeded(Model).cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
        scaler = torch.amp.GradScaler("cuda")
        losses = []
        for step in range(4):
            optimizer.zero_grad()
            with context, torch.autocast("cuda", torch.float16):
                loss = model(batch(step).cuda()).float().square().mean()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            losses.append(loss.detach())
        return {"losses": torch.stack(losses), **dict(model.named_parameters())}

    assert_same(run, offloader)


def test_accumulation_with_one_backward_at_the_end(offloader: Any) -> None:
    """Several forward passes wait for their backward, which comes in another order."""

    def run(context: Context) -> dict[str, torch.Tensor]:
        model = seeded(Model)
        losses = []
        for step in range(3):
            with context:
                losses.append(model(batch(step)).square().mean())
        for loss in (losses[1], losses[0], losses[2]):
            loss.backward()
        return {"losses": torch.stack(losses), **gradients(model)}

    assert_same(run, offloader)


def test_accumulation_step_by_step(offloader: Any) -> None:
    def run(context: Context) -> dict[str, torch.Tensor]:
        model = seeded(Model)
        for step in range(3):
            with context:
                loss = model(batch(step)).square().mean() / 3
            loss.backward()
        return gradients(model)

    assert_same(run, offloader)


def test_retained_graph(offloader: Any) -> None:
    def run(context: Context) -> dict[str, torch.Tensor]:
        model = seeded(Model)
        with context:
            y = model(batch())
            first, second = y.square().mean(), y.abs().mean()
        first.backward(retain_graph=True)
        first.backward(retain_graph=True)
        second.backward()
        return {"first": first, "second": second, **gradients(model)}

    assert_same(run, offloader)


@pytest.mark.parametrize("inside", [False, True])
def test_gradient_penalty(inside: bool, offloader: Any) -> None:
    """Double backward: what the first backward saves goes too when it runs inside."""

    def run(context: Context) -> dict[str, torch.Tensor]:
        model = seeded(lambda: torch.nn.Sequential(
            torch.nn.Linear(32, 64), torch.nn.Tanh(), torch.nn.Linear(64, 32), torch.nn.GELU()
        ))  # fmt: skip
        x = batch().requires_grad_()
        with context:
            loss = model(x).square().mean()
            if inside:
                (gradient,) = torch.autograd.grad(loss, x, create_graph=True)
        if not inside:
            (gradient,) = torch.autograd.grad(loss, x, create_graph=True)
        (loss + gradient.square().sum()).backward()
        return {"loss": loss, "input": x.grad, **gradients(model)}

    assert_same(run, offloader)


def test_hooks_of_others_inside_and_outside(offloader: Any) -> None:
    """Hooks do not stack in autograd: the innermost pair sees a tensor, whoever's it is."""
    seen = []

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        seen.append(tensor.shape)
        return tensor.detach().clone()

    def run(context: Context) -> dict[str, torch.Tensor]:
        model = seeded(lambda: Model(layers=3))
        others = torch.autograd.graph.saved_tensors_hooks
        with others(pack, lambda tensor: tensor), context:
            x = model.blocks[0](batch())
            with others(pack, lambda tensor: tensor):
                x = model.blocks[1](x)
            loss = model.head(model.blocks[2](x)).square().mean()
        loss.backward()
        return {"loss": loss, **gradients(model)}

    assert_same(run, offloader)
    assert seen
