# SPDX-License-Identifier: Apache-2.0
"""Recording of arithmetic, activations and dropout: operators that keep every element's place."""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable
from typing import Any

from hector.frontend.numbers import TracedInt
from hector.frontend.record import Call, Recorder, SpaceVar
from hector.frontend.shapes import broadcast, one_row, reshape
from hector.ir.types import Space

__all__ = ["ELEMENTWISE", "binary", "unary"]


def unary(r: Recorder, x: Call, name: str, **attrs: float) -> Call:
    """Record an operator of one operand."""
    return r.call("unary", (x,), x.shape, x.var, op=name, attrs=attrs)


def binary(name: str) -> Callable[..., Call]:
    """The handler of an operator of two operands; numbers become constants."""

    def handler(r: Recorder, x: Any, y: Any, *, alpha: Any = 1) -> Call:
        if alpha != 1:
            y = binary("mul")(r, y, alpha) if isinstance(y, Call) else y * alpha
        if not isinstance(x, Call):
            x = _number(r, x, y, name)
        if not isinstance(y, Call):
            y = _number(r, y, x, name)
        if name in ("maximum", "minimum") and x.kind == "const":
            x, y = y, x
        alike = one_row(x, y)
        shape, var = broadcast(r, x, y, name)
        return r.call("binary", (x, y), shape, var, op=name, one_row=alike)

    return handler


def _number(r: Recorder, value: Any, other: Call, name: str) -> Call:
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise r.refuse(f"{name} with a {type(value).__name__}", "use a tensor or a number")
    return r.const(float(value), other.dtype)


def _plain(name: str) -> Callable[..., Call]:
    return lambda r, x: unary(r, x, name)


def _out_of_place(r: Recorder, inplace: bool) -> None:
    """Refuse to overwrite what may be an argument, or be read again."""
    if inplace:
        raise r.refuse("inplace=True", "leave it out: nothing is changed in place")


def _relu(r: Recorder, input: Call, inplace: bool = False) -> Call:
    _out_of_place(r, inplace)
    return unary(r, input, "relu")


def _silu(r: Recorder, input: Call, inplace: bool = False) -> Call:
    _out_of_place(r, inplace)
    return unary(r, input, "silu")


def _leaky_relu(
    r: Recorder, input: Call, negative_slope: float = 0.01, inplace: bool = False
) -> Call:
    _out_of_place(r, inplace)
    return unary(r, input, "leaky_relu", slope=float(negative_slope))


def _elu(r: Recorder, input: Call, alpha: float = 1.0, inplace: bool = False) -> Call:
    _out_of_place(r, inplace)
    return unary(r, input, "elu", alpha=float(alpha))


def _selu(r: Recorder, input: Call, inplace: bool = False) -> Call:
    _out_of_place(r, inplace)
    raised = unary(r, input, "elu", alpha=1.6732632423543772)
    return binary("mul")(r, raised, 1.0507009873554805)


def _gelu(r: Recorder, input: Call, approximate: str = "none") -> Call:
    if approximate != "none":
        raise r.refuse(f"gelu(approximate={approximate!r})", "use the exact form")
    return unary(r, input, "gelu")


def _softplus(r: Recorder, input: Call, beta: float = 1, threshold: float = 20) -> Call:
    if threshold != 20 or not beta:
        raise r.refuse(f"softplus(beta={beta}, threshold={threshold})", "leave the threshold out")
    if beta == 1:
        return unary(r, input, "softplus")
    raised = unary(r, binary("mul")(r, input, float(beta)), "softplus")
    return binary("div")(r, raised, float(beta))


def _logsigmoid(r: Recorder, input: Call) -> Call:
    return unary(r, unary(r, unary(r, input, "neg"), "softplus"), "neg")


def _mish(r: Recorder, input: Call, inplace: bool = False) -> Call:
    _out_of_place(r, inplace)
    return binary("mul")(r, input, unary(r, unary(r, input, "softplus"), "tanh"))


