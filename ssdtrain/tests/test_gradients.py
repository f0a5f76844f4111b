# SPDX-License-Identifier: Apache-2.0
"""Gradients under the offloader equal plain ones to the last bit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

import ssdtrain

Check = Callable[..., Any]


class GatedMLP(nn.Module):
    """Halves of one projection: equally shaped views of one storage at two offsets."""

    def __init__(self, width: int = 24) -> None:
        super().__init__()
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a, b = self.up(x).chunk(2, dim=-1)
        return self.down(functional.silu(a) * b)


class Attention(nn.Module):
    """Query, key and value split from one fused projection."""

    def __init__(self, width: int = 24, heads: int = 3) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, tokens, width = x.shape
        shape = (batch, tokens, self.heads, width // self.heads)
        q, k, v = (t.view(shape).transpose(1, 2) for t in self.qkv(x).split(width, dim=-1))
        y = functional.softmax(q @ k.transpose(-1, -2) * 0.3, dim=-1) @ v
        return self.out(y.transpose(1, 2).reshape(batch, tokens, width))


class Block(nn.Module):
    """A transformer block with dropout."""

    def __init__(self, width: int = 24) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention, self.mlp = Attention(width), GatedMLP(width)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.dropout(self.attention(self.norm1(x)))
        return x + self.mlp(self.norm2(x))


@pytest.fixture
def x() -> torch.Tensor:
    return torch.randn(2, 5, 24, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("kind", [GatedMLP, Attention, Block])
def test_layers(
    same_step: Check,
    nothing_left: Check,
    kind: type[nn.Module],
    inside: bool,
    x: torch.Tensor,
    offloader: ssdtrain.Offloader,
) -> None:
    model = kind()
    report = same_step(model, lambda: model(x).square().mean(), offloader, inside=inside)
    assert report["bytes"]["disk"] > 0
    nothing_left(offloader)


def test_one_copy_serves_the_views_of_one_storage(
    same_step: Check, x: torch.Tensor, offloader: ssdtrain.Offloader
) -> None:
    model = Attention()
    same_step(model, lambda: model(x).square().mean(), offloader)
    with offloader:
        q, k, v = model.qkv(x).split(24, dim=-1)
        y = (q * k * v).sum()
    assert offloader.report()["shared_tensors"] >= 2
    del q, k, v
    y.backward()


def test_checkpoint_inside(
    same_step: Check, x: torch.Tensor, offloader: ssdtrain.Offloader
) -> None:
    model = nn.ModuleList([Block(), Block()])

    def forward(reentrant: bool) -> torch.Tensor:
        y = model[0](x)
        return checkpoint(model[1], y, use_reentrant=reentrant).square().mean()

    for reentrant in (False, True):
        same_step(model, lambda r=reentrant: forward(r), offloader)


def test_expanded_tensor_stores_its_base_only(offloader: ssdtrain.Offloader) -> None:
    scale = torch.randn(1, 64, requires_grad=True)
    with offloader:
        wide = (scale * 2).expand(1000, 64)
        loss = (wide * wide).sum()
    del wide
    stored = offloader.report()["bytes"]
    assert stored["disk"] + stored["kept"] <= 64 * 4 + 16
    loss.backward()
    assert torch.allclose(scale.grad, 8000 * scale.detach())


def test_transposed_and_sliced_views(
    same_step: Check, nothing_left: Check, offloader: ssdtrain.Offloader
) -> None:
    model = nn.Linear(16, 16)
    x = torch.randn(8, 16)

    def forward() -> torch.Tensor:
        y = model(x)
        return (
            (y.t()[3:9] @ y[:, 1::3]).sin().sum()
            + (y[2:5] * y[3:6]).sum()
            + y.view(-1)[7:70].exp().sum()
        )

    same_step(model, forward, offloader)
    nothing_left(offloader)


def test_tied_weights_and_cross_entropy(same_step: Check, offloader: ssdtrain.Offloader) -> None:
    embedding = nn.Embedding(50, 24)
    tokens = torch.randint(0, 50, (4, 7), generator=torch.Generator().manual_seed(2))

    def forward() -> torch.Tensor:
        h = embedding(tokens).tanh()
        return functional.cross_entropy((h @ embedding.weight.t()).flatten(0, 1), tokens.flatten())

    same_step(embedding, forward, offloader)


def test_retain_graph_and_two_backwards(offloader: ssdtrain.Offloader) -> None:
    model = GatedMLP()
    x = torch.randn(3, 24)
    plain = model(x).square().sum()
    plain.backward(retain_graph=True)
    plain.backward()
    expected = model.up.weight.grad.clone()
    model.zero_grad()
    with offloader:
        loss = model(x).square().sum()
    loss.backward(retain_graph=True)
    loss.backward()
    assert torch.equal(expected, model.up.weight.grad)


def test_double_backward(offloader: ssdtrain.Offloader) -> None:
    w = torch.randn(6, 6, dtype=torch.float64, requires_grad=True)

    def run() -> torch.Tensor:
        y = (w @ w.t()).sigmoid().prod()
        (g,) = torch.autograd.grad(y, w, create_graph=True)
        (gg,) = torch.autograd.grad(g.square().sum(), w)
        return gg

    expected = run()
    with offloader:
        found = run()
    assert torch.equal(expected, found)


def test_backward_on_another_thread(x: torch.Tensor, offloader: ssdtrain.Offloader) -> None:
    import threading

    model = Block()
    model.eval()
    model(x).sum().backward()
    expected = model.mlp.up.weight.grad.clone()
    model.zero_grad()
    with offloader:
        loss = model(x).sum()
    thread = threading.Thread(target=loss.backward)
    thread.start()
    thread.join()
    assert torch.equal(expected, model.mlp.up.weight.grad)


def test_changing_shapes_step_after_step(
    same_step: Check, nothing_left: Check, offloader: ssdtrain.Offloader
) -> None:
    model = Block()
    for tokens in (1, 9, 4, 17, 2):
        x = torch.randn(2, tokens, 24)
        same_step(model, lambda x=x: model(x).square().mean(), offloader)
    nothing_left(offloader)


def test_two_offloaders_and_two_models(tmp_path: Path, x: torch.Tensor) -> None:
    models = [Block(), Block()]
    offs = [
        ssdtrain.Offloader(spill=tmp_path, host=0, ssd="64MiB", min_bytes=0, plan="all")
        for _ in models
    ]
    losses = []
    for model, off in zip(models, offs, strict=True):
        model.eval()
        with off:
            losses.append(model(x).square().mean())
    for model, loss in zip(models, losses, strict=True):
        loss.backward()
        found = model.mlp.up.weight.grad.clone()
        model.zero_grad()
        model(x).square().mean().backward()
        assert torch.equal(found, model.mlp.up.weight.grad)
    for off in offs:
        off.close()


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16, torch.complex64])
def test_dtypes(dtype: torch.dtype, offloader: ssdtrain.Offloader) -> None:
    w = torch.randn(9, 7).to(dtype).requires_grad_()

    def forward() -> torch.Tensor:
        y = w * 2
        return (y * y[:, ::1]).abs().float().sum()

    expected = torch.autograd.grad(forward(), w)[0]
    with offloader:
        loss = forward()
    assert torch.equal(expected, torch.autograd.grad(loss, w)[0])
