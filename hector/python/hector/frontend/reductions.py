# SPDX-License-Identifier: Apache-2.0
"""Recording of what reduces or normalises over features; rows are reduced by aggregate only."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from hector.frontend.elementwise import binary, unary
from hector.frontend.record import Call, Recorder
from hector.frontend.shapes import axis
from hector.ir.types import Space

__all__ = ["REDUCTIONS", "reduce_sum"]


def _reduce(r: Recorder, kind: str, x: Call, dim: Any, keepdim: bool) -> Call:
    if dim is None or dim in ((), []):  # PyTorch takes no dimension for all
        raise r.refuse(
            "a sum or mean over everything", "name feature dimensions, or sum outside the function"
        )
    dims = dim if isinstance(dim, tuple | list) else (dim,)
    if len(dims) != len({axis(r, x, d) for d in dims}):
        raise IndexError(f"a dimension appears twice in {dim}")
    axes = tuple(sorted({axis(r, x, d) for d in dims}))
    kept = tuple(1 if i in axes else n for i, n in enumerate(x.shape))
    shape = kept if keepdim else tuple(n for i, n in enumerate(x.shape) if i not in axes)
    if 0 in axes:
        r.require(x, Space.WEIGHT, f"a {kind} over dimension 0 (rows are summed by aggregate)")
    return r.call(kind, (x,), shape, x.var, axes=axes)


def reduce_sum(
    r: Recorder, input: Call, dim: Any = None, keepdim: bool = False, dtype: None = None
) -> Call:
    """Record a sum over feature dimensions."""
    if dtype is not None:
        raise r.refuse("sum(dtype=..)", "convert before the call")
    return _reduce(r, "sum", input, dim, keepdim)


def _extent(r: Recorder, x: Call, dim: Any) -> int:
    dims = dim if isinstance(dim, tuple | list) else (dim,)
    return math.prod(x.shape[i] for i in {axis(r, x, d) for d in dims})


def _mean(
    r: Recorder, input: Call, dim: Any = None, keepdim: bool = False, dtype: None = None
) -> Call:
    total = reduce_sum(r, input, dim, keepdim, dtype)
    return binary("div")(r, total, float(_extent(r, input, dim)))


def _amax(r: Recorder, input: Call, dim: Any = (), keepdim: bool = False) -> Call:
    if dim in ((), []):
        raise r.refuse("amax over everything", "name feature dimensions")
    if _extent(r, input, dim) == 0:
        raise IndexError(f"amax of no elements ({input.shape}, dimension {dim})")
    return _reduce(r, "amax", input, dim, keepdim)


def _amin(r: Recorder, input: Call, dim: Any = (), keepdim: bool = False) -> Call:
    return unary(r, _amax(r, unary(r, input, "neg"), dim, keepdim), "neg")


def _shifted(r: Recorder, x: Call, dim: Any) -> tuple[Call, Call]:
    """The features' maximum as a constant of differentiation, and the distance from it."""
    high = unary(r, _amax(r, x, dim, True), "detach")
    return high, binary("sub")(r, x, high)


def _softmax(r: Recorder, input: Call, dim: Any, _stacklevel: int = 3, dtype: None = None) -> Call:
    if dtype is not None or not isinstance(dim, int):
        raise r.refuse(f"softmax(dim={dim}, dtype={dtype})", "name one feature dimension")
    raised = unary(r, _shifted(r, input, dim)[1], "exp")
    return binary("div")(r, raised, _reduce(r, "sum", raised, dim, True))


def _log_softmax(
    r: Recorder, input: Call, dim: Any, _stacklevel: int = 3, dtype: None = None
) -> Call:
    if dtype is not None or not isinstance(dim, int):
        raise r.refuse(f"log_softmax(dim={dim}, dtype={dtype})", "name one feature dimension")
    low = _shifted(r, input, dim)[1]
    total = _reduce(r, "sum", unary(r, low, "exp"), dim, True)
    return binary("sub")(r, low, unary(r, total, "log"))


def _logsumexp(r: Recorder, input: Call, dim: Any, keepdim: bool = False) -> Call:
    low = _shifted(r, input, dim)[1]
    total = _reduce(r, "sum", unary(r, low, "exp"), dim, keepdim)
    high = unary(r, _amax(r, input, dim, keepdim), "detach")
    return binary("add")(r, unary(r, total, "log"), high)


def _layer_norm(
    r: Recorder,
    input: Call,
    normalized_shape: Any,
    weight: Any = None,
    bias: Any = None,
    eps: float = 1e-05,
) -> Call:
    extents = tuple(normalized_shape)
    if (
        not extents
        or input.shape[len(input.shape) - len(extents) :] != extents
        or len(extents) > (len(input.shape) - 1)
    ):
        raise ValueError(f"layer_norm over {extents} of a tensor of shape {input.shape}")
    dims = tuple(range(len(input.shape) - len(extents), len(input.shape)))
    centred = binary("sub")(r, input, _mean(r, input, dims, True))
    variance = _mean(r, binary("mul")(r, centred, centred), dims, True)
    scale = unary(r, binary("add")(r, variance, float(eps)), "rsqrt")
    out = binary("mul")(r, centred, scale)
    out = out if weight is None else binary("mul")(r, out, weight)
    return out if bias is None else binary("add")(r, out, bias)


def _vecdot(r: Recorder, x: Call, y: Call, dim: int = -1) -> Call:
    return reduce_sum(r, binary("mul")(r, x, y), dim)


REDUCTIONS: dict[str, Callable[..., Any]] = {
    "sum": reduce_sum, "mean": _mean, "amax": _amax, "amin": _amin, "softmax": _softmax,
    "log_softmax": _log_softmax, "logsumexp": _logsumexp, "layer_norm": _layer_norm,
    "vecdot": _vecdot,
}  # fmt: skip
"""Handlers by name."""