def _prelu(r: Recorder, input: Call, weight: Call) -> Call:
    r.require(weight, Space.WEIGHT, "prelu's slope")
    if len(input.shape) > 2 and weight.shape != (1,):
        weight = reshape(r, weight, (*weight.shape, *(1,) * (len(input.shape) - 2)))
    negative = _clamp(r, input, max=0)  # its slope is 1 at 0 too, as prelu's is the weight there
    return binary("add")(r, unary(r, input, "relu"), binary("mul")(r, negative, weight))


def _square(r: Recorder, input: Call) -> Call:
    return binary("mul")(r, input, input)


def _pow(r: Recorder, x: Any, exponent: Any) -> Call:
    if isinstance(x, Call) and isinstance(exponent, int | float):
        return unary(r, x, "power", exponent=float(exponent))
    if isinstance(exponent, Call) and isinstance(x, int | float) and x > 0:
        return unary(r, binary("mul")(r, exponent, math.log(x)), "exp")
    raise r.refuse("a power whose exponent is a tensor", "use exp and log")


def _clamp(r: Recorder, input: Call, min: Any = None, max: Any = None) -> Call:
    if min is None and max is None:
        raise ValueError("clamp without a bound")
    bounds = [-math.inf if min is None else min, math.inf if max is None else max]
    if not all(isinstance(bound, int | float) for bound in bounds):
        raise r.refuse("clamp to tensors", "use torch.maximum and torch.minimum")
    return unary(r, input, "clamp", low=float(bounds[0]), high=float(bounds[1]))


def _detach(r: Recorder, x: Call) -> Call:
    return unary(r, x, "detach")


def _dropout(r: Recorder, x: Call, p: Any, seed: Any) -> Call:
    if isinstance(p, bool) or not isinstance(p, int | float) or not 0 <= p < 1:
        raise ValueError(f"dropout: p={p} must be in [0, 1)")
    if not x.shape:
        raise r.refuse("dropout of a tensor without dimensions", "scale it yourself")
    if not isinstance(seed, TracedInt | Call | int):
        raise r.refuse(f"dropout with seed={seed!r}", "pass an int or an int64 tensor")
    if p == 0:
        return x
    if isinstance(seed, TracedInt):
        seed = seed.recorded()
    elif isinstance(seed, Call):
        if seed.shape or seed.dtype != "i64":
            raise TypeError(f"dropout: seed must be an int64 tensor of no dimension, not {seed}")
    else:
        seed = r.call("seed", (), (), SpaceVar(Space.WEIGHT), "i64", value=seed)
    kept = r.call("keep", (seed,), x.shape, x.var, x.dtype, p=float(p))
    return r.call("binary", (x, kept), x.shape, x.var, op="mul")


def _torch_dropout(
    r: Recorder, input: Call, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Call:
    _out_of_place(r, inplace)
    if training and p > 0:
        raise r.refuse(
            "dropout that draws from the global generator",
            "use hector.dropout(x, p, seed) with a seed that changes from step to step",
        )
    return input


ELEMENTWISE: dict[str, Callable[..., Any]] = {
    **{
        name: _plain(name)
        for name in "neg exp log sqrt rsqrt reciprocal abs sigmoid tanh sin cos".split()
    },
    **{name: binary(name) for name in "add sub mul div maximum minimum".split()},
    "true_divide": binary("div"), "negative": _plain("neg"), "absolute": _plain("abs"),
    "relu": _relu, "silu": _silu, "leaky_relu": _leaky_relu, "elu": _elu, "selu": _selu,
    "gelu": _gelu, "softplus": _softplus, "logsigmoid": _logsigmoid, "mish": _mish,
    "prelu": _prelu, "square": _square, "pow": _pow, "clamp": _clamp, "clip": _clamp,
    "clamp_min": lambda r, input, min: _clamp(r, input, min),
    "clamp_max": lambda r, input, max: _clamp(r, input, None, max),
    "rsub": lambda r, input, other, alpha=1: binary("sub")(r, other, input, alpha=alpha),
    "detach": _detach, "hector_dropout": _dropout, "dropout": _torch_dropout,
}  # fmt: skip
"""Handlers by name."""
