# SPDX-License-Identifier: Apache-2.0
"""Linear reordering, weights first: what follows a linear map folds into its matrix.

``sum((x W[r]) * a[r])`` becomes ``x (W[r] a[r])`` and ``(x W[r]) q`` becomes ``x (W[r] q)``: one
skinny product in place of a full one (Hector, ASPLOS 2024, linear operator reordering). Where the
full product is needed anyway, an inner product beside it costs nothing, so that is left alone.
"""

from __future__ import annotations

from collections.abc import Mapping

from hector.ir.function import Builder, Function, Value
from hector.ir.types import Space
from hector.passes.rewrite import rewrite

__all__ = ["fold"]


def _vector(factor: Value, product: Value) -> Value | None:
    """The attention vector where it is selected as the matrix is, or shared."""
    if factor.op == "gather" and factor.map() == product.map("type"):
        return factor.operands[0]
    return factor if factor.type.space is Space.WEIGHT else None


def _product(value: Value) -> Value:
    return value.operands[0] if value.op == "reshape" else value


def _inner_product(
    builder: Builder, op: Value, operands: tuple[Value, ...], uses: Mapping[Value, int]
) -> Value | None:
    if op.op != "sum" or operands[0].op != "mul":
        return None
    scaled = operands[0]
    rank = len(scaled.type.shape)
    if op.integers("axes") != (rank - 1,):
        return None
    for i, heads in enumerate(scaled.operands):
        factor, product = scaled.operands[1 - i], _product(heads)
        if uses[_product(op.operands[0].operands[i])] > 1:
            continue
        if product.op != "linear" or "transpose" in product.attrs or len(product.type.shape) != 1:
            continue
        vector = _vector(factor, product)
        if vector is None or heads.type.shape != scaled.type.shape or rank > 2:
            continue
        row, weight = product.operands
        shape = (1,) * (2 - rank) + heads.type.shape
        if vector.type.width not in (shape[1], shape[0] * shape[1]):
            continue
        split = builder.reshape(weight, (weight.type.shape[0], *shape))
        spread = (1,) * (3 - len(vector.type.shape)) + vector.type.shape
        weighted = builder.emit("mul", split, builder.reshape(vector, spread))
        folded = builder.emit("sum", weighted, axes=(2,))
        return builder.reshape(builder.emit("linear", row, folded, **product.attrs), op.type.shape)
    return None


def _chain(
    builder: Builder, op: Value, operands: tuple[Value, ...], uses: Mapping[Value, int]
) -> Value | None:
    """A product with a shared matrix after one that is wider."""
    if op.op != "linear" or "type" in op.attrs or operands[1].type.space is not Space.WEIGHT:
        return None
    inner, matrix = operands
    if inner.op != "linear" or "transpose" in inner.attrs or uses[op.operands[0]] > 1:
        return None
    if op.type.width >= inner.type.width or "type" not in inner.attrs:
        return None
    row, weight = inner.operands
    folded = builder.emit("linear", weight, matrix, **op.attrs)
    return builder.emit("linear", row, folded, **inner.attrs)


def fold(function: Function) -> Function:
    """Fold vectors that follow a linear map into its matrices.

    Parameters
    ----------
    function : Function
        Canonical.

    Returns
    -------
    Function
        With the same results up to rounding; the folded products are left to dead code
        elimination.
    """
    uses = function.uses()

    def rule(builder: Builder, op: Value, operands: tuple[Value, ...]) -> Value | None:
        found = _inner_product(builder, op, operands, uses)
        return _chain(builder, op, operands, uses) if found is None else found

    return rewrite(function, rule)
