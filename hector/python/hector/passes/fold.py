# SPDX-License-Identifier: Apache-2.0
"""Linear reordering, weights first: an inner product behind a linear map folds into its matrix.

``sum((x W[r]) * a[r])`` becomes ``x (W[r] a[r])``: one skinny product in place of a full one
(Hector, ASPLOS 2024, linear operator reordering). Legal always; worth it when the full product
has no other use or costs more, which the caller decides.
"""

from __future__ import annotations

from hector.ir.function import Builder, Function, Value
from hector.ir.types import Space
from hector.passes.rewrite import rewrite

__all__ = ["fold"]


def _vector(factor: Value, product: Value) -> Value | None:
    """The attention vector where it is selected as the matrix is, or shared."""
    if factor.op == "gather" and factor.map() == product.map("type"):
        return factor.operands[0]
    return factor if factor.type.space is Space.WEIGHT else None


def _rule(builder: Builder, op: Value, operands: tuple[Value, ...]) -> Value | None:
    if op.op != "sum" or operands[0].op != "mul":
        return None
    scaled = operands[0]
    rank = len(scaled.type.shape)
    if op.integers("axes") != (rank - 1,):
        return None
    for heads, factor in (scaled.operands, scaled.operands[::-1]):
        product = heads.operands[0] if heads.op == "reshape" else heads
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
    return rewrite(function, _rule)
