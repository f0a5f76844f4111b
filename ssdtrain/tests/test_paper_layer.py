# SPDX-License-Identifier: Apache-2.0
"""Bytes and FLOPs of layers against published counts and measured ones."""

from __future__ import annotations

import pytest
import torch

from ssdtrain.paper import ModelShape, Setup, Sheet, find_model
from ssdtrain.paper.layer import saved_parts, write_layer


def layer(model: ModelShape, setup: Setup | None = None) -> Sheet:
    sheet = Sheet()
    write_layer(sheet, model, setup or Setup())
    return sheet


@pytest.mark.parametrize(
    ("name", "fused", "eager"),
    [
        ("llama-3-8b", 139_392, 168_064),
        ("llama-3-70b", 274_688, 332_032),
        ("qwen3-8b", 127_104, 151_680),
        ("qwen3-32b", 231_680, 282_880),
        ("qwen3-30b-a3b", 71_808, 84_096),
    ],
)
def test_gated_layers_counted_by_hand(name: str, fused: int, eager: int) -> None:
    model = find_model(name)
    assert layer(model)["layer_bytes"] == fused
    assert layer(model, Setup(fused_mlp=False))["layer_bytes"] == eager


@pytest.mark.parametrize("hidden", [4096, 8192, 12288])
def test_gpt_layers_of_the_published_count(hidden: int) -> None:
    """34 h with dropout (arXiv 2205.05198); the log-sum-exp of 4 bytes a head comes on top."""
    model = find_model("gpt", hidden=hidden, layers=4)
    statistics = 4 * model.heads
    with_dropout = Setup(dropout=True)
    assert layer(model, with_dropout)["layer_bytes"] == 34 * hidden + statistics
    assert layer(model)["layer_bytes"] == 32 * hidden + statistics
    assert layer(model)["boundary_bytes"] == 2 * hidden
    # Norms and GELU give 12 of the 32 back.
    assert layer(model)["lean_layer_bytes"] == 20 * hidden + statistics


def test_scores_are_saved_without_flash_attention() -> None:
    model = find_model("gpt", hidden=8192, layers=4)
    setup = Setup(dropout=True, flash=False, sequence=1024)
    expected = 34 * 8192 + 5 * model.heads * 1024
    assert layer(model, setup)["layer_bytes"] == expected


@pytest.mark.parametrize("t", [2, 4, 8])
def test_tensor_and_sequence_parallel(t: int) -> None:
    """s b h (10 + 24/t) without sequence parallelism, 34/t with it (arXiv 2205.05198)."""
    hidden = 8192
    model = find_model("gpt", hidden=hidden, layers=4)
    statistics = 4 * model.heads / t
    plain = Setup(dropout=True, tensor_parallel=t)
    assert layer(model, plain)["layer_bytes"] == pytest.approx(hidden * (10 + 24 / t) + statistics)
    split = Setup(dropout=True, tensor_parallel=t, sequence_parallel=True)
    assert layer(model, split)["layer_bytes"] == pytest.approx(34 * hidden / t + statistics)


def test_buffers_of_experts_come_on_top() -> None:
    model = find_model("qwen3-30b-a3b")
    more = layer(model, Setup(moe_buffers=True))["layer_bytes"] - layer(model)["layer_bytes"]
    assert more == 2 * 2 * 2048 * 8


@pytest.mark.parametrize(
    ("name", "billions"),
    [
        ("llama-3-8b", 8.03),
        ("llama-3-70b", 70.6),
        ("qwen3-8b", 8.19),
        ("qwen3-32b", 32.8),
        ("qwen3-30b-a3b", 30.5),
        ("gpt-3-175b", 175),
    ],
)
def test_parameters_of_the_published_models(name: str, billions: float) -> None:
    sheet = layer(find_model(name))
    heads = 1 if name.startswith("gpt") else 2
    total = sheet["layer_parameters"] * sheet["L"] + heads * sheet["head_parameters"]
    assert total / 1e9 == pytest.approx(billions, rel=0.01)


def test_forward_flops() -> None:
    sheet = layer(find_model("gpt", hidden=8192, layers=1), Setup(sequence=1024))
    assert sheet["layer_flops"] == 24 * 8192**2 + 2 * 1024 * 8192
    whole = layer(find_model("gpt", hidden=8192, layers=1), Setup(sequence=1024, causal=False))
    assert whole["layer_flops"] == 24 * 8192**2 + 4 * 1024 * 8192


class Block(torch.nn.Module):
    """A GPT block, or with ``gate`` one with SwiGLU, that saves what the formulas name."""

    def __init__(self, model: ModelShape) -> None:
        super().__init__()
        h, self.q, self.kv = model.hidden, model.hidden, model.kv_heads * model.head_dim
        self.model = model
        self.norm1, self.norm2 = torch.nn.LayerNorm(h), torch.nn.LayerNorm(h)
        self.qkv = torch.nn.Linear(h, self.q + 2 * self.kv)
        self.out = torch.nn.Linear(self.q, h)
        self.up = torch.nn.Linear(h, model.ffn)
        self.gate = torch.nn.Linear(h, model.ffn) if model.mlp == "swiglu" else None
        self.down = torch.nn.Linear(model.ffn, h)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(self.norm1(x)).split((self.q, self.kv, self.kv), -1)
        heads = [y.unflatten(-1, (-1, self.model.head_dim)).transpose(1, 2) for y in (q, k, v)]
        # One kernel for each pair of query and key head, so that keys are not copied.
        attended = torch.nn.functional.scaled_dot_product_attention(*heads, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).flatten(2))
        y = self.norm2(x)
        if self.gate is None:
            return x + self.down(torch.nn.functional.gelu(self.up(y)))
        return x + self.down(torch.nn.functional.silu(self.gate(y)) * self.up(y))


@pytest.mark.parametrize("kind", ["gpt", "llama"])
def test_a_real_block_saves_what_the_formula_says(kind: str) -> None:
    model = find_model(kind, hidden=256, layers=1, heads=4, head_dim=64)
    block = Block(model)
    parameters = {p.untyped_storage().data_ptr() for p in block.parameters()}
    storages: dict[int, torch.UntypedStorage] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in parameters:
            storages[storage.data_ptr()] = storage
        return tensor

    tokens = 2 * 64
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        block(torch.randn(2, 64, 256, requires_grad=True)).sum().backward()
    saved = sum(storage.nbytes() for storage in storages.values()) / tokens
    expected = layer(model, Setup(element_bytes=4, fused_mlp=False, sequence=64))["layer_bytes"]
    # Means and deviations of the two norms, 4 x 4 bytes a token, are left out of the formula.
    assert saved == pytest.approx(expected + 16, rel=0.01)


def test_parts_say_what_can_be_computed_again() -> None:
    parts = saved_parts(find_model("llama-3-8b"), Setup(fused_mlp=False))
    cheap = {part.name for part in parts if part.cheap}
    assert cheap == {
        "q, k, v projection input",
        "MLP input",
        "silu(gate)",
        "down projection input",
    }
