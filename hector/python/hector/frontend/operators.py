# SPDX-License-Identifier: Apache-2.0
"""What may be called inside a compiled function: one recording handler for each operator.

Handlers see whole-tensor shapes, as PyTorch does, and state which spaces must agree; axes become
feature axes in lowering, when every space is known.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional

from hector import functional as semantic
from hector.frontend.record import Call, Recorder
from hector.frontend.shapes import axis, broadcast, concat, getitem, permute, reshape
from hector.ir.types import Space

__all__ = ["FUNCTIONS", "HANDLERS", "SUPPORTED"]

SUPPORTED = (
    "write it with indexing by g.src, g.dst, g.rel or a node type, hector.linear, @, + - * / **, "
    "exp log sqrt rsqrt reciprocal abs relu leaky_relu elu sigmoid tanh silu gelu softplus, "
    "sum and mean over features, reshape, view, flatten, unsqueeze, squeeze, permute, transpose, "
    "cat, hector.edge_softmax and hector.aggregate, or do it outside the compiled function"
)


def _unary(name: str) -> Callable[..., Call]:
    def handler(r: Recorder, x: Call) -> Call:
        return r.call("unary", (x,), x.shape, x.var, op=name, attrs={})

    return handler


def _with(r: Recorder, x: Call, name: str, **attrs: float) -> Call:
    return r.call("unary", (x,), x.shape, x.var, op=name, attrs=attrs)


def _relu(r: Recorder, input: Call, inplace: bool = False) -> Call:
    return _with(r, input, "relu")


def _silu(r: Recorder, input: Call, inplace: bool = False) -> Call:
    return _with(r, input, "silu")


def _leaky_relu(
    r: Recorder, input: Call, negative_slope: float = 0.01, inplace: bool = False
) -> Call:
    return _with(r, input, "leaky_relu", slope=float(negative_slope))


def _elu(r: Recorder, input: Call, alpha: float = 1.0, inplace: bool = False) -> Call:
    return _with(r, input, "elu", alpha=float(alpha))


def _gelu(r: Recorder, input: Call, approximate: str = "none") -> Call:
    if approximate != "none":
        raise r.refuse(f"gelu(approximate={approximate!r})", "use the exact form")
    return _with(r, input, "gelu")


def _softplus(r: Recorder, input: Call) -> Call:
    return _with(r, input, "softplus")


def _pow(r: Recorder, x: Call, exponent: Any) -> Call:
    if isinstance(x, Call) and isinstance(exponent, int | float):
        return _with(r, x, "power", exponent=float(exponent))
    raise r.refuse("a power whose exponent is a tensor", "use exp and log")


def _binary(name: str) -> Callable[..., Call]:
    def handler(r: Recorder, x: Any, y: Any, *, alpha: Any = 1) -> Call:
        if alpha != 1:
            raise r.refuse(f"{name}(alpha=..)", "multiply first")
        if not isinstance(x, Call):
            x = _number(r, x, y, name)
        if not isinstance(y, Call):
            y = _number(r, y, x, name)
        shape, var = broadcast(r, x, y, name)
        return r.call("binary", (x, y), shape, var, op=name)

    return handler


def _number(r: Recorder, value: Any, other: Call, name: str) -> Call:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise r.refuse(f"{name} with a {type(value).__name__}", "use a tensor or a number")
    return r.const(value, other.dtype)


def _sum(r: Recorder, x: Call, dim: Any = None, keepdim: bool = False) -> Call:
    if dim is None:
        raise r.refuse(
            "a sum or mean over everything", "name feature dimensions, or sum outside the function"
        )
    dims = dim if isinstance(dim, tuple) else (dim,)
    axes = tuple(sorted({axis(r, x, d) for d in dims}))
    kept = tuple(1 if i in axes else n for i, n in enumerate(x.shape))
    shape = kept if keepdim else tuple(n for i, n in enumerate(x.shape) if i not in axes)
    if 0 in axes:
        r.require(x, Space.WEIGHT, "a sum over dimension 0 (rows are summed by hector.aggregate)")
    return r.call("sum", (x,), shape, x.var, axes=axes)


def _mean(r: Recorder, x: Call, dim: Any = None, keepdim: bool = False) -> Call:
    total = _sum(r, x, dim, keepdim)
    count = math.prod(x.shape) // max(math.prod(total.shape), 1)
    if math.prod(x.shape) == 0:
        dims = dim if isinstance(dim, tuple) else (dim,)
        count = math.prod(x.shape[axis(r, x, d)] for d in dims)
    return _binary("div")(r, total, float(count))


def _matmul(r: Recorder, x: Any, w: Any) -> Call:
    for operand in (x, w):
        if not isinstance(operand, Call):
            raise r.refuse(f"@ with a {type(operand).__name__}", "use a tensor")
    if len(w.shape) == len(x.shape) == 3:
        return _bmm(r, x, w)
    if len(w.shape) not in (1, 2) or not x.shape or x.shape[-1] != w.shape[0]:
        raise r.refuse(f"{x.shape} @ {w.shape}", "use hector.linear for a matrix for each row")
    r.require(w, Space.WEIGHT, "the right-hand side of @")
    if len(x.shape) == 1:
        r.require(x, Space.WEIGHT, "a vector on the left of @")
    return r.call("matmul", (x, w), (*x.shape[:-1], *w.shape[1:]), x.var)


def _bmm(r: Recorder, x: Call, w: Call) -> Call:
    if x.shape[0] != w.shape[0] or x.shape[2] != w.shape[1]:
        raise ValueError(f"bmm of {x.shape} and {w.shape} does not fit")
    var = r.join(x, w, "a product")
    return r.call("linear", (x, w), (*x.shape[:2], w.shape[2]), var)


def _linear(r: Recorder, x: Call, weight: Call) -> Call:
    if len(weight.shape) == 2:
        return _matmul(r, x, weight)
    if len(x.shape) == len(weight.shape) == 3:
        return _bmm(r, x, weight)
    if len(x.shape) != 2 or len(weight.shape) not in (3, 4):
        raise r.refuse(
            f"hector.linear of {x.shape} and {weight.shape}",
            "use (rows, k) with (rows, k, n) or (rows, heads, k, n), or (rows, m, k) with "
            "(rows, k, n)",
        )
    if x.shape[0] != weight.shape[0] or x.shape[1] != weight.shape[-2]:
        raise ValueError(f"hector.linear: {x.shape} does not fit {weight.shape}")
    var = r.join(x, weight, "hector.linear")
    return r.call("linear", (x, weight), (*weight.shape[:-2], weight.shape[-1]), var)


def _nn_linear(r: Recorder, input: Call, weight: Call, bias: Any = None) -> Call:
    product = _matmul(r, input, permute(r, weight, (1, 0)))
    return product if bias is None else _binary("add")(r, product, bias)


def _edge_softmax(r: Recorder, score: Call, g: Any, by: str = "dst") -> Call:
    _check_graph(r, g, "edge_softmax")
    if by not in semantic.SOFTMAX_GROUPS:
        known = ", ".join(semantic.SOFTMAX_GROUPS)
        raise ValueError(f"edge_softmax: by={by!r} is none of {known}")
    r.require(score, Space.EDGE, "hector.edge_softmax")
    return r.call("edge_softmax", (score,), score.shape, score.var, by=by)


def _aggregate(r: Recorder, message: Call, g: Any, reduce: str = "sum") -> Call:
    _check_graph(r, g, "aggregate")
    if reduce not in semantic.AGGREGATIONS:
        known = ", ".join(semantic.AGGREGATIONS)
        raise ValueError(f"aggregate: reduce={reduce!r} is none of {known}")
    r.require(message, Space.EDGE, "hector.aggregate")
    shape = (r.counts.node, *message.shape[1:])
    from hector.frontend.record import SpaceVar

    return r.call("aggregate", (message,), shape, SpaceVar(Space.NODE), reduce=reduce)


def _check_graph(r: Recorder, g: Any, name: str) -> None:
    if getattr(g, "recorder", None) is not r:
        raise TypeError(f"{name}: the graph must be the compiled function's own graph argument")


def _dropout(r: Recorder, *args: Any, **kwargs: Any) -> Call:
    raise r.refuse("dropout", "apply it to the inputs or outputs of the compiled function")


HANDLERS: dict[str, Callable[..., Call]] = {
    **{
        name: _unary(name)
        for name in "neg exp log sqrt rsqrt reciprocal abs sigmoid tanh".split()
    },
    **{name: _binary(name) for name in "add sub mul div".split()},
    "true_divide": _binary("div"),
    "relu": _relu, "silu": _silu, "leaky_relu": _leaky_relu, "elu": _elu, "gelu": _gelu,
    "softplus": _softplus, "pow": _pow, "sum": _sum, "mean": _mean, "matmul": _matmul,
    "bmm": _bmm, "mm": _matmul, "linear": _linear, "nn_linear": _nn_linear,
    "edge_softmax": _edge_softmax, "aggregate": _aggregate, "dropout": _dropout,
    "contiguous": lambda r, x: x,
    "getitem": getitem, "cat": concat, "reshape": reshape, "permute": permute,
    "view": reshape,
    "flatten": lambda r, x, start_dim=0, end_dim=-1: reshape(r, x, (
        *x.shape[:axis(r, x, start_dim)],
        math.prod(x.shape[axis(r, x, start_dim):axis(r, x, end_dim) + 1]),
        *x.shape[axis(r, x, end_dim) + 1:],
    )),
    "unsqueeze": lambda r, x, dim: getitem(
        r, x, (slice(None),) * (dim if dim >= 0 else len(x.shape) + 1 + dim) + (None,)
    ),
    "squeeze": lambda r, x, dim: (
        x if x.shape[axis(r, x, dim)] != 1
        else getitem(r, x, (slice(None),) * axis(r, x, dim) + (0,))
    ),
    "transpose": lambda r, x, dim0, dim1: permute(r, x, _swapped(
        len(x.shape), axis(r, x, dim0), axis(r, x, dim1)
    )),
    "t": lambda r, x: permute(r, x, tuple(range(len(x.shape)))[::-1]),
}  # fmt: skip
"""Recording handler by operator name."""


def _swapped(rank: int, a: int, b: int) -> tuple[int, ...]:
    dims = list(range(rank))
    dims[a], dims[b] = dims[b], dims[a]
    return tuple(dims)


def _functions() -> dict[Callable[..., Any], str]:
    """Which torch callables mean which handler."""
    table: dict[Callable[..., Any], str] = {
        semantic.linear: "linear",
        semantic.edge_softmax: "edge_softmax",
        semantic.aggregate: "aggregate",
        semantic.dropout: "dropout",
        functional.linear: "nn_linear",
        torch.Tensor.__getitem__: "getitem",
        torch.concat: "cat",
        torch.Tensor.__matmul__: "matmul",
        torch.multiply: "mul",
        torch.subtract: "sub",
        torch.divide: "div",
    }
    for name in HANDLERS:
        for owner in (torch, torch.Tensor, functional):
            function = getattr(owner, name, None)
            if function is not None and name not in ("linear", "nn_linear"):
                table.setdefault(function, name)
    return table


FUNCTIONS = _functions()
"""Handler name by torch callable."""
