# SPDX-License-Identifier: Apache-2.0
"""Each listed operator gives the same bits again, from the same layout."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from recompute_harness import same_bits

from ssdtrain.operators import RULES, written_arguments
from ssdtrain.recorder import Recorder
from ssdtrain.storage import Layout

aten = torch.ops.aten
SHAPE = (6, 10, 16)

UNARY: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
    "relu": F.relu,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "softplus": lambda x: F.softplus(x, 2.0, 3.0),
    "leaky_relu": lambda x: F.leaky_relu(x, 0.2),
    "elu": lambda x: F.elu(x, 0.7),
    "selu": F.selu,
    "celu": lambda x: F.celu(x, 0.5),
    "mish": F.mish,
    "hardswish": F.hardswish,
    "hardsigmoid": F.hardsigmoid,
    "relu6": F.relu6,
    "logsigmoid": F.logsigmoid,
    "prelu": lambda x: F.prelu(x.transpose(0, 1), torch.full((SHAPE[0],), 0.3, dtype=x.dtype)),
    "glu": F.glu,
    "abs": torch.abs,
    "erf": torch.erf,
    "exp": torch.exp,
    "log1p": torch.log1p,
    "neg": torch.neg,
    "reciprocal": torch.reciprocal,
    "rsqrt": torch.rsqrt,
    "sqrt": torch.sqrt,
    "square": lambda x: x.pow(2),
    "cube": lambda x: x**3,
    "add_scalar": lambda x: x + 1.5,
    "sub_scalar": lambda x: x - 1.5,
    "rsub": lambda x: 1.5 - x,
    "mul_scalar": lambda x: x * 1.5,
    "div_scalar": lambda x: x / 1.5,
    "add_alpha": lambda x: torch.add(x, x, alpha=0.3),
    "sub": lambda x: x - x,
    "scalars": lambda x: aten.div.Scalar(
        aten.mul.Scalar(aten.sub.Scalar(aten.add.Scalar(x, 1), 0.3), 1.1), 3
    ),
    "mul": lambda x: x * x,
    "div": lambda x: x / x,
    "broadcast": lambda x: x[:, :1] * x,
    "halves": lambda x: x[..., ::2] * x[..., 1::2],
    "to_bf16": lambda x: x.to(torch.bfloat16) if x.dtype != torch.bfloat16 else x.float(),
    "to_double": lambda x: x.double(),
    "contiguous": lambda x: x.transpose(0, 1).contiguous(),
    "channels": lambda x: x.unsqueeze(0).to(memory_format=torch.channels_last, copy=True),
    "mean": lambda x: x.mean(-1, keepdim=True),
    "layer_norm": lambda x: F.layer_norm(x, SHAPE[-1:], x[0, 0], x[0, 1], 1e-3),
    "layer_norm_2": lambda x: F.layer_norm(x, SHAPE[1:]),
    "group_norm": lambda x: F.group_norm(x, 2, x[0, :, 0], x[1, :, 0]),
    "rms_norm": lambda x: F.rms_norm(x, SHAPE[-1:], x[0, 0]),
    "batch_norm": lambda x: F.batch_norm(x, None, None, training=True),
    "dropout_kernel": lambda x: aten.native_dropout(x, 0.3, True)[0],
}
IN_PLACE: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "relu_": lambda x: F.relu(x, inplace=True),
    "leaky_relu_": lambda x: F.leaky_relu(x, inplace=True),
    "elu_": lambda x: F.elu(x, inplace=True),
    "celu_": aten.celu_,
    "selu_": lambda x: F.selu(x, inplace=True),
    "hardtanh_": lambda x: F.relu6(x, inplace=True),
    "hardswish_": lambda x: F.hardswish(x, inplace=True),
    "hardsigmoid_": lambda x: F.hardsigmoid(x, inplace=True),
    "mish_": lambda x: F.mish(x, inplace=True),
    "gelu_": aten.gelu_,
    "silu_": aten.silu_,
    "tanh_": torch.Tensor.tanh_,
    "sigmoid_": torch.Tensor.sigmoid_,
    "abs_": torch.Tensor.abs_,
    "erf_": torch.Tensor.erf_,
    "exp_": torch.Tensor.exp_,
    "log1p_": torch.Tensor.log1p_,
    "neg_": torch.Tensor.neg_,
    "reciprocal_": torch.Tensor.reciprocal_,
    "rsqrt_": torch.Tensor.rsqrt_,
    "sqrt_": torch.Tensor.sqrt_,
    "pow_": lambda x: x.pow_(2),
    "add_": lambda x: x.add_(0.5),
    "sub_": lambda x: x.sub_(0.5),
    "mul_": lambda x: x.mul_(0.5),
    "div_": lambda x: x.div_(0.5),
    "scalars_": lambda x: aten.div_.Scalar(aten.mul_.Scalar(x, 3.0), 7.0),
    "add_scalar_": lambda x: aten.sub_.Scalar(aten.add_.Scalar(x, 3.0), 7.0),
}
LAYOUTS: dict[str, Callable[[torch.dtype], torch.Tensor]] = {
    "contiguous": lambda dtype: torch.rand(SHAPE).add(0.1).to(dtype),
    "transposed": lambda dtype: torch.rand(16, 10, 6).add(0.1).to(dtype).permute(2, 1, 0),
    "offset": lambda dtype: torch.rand(6, 10, 33).add(0.1).to(dtype)[:, :, 17:],
    "expanded": lambda dtype: torch.rand(6, 1, 16).add(0.1).to(dtype).expand(SHAPE),
}
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


def assert_recipe_is_exact(
    operator: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor
) -> str:
    """Run an operator, run its recipe in a worse place, compare. Returns the recipe's name."""
    key = x.untyped_storage()._cdata
    version = x._version
    recorder = Recorder(lambda operand: operand.key == key and operand.version == version)
    torch.manual_seed(3)
    with recorder:
        y = operator(x)
        recipe = recorder.recipe(y)
    assert recipe is not None
    assert y.data_ptr() != x.data_ptr()
    assert recipe.nbytes == y.untyped_storage().nbytes()
    storage = x.untyped_storage()
    inputs = [operand.layout.on(storage, 0) for operand in recipe.inputs]
    before = [tensor.clone() for tensor in inputs]
    state = torch.get_rng_state()
    with torch.autocast("cpu", torch.bfloat16), torch.enable_grad():
        again = recipe.run(inputs)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(same_bits(one, other) for one, other in zip(inputs, before, strict=True))
    base = y if y._base is None else y._base
    assert Layout.of(again) == Layout.of(base)
    assert same_bits(again, base)
    assert not again.requires_grad
    assert recipe.measure(inputs, y.untyped_storage(), repeat=1).is_exact
    return recipe.name


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", UNARY)
def test_same_bits_again(name: str, dtype: str) -> None:
    torch.manual_seed(0)
    for layout in LAYOUTS.values():
        x = layout(DTYPES[dtype])
        assert_recipe_is_exact(UNARY[name], x)
    assert_recipe_is_exact(UNARY[name], x.clone().requires_grad_() * 1)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", IN_PLACE)
