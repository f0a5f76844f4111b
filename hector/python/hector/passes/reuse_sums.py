# SPDX-License-Identifier: Apache-2.0
"""A segment's sum of inner products with what the whole segment shares, from a sum at hand.

``sum over edges of w (G[dst] . z)`` is ``G . (sum over edges of w z)``. The gradient of a softmax
needs the former and the forward program has the latter, the layer's result, so no walk over the
edges is needed before the one that gives the gradients (Dao et al., 2022, section 3.1).
"""

from __future__ import annotations

from collections import Counter
from typing import TypeAlias

from hector.ir.function import Builder, Function, Value
from hector.passes.rewrite import rewrite

__all__ = ["reuse_sums"]

Shape: TypeAlias = tuple[int, ...]
Factor: TypeAlias = tuple[Value, Shape]
"""What a product is made of, and the shape in which it enters."""


def _root(value: Value) -> Value:
    while value.op in ("reshape", "broadcast"):
        value = value.operands[0]
    return value


def _same_but_for_ones(a: Shape, b: Shape) -> bool:
    return [n for n in a if n != 1] == [n for n in b if n != 1]


def _factors(value: Value) -> list[Factor]:
    found: list[Factor] = []
    for operand in value.operands if value.op == "mul" else (value,):
        inner = operand
        while inner.op == "reshape":
            inner = inner.operands[0]
        parts = _factors(inner) if inner.op == "mul" else []
        shape = operand.type.shape
        if inner is not operand and (
            any(each != inner.type.shape for _, each in parts)
            or not _same_but_for_ones(shape, inner.type.shape)
        ):
            parts = []
        if inner is not operand:
            parts = [(root, shape) for root, _ in parts]
        found += parts or [(_root(operand), shape)]
    return found


def _key(factors: list[Factor]) -> frozenset[tuple[Factor, int]]:
    """Factors in any order; the shape of a single number does not matter."""
    plain = [(root, shape if root.type.width > 1 else ()) for root, shape in factors]
    return frozenset(Counter(plain).items())


def _spread(shape: Shape, axes: tuple[int, ...]) -> Shape:
    """A shape with extents of one put where axes were summed."""
    spread = list(shape)
    for axis in sorted(axes):
        spread.insert(axis, 1)
    return tuple(spread)


def _rule(builder: Builder, op: Value, operands: tuple[Value, ...]) -> Value | None:
    if op.op != "segment_sum":
        return None
    name, factors = op.map(), _factors(operands[0])
    known = {
        (_key(_factors(each.operands[0])), each.type): each
        for each in builder.ops
        if each.op == "segment_sum" and each.map() == name
    }
    for i, (dot, shape) in enumerate(factors):
        if dot.op != "sum" or dot.operands[0].op != "mul":
            continue
        if dot.type.width > 1 and shape != dot.type.shape:
            continue
        axes, pair = dot.integers("axes"), dot.operands[0].operands
        rest = [factor for j, factor in enumerate(factors) if j != i]
        weights = [(root, _spread(each, axes)) for root, each in rest]
        for shared, value in (pair, pair[::-1]):
            if shared.op != "gather" or shared.map() != name:
                continue
            row, inner = shared.operands[0], _factors(value)
            total = known.get((_key([*weights, *inner]), row.type))
            if total is None or dot.operands[0].type.shape != row.type.shape:
                continue
            product = builder.emit("mul", row, total)
            return builder.reshape(builder.emit("sum", product, axes=axes), op.type.shape)
    return None


def reuse_sums(function: Function) -> Function:
    """Take sums of inner products from sums that the function has already.

    Parameters
    ----------
    function : Function
        A joint function as ``differentiate`` gives it.

    Returns
    -------
    Function
        With the same results up to rounding.
    """
    return rewrite(function, _rule)
