# SPDX-License-Identifier: Apache-2.0
"""GPT blocks whose saved activations are 32 bytes per token and hidden element in bf16."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

__all__ = ["Block", "make_blocks"]


class Block(nn.Module):
    """Pre-norm attention and a GELU MLP, four times as wide inside; heads of 128."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.heads = max(hidden // 128, 1)
        self.norm_1, self.norm_2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.qkv, self.out = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.up, self.down = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """From ``[batch, tokens, hidden]`` to the same shape."""
        batch, tokens, hidden = x.shape
        qkv = self.qkv(self.norm_1(x)).view(batch, tokens, 3, self.heads, hidden // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, tokens, hidden))
        return x + self.down(functional.gelu(self.up(self.norm_2(x)), approximate="tanh"))


def make_blocks(hidden: int, layers: int, device: str, dtype: torch.dtype) -> nn.ModuleList:
    """A stack of blocks with random weights."""
    with torch.device(device):
        return nn.ModuleList([Block(hidden) for _ in range(layers)]).to(dtype)
