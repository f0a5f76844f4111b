# SPDX-License-Identifier: Apache-2.0
"""Tensors that wrap others are stored part by part; what cannot be taken apart stays."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor, Replicate, distribute_tensor, init_device_mesh
from torch.testing._internal.two_tensor import TwoTensor

import ssdtrain

Check = Callable[..., Any]


@pytest.fixture(scope="module")
def mesh() -> Iterator[Any]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield init_device_mesh("cpu", (1,))
    dist.destroy_process_group()


def grad_of(loss: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return torch.autograd.grad(loss, w)[0]


def test_distributed_tensors(mesh: Any, offloader: ssdtrain.Offloader) -> None:
    plain = torch.randn(64, 64)
    w = distribute_tensor(plain, mesh, [Replicate()]).requires_grad_()

    def step() -> torch.Tensor:
        return (w @ w).tanh().sum().full_tensor()

    expected = grad_of(step(), w)
    for _ in range(2):
        with offloader:
            loss = step()
        moved = offloader.report()["bytes"]["disk"]
        assert moved >= plain.nbytes
        found = grad_of(loss, w)
        assert isinstance(found, DTensor)
        assert torch.equal(expected.full_tensor(), found.full_tensor())
    del loss
    gc.collect()
    assert offloader.report()["live_bytes"] == {}


def test_wrappers_of_wrappers(offloader: ssdtrain.Offloader) -> None:
    def make(seed: int) -> TwoTensor:
        generator = torch.Generator().manual_seed(seed)
        a, b, c, d = (torch.randn(32, 32, generator=generator) for _ in range(4))
        return TwoTensor(TwoTensor(a, b), TwoTensor(c, d))

    w = make(1).requires_grad_()

    def step() -> torch.Tensor:
        return ((w * 2).sin() * 3).cos().sum()

    expected = torch.autograd.grad(step(), w)[0]
    with offloader:
        loss = step()
    assert offloader.report()["bytes"]["disk"] >= 4 * 32 * 32 * 4
    found = torch.autograd.grad(loss, w)[0]
    assert isinstance(found, TwoTensor)
    assert isinstance(found.a, TwoTensor)
    for outer in ("a", "b"):
        for inner in ("a", "b"):
            one = getattr(getattr(expected, outer), inner)
            assert torch.equal(one, getattr(getattr(found, outer), inner))


def test_a_wrapper_that_changes_in_place_raises(offloader: ssdtrain.Offloader) -> None:
    w = TwoTensor(torch.randn(8), torch.randn(8)).requires_grad_()
    with offloader:
        y = w * 2
        loss = (y * y).sum()
        y.detach().add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_parameters_that_are_wrappers_stay(mesh: Any, offloader: ssdtrain.Offloader) -> None:
    w = torch.nn.Parameter(distribute_tensor(torch.randn(64, 64), mesh, [Replicate()]))
    x = distribute_tensor(torch.randn(4, 64), mesh, [Replicate()]).requires_grad_()
    with offloader:
        loss = torch.nn.functional.linear(x * 2, w).sum()  # Saves a transposed view of it.
    reasons = offloader.report()["kept_by_reason"]
    assert reasons["parameter"]["tensors"] >= 1
    assert "alive elsewhere" not in reasons
    loss.backward()


def test_jagged_tensors_stay(offloader: ssdtrain.Offloader) -> None:
    parts = [torch.randn(n, 5, requires_grad=True) for n in (3, 4)]
    with offloader:
        n = torch.nested.as_nested_tensor(parts, layout=torch.jagged)
        loss = torch.nested.to_padded_tensor(n * n, 0.0).sum()
    loss.backward()
    assert torch.allclose(parts[0].grad, 2 * parts[0].detach())
    reasons = offloader.report()["kept_by_reason"]
    assert "subclass NestedTensor" in reasons
