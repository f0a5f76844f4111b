# SPDX-License-Identifier: Apache-2.0
"""A small transformer, and the comparison that every test of this folder makes."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
from packages import needed
from torch import nn
from torch.nn import functional

ssdtrain = needed("ssdtrain")

__all__ = [
    "BACKENDS", "DEVICE", "WIDTH", "Block", "Model", "assert_equal", "assert_same", "batch",
    "gradients", "own_device", "seeded",
]  # fmt: skip

DEVICE = os.environ.get("FRAMEWORKS_DEVICE", "cpu")
"""Where the cases of two processes run; ``two_processes`` sets it for them."""

BACKENDS = {"cpu": "gloo", "cuda": "nccl"}
"""How processes talk, by device."""

WIDTH = 32

Run = Callable[[AbstractContextManager[Any]], dict[str, torch.Tensor]]


class Block(nn.Module):
    """Attention over one fused projection and a gated MLP: views of shared storages, dropout."""

    def __init__(self, width: int = WIDTH, dropout: float = 0.1) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(2 * width, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, tokens, width = x.shape
        heads = (batch, tokens, 4, width // 4)
        q, k, v = (t.view(heads).transpose(1, 2) for t in self.qkv(self.norm1(x)).chunk(3, -1))
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.dropout(self.out(y.transpose(1, 2).reshape(x.shape)))
        gate, value = self.up(self.norm2(x)).chunk(2, dim=-1)
        return x + self.dropout(self.down(functional.silu(gate) * value))


class Model(nn.Module):
    """Blocks, each called through ``around(block, x)``: where checkpointing goes."""

    def __init__(self, layers: int = 2, dropout: float = 0.1) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block(dropout=dropout) for _ in range(layers))
        self.head = nn.Linear(WIDTH, WIDTH)
        self.around: Callable[[nn.Module, torch.Tensor], torch.Tensor] = lambda block, x: block(x)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = self.around(block, x)
        return self.head(x)


def seeded(build: Callable[[], Any], seed: int = 0) -> Any:
    """What ``build()`` makes from a seed of its own, on ``DEVICE``; dropout gets another seed."""
    torch.manual_seed(seed)
    made = build()
    for module in made if isinstance(made, list) else [made]:
        module.to(DEVICE)
    torch.manual_seed(seed + 1)
    return made


def own_device() -> torch.device:
    """``DEVICE``, with the number of this process's GPU."""
    return torch.device(DEVICE, torch.cuda.current_device() if DEVICE == "cuda" else None)


def batch(seed: int = 2, size: int = 2, tokens: int = 8) -> torch.Tensor:
    """Inputs of shape [size, tokens, WIDTH], on ``DEVICE``."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(size, tokens, WIDTH, generator=generator).to(DEVICE)


def gradients(model: nn.Module) -> dict[str, torch.Tensor]:
    """Copies of a model's gradients, by name; those of a sharded model as their local part."""
    found = {}
    for name, parameter in model.named_parameters():
        if parameter.grad is not None:
            gradient = parameter.grad
            local = gradient.to_local() if hasattr(gradient, "to_local") else gradient
            found[name] = local.detach().clone()
    return found


def assert_same(run: Run, off: Any) -> dict[str, Any]:
    """Run it plain and offloaded: equal to the last bit, and something really went to the disk.

    ``run(context)`` makes its model from a seed and enters the context where a user would. Returns
    the report of the last step.
    """
    plain = run(contextlib.nullcontext())
    moved = run(off)
    assert_equal(moved, plain)
    report = off.report()
    assert report["bytes"]["disk"] > 0, report
    assert report["faults"] == []
    return report


def assert_equal(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    """The same names with the same bits."""
    assert expected
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert torch.equal(found[name], value), name
        assert torch.isfinite(value).all(), name
