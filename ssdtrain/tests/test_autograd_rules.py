# SPDX-License-Identifier: Apache-2.0
"""What autograd promises holds under the offloader: versions, lifetimes, unused tensors."""

from __future__ import annotations

import functools
import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)
from torch.utils.flop_counter import FlopCounterMode

import ssdtrain

Check = Callable[..., Any]


@pytest.mark.parametrize("min_bytes", [1, "1GiB"])
def test_change_in_place_after_the_save_raises(tmp_path: Path, min_bytes: int | str) -> None:
    off = ssdtrain.Offloader(spill=tmp_path, host=0, min_bytes=min_bytes, ssd="16MiB")
    x = torch.randn(8, requires_grad=True)
    with off:
        y = x.exp()
        loss = (y * y).sum()
        y.add_(1)
    with pytest.raises(RuntimeError, match=r"modified by an inplace operation.*version 1"):
        loss.backward()


def test_change_through_a_view_raises(offloader: ssdtrain.Offloader) -> None:
    x = torch.randn(8, requires_grad=True)
    with offloader:
        y = x * 3
        loss = (y * y).sum()
    y.detach()[2:4].zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_change_of_a_parameter_before_backward_raises(offloader: ssdtrain.Offloader) -> None:
    model = nn.Linear(4, 4)
    x = torch.randn(2, 4, requires_grad=True)
    with offloader:
        loss = model(x).sum()
    with torch.no_grad():
        model.weight.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_change_before_the_save_is_what_backward_sees(offloader: ssdtrain.Offloader) -> None:
    x = torch.randn(8, requires_grad=True)
    with offloader:
        y = x * 3
        y.mul_(2)
        loss = (y * y).sum()
    del y
    loss.backward()
    assert torch.allclose(x.grad, 72 * x.detach())


def test_two_versions_of_one_storage_are_two_groups(offloader: ssdtrain.Offloader) -> None:
    buffer = torch.zeros(16)
    w = torch.randn(16, requires_grad=True)
    with offloader:
        buffer.fill_(2)
        first = (w * buffer).sum()
        buffer.fill_(5)
        second = (w * buffer).sum()
    second.backward()
    assert torch.equal(w.grad, torch.full((16,), 5.0))
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        first.backward()


def test_graph_that_is_dropped_frees_its_extents(
    nothing_left: Check, offloader: ssdtrain.Offloader
) -> None:
    w = torch.randn(64, 64, requires_grad=True)
    with offloader:
        loss = (w @ w).tanh().sum()
    assert offloader.report()["live_bytes"]
    del loss
    nothing_left(offloader)


def test_saved_tensors_that_backward_never_asks_for(
    nothing_left: Check, offloader: ssdtrain.Offloader
) -> None:
    w = torch.randn(32, 32, requires_grad=True)
    v = torch.randn(32, 32, requires_grad=True)
    for _ in range(5):
        with offloader:
            a, b = (w @ w).tanh(), (v @ v).tanh()
            loss = a.sum() + b.sum()
        torch.autograd.grad(loss, w)  # v's branch is never walked
        del loss, a, b
    nothing_left(offloader)


def test_output_saved_by_its_own_node_makes_no_cycle(offloader: ssdtrain.Offloader) -> None:
    gc.disable()
    try:
        w = torch.randn(256, requires_grad=True)
        with offloader:
            y = w.exp()
        del y
        report = offloader.report()
        assert report["live_bytes"] == {}
    finally:
        gc.enable()


def test_no_grad_pass_saves_nothing(offloader: ssdtrain.Offloader) -> None:
    model = nn.Linear(8, 8)
    with offloader, torch.no_grad():
        model(torch.randn(2, 8))
    assert offloader.report()["saved_tensors"] == 0


def test_exception_in_forward_leaves_nothing(
    nothing_left: Check, offloader: ssdtrain.Offloader
) -> None:
    w = torch.randn(64, 64, requires_grad=True)

    def fail() -> None:
        with offloader:
            y = (w @ w).tanh()
            raise ZeroDivisionError(y.shape)

    with pytest.raises(ZeroDivisionError):
        fail()
    nothing_left(offloader)
    with offloader:
        loss = (w @ w).tanh().sum()
    loss.backward()


def test_many_steps_do_not_grow(nothing_left: Check, offloader: ssdtrain.Offloader) -> None:
    model = nn.Sequential(nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 32))
    backed = set()
    for step in range(200):
        with offloader:
            loss = model(torch.randn(4, 32)).square().mean()
        loss.backward()
        model.zero_grad()
        del loss
        if step >= 20:
            backed.add(offloader.report()["tiers"]["disk"]["stats"]["backed"])
    assert len(backed) == 1
    nothing_left(offloader)


def test_parameters_buffers_and_inputs_stay_with_attach(offloader: ssdtrain.Offloader) -> None:
    model = nn.Sequential(nn.Linear(16, 16), nn.BatchNorm1d(16), nn.Linear(16, 4))
    model[2].weight.requires_grad_(False)
    handle = offloader.attach(model)
    x = torch.randn(8, 16)
    with offloader:
        loss = model(x).square().sum()
    reasons = offloader.report()["kept_by_reason"]
    assert reasons["model input"]["tensors"] >= 1
    assert reasons["parameter"]["tensors"] >= 1
    loss.backward()
    handle.remove()


def test_storage_alive_elsewhere_counts_as_nothing(offloader: ssdtrain.Offloader) -> None:
    w = torch.randn(1024, requires_grad=True)
    with offloader:
        y = w * 2
        loss = (y * y).sum()
    loss.backward()
    report = offloader.report()
    assert report["bytes"]["disk"] == 0
    assert report["forwarded_bytes"] >= 4096
    assert y.numel() == 1024


def test_modes_that_only_look_do_not_keep_tensors(offloader: ssdtrain.Offloader) -> None:
    w = torch.randn(64, 64, requires_grad=True)
    with FlopCounterMode(display=False), offloader:
        loss = (w @ w).tanh().sum()
    assert offloader.report()["bytes"]["disk"] > 0
    loss.backward()


def test_modes_that_record_keep_tensors(offloader: ssdtrain.Offloader) -> None:
    w = torch.randn(64, 64, requires_grad=True)

    def save_products(ctx: object, op: object, *args: object, **kwargs: object) -> CheckpointPolicy:
        product = op is torch.ops.aten.mm.default
        return CheckpointPolicy.MUST_SAVE if product else CheckpointPolicy.PREFER_RECOMPUTE

    def step() -> torch.Tensor:
        contexts = functools.partial(create_selective_checkpoint_contexts, save_products)
        y = checkpoint(lambda t: (t @ t).tanh() @ t, w, use_reentrant=False, context_fn=contexts)
        return torch.autograd.grad(y.sum(), w)[0]

    expected = step()
    with offloader:
        found = step()
    assert torch.equal(expected, found)
