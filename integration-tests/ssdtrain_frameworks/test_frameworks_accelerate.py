# SPDX-License-Identifier: Apache-2.0
"""A loop with Accelerate: the context around the forward pass, or a wrapped model."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest
import torch
from frameworks_support import Model, assert_same, batch, gradients, seeded
from packages import needed

accelerate = needed("accelerate")

from ssdtrain.integrations import wrap_forward  # noqa: E402


@pytest.fixture(autouse=True)
def _fresh_state() -> Iterator[None]:
    yield
    accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)


def _run(
    precision: str, how: str, accumulate: int, off: AbstractContextManager[Any]
) -> dict[str, torch.Tensor]:
    accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)
    accelerator = accelerate.Accelerator(
        cpu=True, mixed_precision=precision, gradient_accumulation_steps=accumulate
    )
    model = seeded(Model)
    offload = not isinstance(off, nullcontext)
    if offload and how == "wrapped before":
        wrap_forward(model, off)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    model, optimizer = accelerator.prepare(model, optimizer)
    if offload and how == "wrapped after":
        wrap_forward(model, off)
    losses = []
    for step in range(4):
        with accelerator.accumulate(model):
            with off if how == "context" else nullcontext():
                loss = model(batch(step)).square().mean()
            accelerator.backward(loss)
            losses.append(loss.detach())
            found = gradients(model)
            optimizer.step()
            optimizer.zero_grad()
    return {"losses": torch.stack(losses), **found, **accelerator.unwrap_model(model).state_dict()}


@pytest.mark.parametrize("how", ["context", "wrapped before", "wrapped after"])
@pytest.mark.parametrize("precision", ["no", "bf16"])
def test_loop(precision: str, how: str, offloader: Any) -> None:
    assert_same(functools.partial(_run, precision, how, 1), offloader)


def test_accumulation(offloader: Any) -> None:
    assert_same(functools.partial(_run, "no", "wrapped after", 2), offloader)


def test_unwrapping_the_model_takes_the_wrapper_off(offloader: Any) -> None:
    """``keep_fp32_wrapper=False`` means every wrapper; what was wrapped later goes with it."""
    accelerator = accelerate.Accelerator(cpu=True, mixed_precision="bf16")
    model = accelerator.prepare(Model())
    handle = wrap_forward(model, offloader)
    accelerator.unwrap_model(model, keep_fp32_wrapper=False)
    handle.remove()
    model(batch()).sum().backward()
    assert offloader.report()["saved_tensors"] == 0
