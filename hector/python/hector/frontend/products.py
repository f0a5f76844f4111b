# SPDX-License-Identifier: Apache-2.0
"""Recording of products: matrices shared, typed, for each head; einsum is in einsum."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hector.frontend.elementwise import binary
from hector.frontend.record import Call, Recorder
from hector.frontend.shapes import permute, reshape
from hector.ir.types import Space

__all__ = ["PRODUCTS", "linear", "matmul", "row_product", "shared_heads"]

_LINEAR = (
    "use (rows, k) with (rows, k, n) or (rows, heads, k, n), (rows, m, k) with (rows, k, n), or "
    "(rows, heads, k) with (rows, heads, k, n)"
)


def matmul(r: Recorder, x: Any, w: Any) -> Call:
    """Record ``x @ w``: a shared matrix or vector on the right, or one matrix for each row."""
    for operand in (x, w):
        if not isinstance(operand, Call):
            raise r.refuse(f"@ with a {type(operand).__name__}", "use a tensor")
    if len(w.shape) == len(x.shape) == 3:
        return _bmm(r, x, w)
    if len(w.shape) == len(x.shape) == 4 and x.shape[2] == 1:
        heads = reshape(r, x, (*x.shape[:2], x.shape[3]))
        product = linear(r, heads, w)
        return reshape(r, product, (*product.shape[:2], 1, product.shape[2]))
    if len(w.shape) not in (1, 2) or not x.shape or x.shape[-1] != w.shape[0]:
        raise r.refuse(f"{x.shape} @ {w.shape}", "use hector.linear for a matrix for each row")
    r.require(w, Space.WEIGHT, "the right-hand side of @")
    if len(x.shape) == 1:
        r.require(x, Space.WEIGHT, "a vector on the left of @")
    return r.call("matmul", (x, w), (*x.shape[:-1], *w.shape[1:]), x.var)


def _bmm(r: Recorder, x: Call, w: Call, *, einsum: bool = False) -> Call:
    if len(x.shape) != 3 or len(w.shape) != 3:
        raise r.refuse(f"bmm of {x.shape} and {w.shape}", _LINEAR)
    if x.shape[0] != w.shape[0] or x.shape[2] != w.shape[1]:
        raise ValueError(f"bmm of {x.shape} and {w.shape} does not fit")
    var = r.join(x, w, "a product")
    return r.call("linear", (x, w), (*x.shape[:2], w.shape[2]), var, einsum=einsum)


def linear(r: Recorder, x: Call, weight: Call) -> Call:
    """Record ``hector.linear``."""
    return row_product(r, x, weight)


def row_product(r: Recorder, x: Call, weight: Call, *, einsum: bool = False) -> Call:
    """Record rows times matrices; those of an einsum may be features instead of matrices."""
    if not isinstance(x, Call) or not isinstance(weight, Call):
        raise r.refuse("hector.linear of something else than tensors", _LINEAR)
    if len(weight.shape) == 2:
        return matmul(r, x, weight)
    if len(x.shape) == len(weight.shape) == 3:
        return _bmm(r, x, weight, einsum=einsum)
    heads = len(x.shape) == 3 and len(weight.shape) == 4
    if not heads and (len(x.shape) != 2 or len(weight.shape) not in (3, 4)):
        raise r.refuse(f"hector.linear of {x.shape} and {weight.shape}", _LINEAR)
    lead = x.shape[:-1] if heads else x.shape[:1]
    if lead != weight.shape[: len(lead)] or x.shape[-1] != weight.shape[-2]:
        raise ValueError(f"hector.linear: {x.shape} does not fit {weight.shape}")
    var = r.join(x, weight, "hector.linear")
    shape = (*weight.shape[:-2], weight.shape[-1])
    return r.call("linear", (x, weight), shape, var, einsum=einsum)


def _nn_linear(r: Recorder, input: Call, weight: Call, bias: Any = None) -> Call:
    product = matmul(r, input, permute(r, weight, (1, 0)))
    return product if bias is None else binary("add")(r, product, bias)


def _addmm(r: Recorder, input: Call, mat1: Call, mat2: Call) -> Call:
    return binary("add")(r, matmul(r, mat1, mat2), input)


def shared_heads(r: Recorder, x: Call, w: Call) -> Call:
    """Record rows (rows, heads, k) times matrices (heads, k, n) that all rows share."""
    r.require(w, Space.WEIGHT, "matrices for each head")
    return r.call("linear", (x, w), (*x.shape[:2], w.shape[2]), x.var, shared=True)


PRODUCTS: dict[str, Callable[..., Any]] = {
    "matmul": matmul, "mm": matmul, "mv": matmul, "linear": linear, "nn_linear": _nn_linear,
    "addmm": _addmm, "bmm": lambda r, input, mat2: _bmm(r, input, mat2),
}  # fmt: skip
"""Handlers by name."""
