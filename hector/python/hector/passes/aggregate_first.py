# SPDX-License-Identifier: Apache-2.0
"""Linear reordering, sums first: rows that share a matrix and an end point are added, then mapped.

``sum over edges of x W[rel]`` becomes ``sum over (relation, node) pairs of (sum of x) W[rel]``:
one product for each pair in place of one for each edge.
"""

from __future__ import annotations

from hector.ir.function import Builder, Function, Value
from hector.ir.types import MAPS, factor
from hector.passes.rewrite import rewrite

__all__ = ["aggregate_first"]

_PAIRS = {"edge.dst": "edge.dst_pair", "edge.src": "edge.src_pair"}


def _scaled_linear(value: Value) -> tuple[Value, list[Value]] | None:
    """A typed product and the factors behind it that are constant along its last axis."""
    scales: list[Value] = []
    while value.op == "mul":
        body, scale = value.operands
        narrow = not scale.type.shape or scale.type.shape[-1] == 1
        if body.type != value.type or not narrow:
            return None
        scales.append(scale)
        value = body
    return (value, scales) if value.op == "linear" else None


def _rule(builder: Builder, op: Value, operands: tuple[Value, ...]) -> Value | None:
    if op.op != "segment_sum" or op.map() not in _PAIRS:
        return None
    found = _scaled_linear(operands[0])
    if found is None:
        return None
    product, scales = found
    pair = _PAIRS[str(op.map())]
    kind = factor(product.map("type") or "", pair)
    node = factor(str(op.map()), pair)
    if kind is None or node is None or product.type.shape[-1] == 1 or "rows" in product.attrs:
        return None
    rows, weight = product.operands
    for scale in scales:
        rows = builder.emit("mul", rows, scale)
    summed = builder.emit("segment_sum", rows, map=pair)
    mapped = builder.emit("linear", summed, weight, **{**product.attrs, "type": kind})
    assert MAPS[pair].target is mapped.type.space
    return builder.emit("segment_sum", mapped, map=node)


def aggregate_first(function: Function) -> Function:
    """Sum rows over (relation, node) pairs before they are mapped.

    Parameters
    ----------
    function : Function
        Canonical.

    Returns
    -------
    Function
        With the same results up to rounding.
    """
    return rewrite(function, _rule)
