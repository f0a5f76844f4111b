# SPDX-License-Identifier: Apache-2.0
"""Recomputation on a GPU: same bits, random state undisturbed, no waiting for the device."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from recompute_harness import DroppingHooks, assert_same_training, same_bits

from ssdtrain.recipes import Operand
from ssdtrain.recorder import Recorder

pytestmark = pytest.mark.gpu

DEVICE = "cuda"
WIDTH = 1000
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
OPERATORS: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "layer_norm": lambda x, w: F.layer_norm(x, (WIDTH,), w, w),
    "rms_norm": lambda x, w: F.rms_norm(x, (WIDTH,), w),
    "group_norm": lambda x, w: F.group_norm(x.flatten(0, 1), 4, w),
    "batch_norm_kernel": lambda x, w: torch.native_batch_norm(
        x.transpose(1, 2), None, None, None, None, True, 0.1, 1e-5
    )[0],
    "gelu": lambda x, w: F.gelu(x),
    "gelu_tanh": lambda x, w: F.gelu(x, approximate="tanh"),
    "silu": lambda x, w: F.silu(x),
    "relu": lambda x, w: F.relu(x),
    "tanh": lambda x, w: torch.tanh(x),
    "sigmoid": lambda x, w: torch.sigmoid(x),
    "softplus": lambda x, w: F.softplus(x),
    "leaky_relu": lambda x, w: F.leaky_relu(x),
    "elu": lambda x, w: F.elu(x),
    "mish": lambda x, w: F.mish(x),
    "hardswish": lambda x, w: F.hardswish(x),
    "glu": lambda x, w: F.glu(x),
    "logsigmoid": lambda x, w: F.logsigmoid(x),
    "exp": lambda x, w: x.exp(),
    "rsqrt": lambda x, w: x.abs().rsqrt(),
    "pow": lambda x, w: x**3,
    "scale": lambda x, w: x * w,
    "shift": lambda x, w: x + 2 * w,
    "ratio": lambda x, w: x / w,
    "cast": lambda x, w: x.double(),
    "contiguous": lambda x, w: x.transpose(1, 2).contiguous(),
    "mean": lambda x, w: x - x.mean(-1, keepdim=True),
    "written_out": lambda x, w: w * (
        x.float() * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-6)
    ).to(x.dtype),
    "dropout": lambda x, w: F.dropout(x, 0.3),
    "in_place": lambda x, w: F.relu(x * w, inplace=True),
}  # fmt: skip


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def rng_state() -> torch.Tensor:
    return torch.cuda.get_rng_state() if DEVICE == "cuda" else torch.get_rng_state()


def only(tensor: torch.Tensor) -> Callable[[Operand], bool]:
    key = tensor.untyped_storage()._cdata
    return lambda operand: operand.key == key


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("offset", [0, 1, 8])
@pytest.mark.parametrize("name", OPERATORS)
def test_same_bits_again(name: str, offset: int, dtype: str) -> None:
    """Also from memory that vectorised kernels cannot read in whole vectors."""
    kind = DTYPES[dtype]
    flat = torch.randn(4 * 33 * WIDTH + 8, device=DEVICE).to(kind)
    x = flat[offset : offset + 4 * 33 * WIDTH].view(4, 33, WIDTH).requires_grad_()
    weight = torch.randn(WIDTH + 8, device=DEVICE).to(kind)[offset : WIDTH + offset]
    with Recorder(only(x), small_bytes=1 << 14) as recorder:
        y = OPERATORS[name](x, weight)
        recipe = recorder.recipe(y)
    assert recipe is not None
    torch.rand(17, device=DEVICE)
    state = rng_state()
    storage = x.untyped_storage()
    inputs = [operand.layout.on(storage, 0) for operand in recipe.inputs]
    again = recipe.run(inputs)
    base = y if y._base is None else y._base
    assert again.stride() == base.stride()
    assert same_bits(again, base)
    assert torch.equal(rng_state(), state)
    measured = recipe.measure(inputs, y.untyped_storage(), repeat=2)
    assert measured.is_exact
    assert measured.seconds > 0


def test_dropout_mask_without_input() -> None:
    x = torch.randn(64, 1000, device=DEVICE, dtype=torch.bfloat16)
    with Recorder(lambda operand: False, small_bytes=0) as recorder:
        output, mask = torch.native_dropout(x, 0.25, True)
        recipe = recorder.recipe(mask)
        assert recorder.recipe(output) is None
    assert recipe is not None
    assert not recipe.inputs
    torch.rand(1000, device=DEVICE)
    assert same_bits(recipe.run([]), mask)


class Block(torch.nn.Module):
    """A pre-norm block with everything that a GPT has but attention."""

    def __init__(self, norm: str) -> None:
        super().__init__()
        make = {"layer": torch.nn.LayerNorm, "rms": torch.nn.RMSNorm}[norm]
        self.norm = make(256)
        self.up = torch.nn.Linear(256, 1024)
        self.gate = torch.nn.Linear(256, 1024)
        self.down = torch.nn.Linear(1024, 256)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(x)
        y = F.silu(self.gate(y)) * F.gelu(self.up(y))
        return x + F.dropout(self.down(F.dropout(y, 0.1)), 0.1)


@pytest.mark.parametrize("precision", ["bf16", "fp32", "autocast"])
@pytest.mark.parametrize("norm", ["layer", "rms"])
@pytest.mark.parametrize("inside", [False, True])
def test_training_is_the_same(norm: str, precision: str, inside: bool) -> None:
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    model = torch.nn.Sequential(Block(norm), Block(norm), Block(norm)).to(DEVICE, dtype)
    x = torch.randn(8, 128, 256, device=DEVICE, dtype=dtype)

    def step() -> torch.Tensor:
        with torch.autocast(DEVICE, torch.bfloat16, enabled=precision == "autocast"):
            loss: torch.Tensor = model(x).float().pow(2).mean()
        return loss + torch.rand((), device=DEVICE)

    hooks = DroppingHooks(min_bytes=1 << 14, small_bytes=1 << 13)
    assert_same_training(model, step, hooks, inside=inside)
    names = set(hooks.names)
    assert {"silu", "gelu", "dropout"} <= names
    assert norm == "rms" or any("layer_norm" in name for name in names)


def test_recording_does_not_wait_for_the_device() -> None:
    x = torch.randn(256, 1024, device=DEVICE)
    weight = torch.nn.Parameter(torch.randn(1024, device=DEVICE))
    F.dropout(F.layer_norm(x, (1024,), weight))
    torch.cuda.set_sync_debug_mode("error")
    try:
        with Recorder(only(x)) as recorder:
            y = F.layer_norm(x, (1024,), weight)
            z = F.dropout(y, 0.5)
            recipe = recorder.recipe(z)
            assert recipe is not None
        again = recipe.run([operand.layout.on(x.untyped_storage(), 0) for operand in recipe.inputs])
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert same_bits(again, z)


def test_run_allocates_the_output_and_its_scratch() -> None:
    x = torch.randn(1024, 1024, device=DEVICE)
    with Recorder(only(x), small_bytes=0) as recorder:
        y = F.gelu(F.silu(x * 2) * 3)
        recipe = recorder.recipe(y)
    assert recipe is not None
    del y
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    again = recipe.run([x])
    assert torch.cuda.memory_allocated() - before == again.untyped_storage().nbytes()
    peak = torch.cuda.max_memory_allocated() - before
    assert peak == recipe.nbytes + recipe.scratch_bytes


def test_random_operators_in_a_captured_graph_have_no_recipe() -> None:
    x = torch.randn(256, 1024, device=DEVICE)
    graph = torch.cuda.CUDAGraph()
    with Recorder(only(x)) as recorder, torch.cuda.graph(graph):
        y = torch.native_dropout(x, 0.5, True)[0]
        recipe = recorder.recipe(y)
    assert recipe is None
    graph.replay()  # type: ignore[no-untyped-call]
    torch.cuda.synchronize()


def test_copy_to_the_host_has_no_recipe() -> None:
    x = torch.randn(256, 1024, device=DEVICE)
    with Recorder(lambda operand: True) as recorder:
        assert recorder.recipe(x.cpu()) is None
        assert recorder.recipe(x.cpu().to(DEVICE)) is None


def test_compiled_part() -> None:
    torch._dynamo.reset()
    first, last = torch.nn.Linear(256, 256, device=DEVICE), torch.nn.Linear(256, 256, device=DEVICE)
    model = torch.nn.Sequential(first, last)
    middle = torch.compile(lambda x: F.gelu(first(x)).relu())
    x = torch.randn(512, 256, device=DEVICE)
    hooks = DroppingHooks(small_bytes=1 << 12)
    assert_same_training(model, lambda: F.silu(last(middle(x))).pow(2).sum(), hooks)
    assert "silu" in hooks.names
