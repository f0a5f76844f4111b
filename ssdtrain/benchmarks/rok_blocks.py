# SPDX-License-Identifier: Apache-2.0
"""A factory for ``ssdtrain rok``: GPT blocks of hidden size 8192 in bf16, 1,024 tokens a sample.

``ssdtrain rok ssdtrain/benchmarks/rok_blocks.py:make --batches 4,8,16,24 --host 64GiB``
"""

from __future__ import annotations

import torch
from torch import nn
from transformer_blocks import make_blocks

from ssdtrain.rok import Work

__all__ = ["make"]

HIDDEN, LAYERS, TOKENS = 8192, 4, 1024


class Stack(nn.Module):
    """Blocks, one after the other."""

    def __init__(self, device: str, hidden: int, layers: int) -> None:
        super().__init__()
        self.blocks = make_blocks(hidden, layers, device, torch.bfloat16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """From ``[batch, tokens, hidden]`` to the same shape."""
        for block in self.blocks:
            x = block(x)
        return x


def make() -> Work:
    """The work; small on a machine without a GPU."""
    has_gpu = torch.cuda.is_available()
    device = "cuda" if has_gpu else "cpu"
    hidden, layers = (HIDDEN, LAYERS) if has_gpu else (256, 3)
    tokens = TOKENS if has_gpu else 64
    torch.manual_seed(0)
    model = Stack(device, hidden, layers)

    def make_batch(batch: int) -> torch.Tensor:
        return torch.randn(batch, tokens, hidden, device=device, dtype=torch.bfloat16)

    def loss(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
        value: torch.Tensor = model(batch).float().pow(2).mean()
        return value

    return Work(model, make_batch, loss, tokens=lambda batch: batch.shape[0] * batch.shape[1])