def test_same_bits_in_place_of_what_is_recorded(name: str, dtype: str) -> None:
    torch.manual_seed(0)
    x = LAYOUTS["offset"](DTYPES[dtype])
    assert_recipe_is_exact(lambda x: IN_PLACE[name](x * 2), x)


def test_every_listed_operator_is_tried() -> None:
    tried = set()

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            tried.add(func)
            return func(*args, **(kwargs or {}))

    with Watch():
        for operator in UNARY.values():
            operator(LAYOUTS["contiguous"](torch.float32))
        for operator in IN_PLACE.values():
            operator(LAYOUTS["contiguous"](torch.float32))
        F.dropout(torch.ones(4))
    # Runs on GPUs only.
    missing = set(RULES) - tried - {aten._fused_rms_norm.default}
    assert not missing


def test_what_is_not_listed_has_no_recipe() -> None:
    x = torch.randn(64, 64)
    recorder = Recorder(lambda operand: True)
    with recorder:
        for y in (x @ x, x.softmax(-1), x.cumsum(0), x.mean(0), x.sum(-1), x[torch.arange(3)]):
            assert recorder.recipe(y) is None


def test_batch_norm_moves_running_statistics_once() -> None:
    x = torch.randn(6, 10, 16)
    mean, variance = torch.zeros(10), torch.ones(10)
    recorder = Recorder(lambda operand: True)
    with recorder:
        y = F.batch_norm(x, mean, variance, training=True)
        recipe = recorder.recipe(y)
        assert recipe is not None
    moved = mean.clone(), variance.clone()
    assert same_bits(recipe.run([x]), y)
    assert torch.equal(mean, moved[0])
    assert torch.equal(variance, moved[1])
    with recorder:
        y = F.batch_norm(x, mean, variance)
        recipe = recorder.recipe(y)
        F.batch_norm(x, mean, variance, training=True)
        assert recipe is not None
    inputs = [x, *moved][: len(recipe.inputs)]
    assert same_bits(recipe.run(inputs), y)


def test_written_arguments() -> None:
    assert written_arguments(aten.add_.Tensor) == (0,)
    assert written_arguments(aten.add.Tensor) == ()
    assert written_arguments(aten.add.out) == ("out",)
    assert written_arguments(aten._foreach_add_.Scalar) == (0,)
    assert written_arguments(aten.native_batch_norm.default) == (3, 4)
