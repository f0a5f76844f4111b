# SPDX-License-Identifier: Apache-2.0
"""Absorbs gathers and factors into the operators that read them, so no edge rows are stored.

The fused operators are the instances of two templates: products with access schemes (``linear``,
``outer``) and traversals (``gather_sum``, ``gather_dot``). Runs last: other passes look for the
plain forms.
"""

from __future__ import annotations

from hector.ir.function import Builder, Function, Value
from hector.ir.types import Space
from hector.passes.dce import eliminate_dead
from hector.passes.rewrite import rewrite

__all__ = ["fuse"]


def _absorbed(value: Value) -> tuple[Value, str | None]:
    return (value.operands[0], value.map()) if value.op == "gather" else (value, None)


def _is_scale(value: Value, like: Value) -> bool:
    shape = value.type.shape
    return value.type.space is like.type.space and bool(shape) and shape[-1] == 1


def _products(builder: Builder, op: Value, operands: tuple[Value, ...]) -> Value | None:
    if op.op == "linear" and "rows" not in op.attrs:
        rows, through = _absorbed(operands[0])
        if through is not None:
            return builder.emit("linear", rows, operands[1], **op.attrs, rows=through)
    if op.op == "outer" and not {"rows", "rows_y"} & op.attrs.keys():
        (x, first), (y, second) = _absorbed(operands[0]), _absorbed(operands[1])
        if first is not None or second is not None:
            return builder.emit("outer", x, y, **op.attrs, rows=first, rows_y=second)
    return None


def _traversals(builder: Builder, op: Value, operands: tuple[Value, ...]) -> Value | None:
    if op.op == "segment_sum":
        body = operands[0]
        rows, through = _absorbed(body)
        if through is not None:
            return builder.emit("gather_sum", rows, map=op.map(), rows=through)
        if body.op == "mul" and _is_scale(body.operands[1], body):
            rows, through = _absorbed(body.operands[0])
            if through is not None and body.operands[0].type == body.type:
                scale = body.operands[1]
                return builder.emit("gather_sum", rows, scale, map=op.map(), rows=through)
    if op.op == "sum" and operands[0].op == "mul":
        body = operands[0]
        if op.integers("axes") != (len(body.type.shape) - 1,):
            return None
        (x, first), (y, second) = _absorbed(body.operands[0]), _absorbed(body.operands[1])
        same = body.operands[0].type == body.operands[1].type
        if same and body.type.space is not Space.WEIGHT and (first or second):
            return builder.emit("gather_dot", x, y, rows=first, rows_y=second)
    return None


def _rule(builder: Builder, op: Value, operands: tuple[Value, ...]) -> Value | None:
    return _products(builder, op, operands) or _traversals(builder, op, operands)


def fuse(function: Function) -> Function:
    """Absorb gathers and factors into products and segment sums.

    Parameters
    ----------
    function : Function
        Canonical.

    Returns
    -------
    Function
        Without the operators that were absorbed.
    """
    return eliminate_dead(rewrite(function, _rule))
