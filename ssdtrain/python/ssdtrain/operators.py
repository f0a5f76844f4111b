# SPDX-License-Identifier: Apache-2.0
"""The closed list of operators that may be run again, and what is known of each.

An operator is listed if it is bound by memory bandwidth, reads nothing but its arguments and, where
it is random, one generator, and gives the same bits each time: element-wise functions, casts and
copies, the mean over the last dimension, normalisations. Not listed, although cheap: what draws
without a seed that can be set again, gathers (their indices are rarely saved), cuDNN's batch norm
(it picks an algorithm by itself), everything with an accumulation in an order that can vary.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from torch._ops import OpOverload

__all__ = ["RULES", "Rule", "is_evaluation", "written_arguments"]

Arguments = tuple[Any, ...]

_ELEMENTWISE = (
    # activations
    "gelu", "silu", "relu", "tanh", "sigmoid", "softplus", "leaky_relu", "elu", "celu", "mish",
    "hardswish", "hardsigmoid", "hardtanh", "log_sigmoid_forward", "_prelu_kernel", "glu",
    # their written-out forms, and those of norms and gates
    "abs", "erf", "exp", "log1p", "neg", "reciprocal", "rsqrt", "sqrt", "pow.Tensor_Scalar",
    "add.Tensor", "add.Scalar", "sub.Tensor", "sub.Scalar", "rsub.Scalar", "mul.Tensor",
    "mul.Scalar", "div.Tensor", "div.Scalar",
    # casts, and copies into another layout
    "_to_copy", "clone",
)  # fmt: skip
_ELEMENTWISE_IN_PLACE = (
    "gelu_", "silu_", "relu_", "tanh_", "sigmoid_", "leaky_relu_", "elu_", "celu_", "mish_",
    "hardswish_", "hardsigmoid_", "hardtanh_", "abs_", "erf_", "exp_", "log1p_", "neg_",
    "reciprocal_", "rsqrt_", "sqrt_", "pow_.Scalar", "add_.Tensor", "add_.Scalar", "sub_.Tensor",
    "sub_.Scalar", "mul_.Tensor", "mul_.Scalar", "div_.Tensor", "div_.Scalar",
)  # fmt: skip
_NORMS = ("native_layer_norm", "native_group_norm", "_fused_rms_norm")


@dataclass(frozen=True, slots=True)
class Rule:
    """What the recorder must know of an operator.

    Attributes
    ----------
    name : str
        For people.
    is_in_place : bool
        Whether the output is the first argument.
    is_random : bool
    blind_results : tuple of int
        Outputs that depend on the first argument's layout only.
    again : callable or None
        The arguments of the second run from those of the first; None in their place: not listed
        with these.
    """

    name: str
    is_in_place: bool = False
    is_random: bool = False
    blind_results: tuple[int, ...] = ()
    again: Callable[[Arguments], Arguments | None] | None = None


def _mean(arguments: Arguments) -> Arguments | None:
    tensor, dims = arguments[:2]
    is_last = dims is not None and list(dims) in ([-1], [tensor.dim() - 1])
    return arguments if is_last else None


def _batch_norm(arguments: Arguments) -> Arguments | None:
    # In training it reads the batch only, and moves the running statistics: once is enough.
    is_training = arguments[5]
    return (*arguments[:3], None, None, *arguments[5:]) if is_training else arguments


def _overload(text: str) -> OpOverload | None:
    name, _, overload = text.partition(".")
    packet = getattr(torch.ops.aten, name, None)
    return getattr(packet, overload or "default", None)


def _rules() -> dict[OpOverload, Rule]:
    named = {text: Rule(text.partition(".")[0].strip("_")) for text in (*_ELEMENTWISE, *_NORMS)}
    for text in _ELEMENTWISE_IN_PLACE:
        named[text] = Rule(text.partition(".")[0], is_in_place=True)
    named["_to_copy"] = Rule("cast")
    named["mean.dim"] = Rule("mean", again=_mean)
    named["native_batch_norm"] = Rule("batch_norm", again=_batch_norm)
    named["native_layer_norm"] = Rule("layer_norm")
    named["native_group_norm"] = Rule("group_norm")
    named["_fused_rms_norm"] = Rule("rms_norm")
    named["native_dropout"] = Rule("dropout", is_random=True, blind_results=(1,))
    named["bernoulli_.float"] = Rule(
        "bernoulli_", is_in_place=True, is_random=True, blind_results=(0,)
    )
    # A release that lacks one of them runs under another name, which is not listed then.
    found = {_overload(text): rule for text, rule in named.items()}
    return {function: rule for function, rule in found.items() if function is not None}


RULES: dict[OpOverload, Rule] = _rules()

_BATCH_NORMS = ("native_batch_norm", "cudnn_batch_norm", "miopen_batch_norm")


def written_arguments(function: OpOverload) -> tuple[int | str, ...]:
    """Positions and keywords of the arguments that an operator may write to.

    Parameters
    ----------
    function : OpOverload

    Notes
    -----
    The schema says it, with two exceptions: collectives are taken to write to everything, and
    batch norms in training move their running statistics (see :func:`is_evaluation`).
    """
    schema = function._schema
    named = [
        argument.name if argument.kwarg_only else position
        for position, argument in enumerate(schema.arguments)
        if function.namespace == "c10d"
        or (argument.alias_info is not None and argument.alias_info.is_write)
    ]
    return (*named, 3, 4) if function._opname in _BATCH_NORMS else tuple(named)


def is_evaluation(function: Any, arguments: Arguments) -> bool:
    """Whether this is a batch norm that leaves its running statistics alone."""
    is_batch_norm = getattr(function, "_opname", None) in _BATCH_NORMS
    return is_batch_norm and not arguments[5]
