# SPDX-License-Identifier: Apache-2.0
"""On the GPU: host tier, disk tier and both give plain gradients, and give memory back."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest
import torch
from torch import nn

import ssdtrain

pytestmark = pytest.mark.gpu


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.up, self.down = nn.Linear(width, 8 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (
            t.unflatten(-1, (4, -1)).transpose(1, 2) for t in self.qkv(self.norm(x)).chunk(3, -1)
        )
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + y.transpose(1, 2).flatten(-2)
        a, b = self.up(x).chunk(2, dim=-1)
        return x + nn.functional.dropout(self.down(nn.functional.silu(a) * b), 0.1)


@pytest.fixture(scope="module")
def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(*[Block(512) for _ in range(6)]).cuda().bfloat16()


@pytest.fixture(scope="module")
def x() -> torch.Tensor:
    return torch.randn(8, 512, 512, device="cuda", dtype=torch.bfloat16)


def run(model: nn.Module, x: torch.Tensor, off: ssdtrain.Offloader | None) -> list[torch.Tensor]:
    torch.manual_seed(1)
    model.zero_grad(set_to_none=True)
    if off is None:
        loss = model(x).float().square().mean()
    else:
        with off:
            loss = model(x).float().square().mean()
    loss.backward()
    return [loss.detach(), *(p.grad.clone() for p in model.parameters())]


@pytest.mark.parametrize("checks", [False, True])
@pytest.mark.parametrize(
    ("host", "disk"), [("4GiB", False), (0, True), ("100MiB", True)], ids=["host", "disk", "both"]
)
def test_bit_equal(
    model: nn.Module, x: torch.Tensor, tmp_path: Path, host: str | int, disk: bool, checks: bool
) -> None:
    expected = run(model, x, None)
    off = ssdtrain.Offloader(
        spill=tmp_path if disk else None, host=host, ssd="8GiB", min_bytes="64KiB", plan="all",
        checks=checks, backlog="64MiB",
    )  # fmt: skip
    for _ in range(3):
        found = run(model, x, off)
        assert all(torch.equal(a, b) for a, b in zip(expected, found, strict=True))
    moved = off.report()["bytes"]
    assert (moved["host"] > 0) == (host != 0)
    assert (moved["disk"] > 0) == disk
    off.close()


def test_peak_falls_and_nothing_grows(model: nn.Module, x: torch.Tensor) -> None:
    def peak(off: ssdtrain.Offloader | None) -> int:
        gc.collect()
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        run(model, x, off)
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated() - before

    run(model, x, None)
    kept = peak(None)
    off = ssdtrain.Offloader(host="4GiB", min_bytes="64KiB", plan="all", backlog="32MiB")
    peaks = [peak(off) for _ in range(8)]
    assert max(peaks[2:]) < 0.75 * kept
    resident = torch.cuda.memory_allocated()
    for _ in range(20):
        run(model, x, off)
    gc.collect()
    torch.cuda.synchronize()
    assert torch.cuda.memory_allocated() <= resident
    assert off.report()["live_bytes"] == {}
    off.close()
