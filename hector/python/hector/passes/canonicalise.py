# SPDX-License-Identifier: Apache-2.0
"""Brings every way of writing a thing into one form, and moves per-relation work off the edges.

Always on: every rewrite here is worth it on any graph. Rewrites that depend on counts are passes
of their own.
"""

from __future__ import annotations

import math

from hector._errors import unsupported
from hector.ir.function import Builder, Function, Value
from hector.ir.ops import BINARY, UNARY
from hector.ir.types import MAPS, Space, compose
from hector.passes.dce import eliminate_dead
from hector.passes.rewrite import rewrite

__all__ = ["ROW_LOCAL", "canonicalise", "check_matrices", "moves_to"]

ROW_LOCAL = (UNARY | BINARY) | frozenset("sum reshape broadcast slice pad concat transpose".split())
"""Operators whose row i depends on row i of their operands only (``linear`` does too)."""

_PARTIAL = frozenset("div log sqrt rsqrt reciprocal exp power".split())


def moves_to(op: Value, operands: tuple[Value, ...], space: Space) -> bool:
    """Whether an operator may run on a space that rows are gathered from.

    A node or a relation may have no edge. Rows that no edge reads must not become infinite there:
    the gradient that reaches them is zero, and zero times infinity is not. Every pair has an edge.
    """
    if space in (Space.SRC_PAIR, Space.DST_PAIR):
        return True
    if any(each.op == "const" and not math.isfinite(each.number("value")) for each in operands):
        return False
    if op.op not in _PARTIAL:
        return True
    if op.op == "div":
        return operands[1].op == "const"
    return op.op == "power" and op.number("exponent") >= 1


_SMALL = (Space.RELATION, Space.NODE_TYPE)


def _gather_of_gather(builder: Builder, op: Value, operands: tuple[Value, ...]) -> Value | None:
    if op.op != "gather" or operands[0].op != "gather":
        return None
    inner = operands[0]
    whole = compose(str(op.map()), str(inner.map()))
    return None if whole is None else builder.emit("gather", inner.operands[0], map=whole)


def _linear_takes_type(builder: Builder, op: Value, operands: tuple[Value, ...]) -> Value | None:
    """Rows times gathered matrices: select the matrix by type instead of gathering it."""
    if op.op != "linear":
        return None
    row, weight = operands
    if weight.op == "gather" and "type" not in op.attrs:
        if MAPS[str(weight.map())].target not in _SMALL:
            return None
        attrs = {**op.attrs, "type": str(weight.map())}
        return builder.emit("linear", row, weight.operands[0], **attrs)
    if weight.op == "transpose" and weight.integers("perm") == (1, 0):
        attrs = {**op.attrs, "transpose": not op.attrs.get("transpose", False)}
        if not attrs["transpose"]:
            del attrs["transpose"]
        return builder.emit("linear", row, weight.operands[0], **attrs)
    return None


def _hoist_small(builder: Builder, op: Value, operands: tuple[Value, ...]) -> Value | None:
    """An operator on values gathered from relations or node types is done there, then gathered."""
    if op.op not in ROW_LOCAL and op.op != "linear":
        return None
    rows = [operand for operand in operands if operand.type.space is not Space.WEIGHT]
    maps = {operand.map() if operand.op == "gather" else None for operand in rows}
    if len(maps) != 1 or None in maps or "type" in op.attrs:
        return None
    (name,) = maps
    assert name is not None
    target = MAPS[name].target
    if op.op != "reshape" and (target not in _SMALL or not moves_to(op, operands, target)):
        return None
    inner = [o.operands[0] if o in rows else o for o in operands]
    return builder.emit("gather", builder.emit(op.op, *inner, **op.attrs), map=name)


def _tidy(builder: Builder, op: Value, operands: tuple[Value, ...]) -> Value | None:
    first = operands[0] if operands else None
    if first is None:
        return None
    if op.op in ("reshape", "broadcast") and first.type == op.type:
        return first
    if op.op == "reshape" and first.op == "reshape":
        return builder.reshape(first.operands[0], op.type.shape)
    if op.op == "neg" and first.op == "neg":
        return first.operands[0]
    if op.op == "transpose" and op.integers("perm") == tuple(range(len(op.type.shape))):
        return first
    if op.op == "sum" and not op.integers("axes"):
        return first
    if op.op in ("pad", "slice") and op.type.shape == first.type.shape:
        return first
    if op.op == "mul" and _is_const(operands[1], 1.0):
        return first
    if op.op == "mul" and first.type.width < operands[1].type.width:
        return builder.emit("mul", operands[1], first)
    return None


_NEVER_EMPTY = ("edge.src_pair", "edge.dst_pair")


def _is_count(value: Value) -> bool:
    while value.op == "reshape":
        value = value.operands[0]
    return value.op == "inverse_count"


def _is_const(value: Value, number: float) -> bool:
    return value.op == "const" and value.number("value") == number


def _factor_out(builder: Builder, op: Value, operands: tuple[Value, ...]) -> Value | None:
    """A factor that is the same for a whole segment multiplies the segment's sum.

    A segment without rows has the sum 0, so the factor must be finite there too.
    """
    if op.op != "segment_sum" or operands[0].op != "mul":
        return None
    for value, factor in (operands[0].operands, operands[0].operands[::-1]):
        if value.type != operands[0].type:
            continue
        same = factor.op == "gather" and factor.map() == op.map()
        if same and (op.map() in _NEVER_EMPTY or _is_count(factor.operands[0])):
            total = builder.emit("segment_sum", value, **op.attrs)
            return builder.emit("mul", total, factor.operands[0])
        if factor.op == "const" and math.isfinite(factor.number("value")):
            total = builder.emit("segment_sum", value, **op.attrs)
            return builder.emit("mul", total, factor)
    return None


def _join_concats(builder: Builder, op: Value, operands: tuple[Value, ...]) -> Value | None:
    if op.op != "concat" or not any(_same_axis(operand, op) for operand in operands):
        return None
    parts: list[Value] = []
    for operand in operands:
        parts += operand.operands if _same_axis(operand, op) else (operand,)
    return builder.emit("concat", *parts, axis=int(op.number("axis")))


def _same_axis(value: Value, op: Value) -> bool:
    return value.op == "concat" and value.number("axis") == op.number("axis")


def _pads(value: Value) -> list[Value] | None:
    """The pads that a sum is made of, or None where it has other terms."""
    if value.op == "pad":
        return [value]
    if value.op != "add":
        return None
    parts = [_pads(operand) for operand in value.operands]
    return None if None in parts else [pad for part in parts for pad in part or ()]


def _join_pads(builder: Builder, op: Value, operands: tuple[Value, ...]) -> Value | None:
    """A sum of values that are padded around each other is their concatenation."""
    parts = [_pads(operand) for operand in operands] if op.op == "add" else [None]
    if None in parts:
        return None
    pads = sorted((p for part in parts for p in part or ()), key=lambda p: p.number("before"))
    axis, extents = int(pads[0].number("axis")), op.type.shape
    end = before = int(pads[0].number("before"))
    for pad in pads:
        if pad.type.shape != extents or pad.number("axis") != axis or pad.number("before") != end:
            return None
        end = extents[axis] - int(pad.number("after"))
    joined = builder.emit("concat", *(pad.operands[0] for pad in pads), axis=axis)
    if joined.type.shape == extents:
        return joined
    return builder.emit("pad", joined, axis=axis, before=before, after=extents[axis] - end)


_RULES = (
    _gather_of_gather, _linear_takes_type, _hoist_small, _tidy, _factor_out, _join_pads,
    _join_concats,
)  # fmt: skip


def _rule(builder: Builder, op: Value, operands: tuple[Value, ...]) -> Value | None:
    for rule in _RULES:
        value = rule(builder, op, operands)
        if value is not None:
            return value
    return None


def canonicalise(function: Function) -> Function:
    """Apply the rules until none fires.

    Parameters
    ----------
    function : Function

    Returns
    -------
    Function
        Relation matrices are selected by ``type``, never gathered; work on values of one relation
        or node type is done once per relation or type; reshapes stand before gathers.
    """
    # Every rule removes an operator, moves one towards its parameter or orders a pair, so this
    # ends; the bound only turns a faulty new rule into an error instead of a hang.
    for _ in range(4 * len(function.ops) + 16):
        rewritten = eliminate_dead(rewrite(function, _rule))
        if rewritten.ops == function.ops:
            return rewritten
        function = rewritten
    raise ValueError(f"canonicalise does not end on {function.name}")


def check_matrices(function: Function) -> Function:
    """Refuse matrices that differ from edge to edge, which would be E x d x d in memory.

    Raises
    ------
    UnsupportedError
        Names the source line.
    """
    for op in function.ops:
        if op.op == "linear" and op.operands[1].type.space in (Space.EDGE, Space.NODE):
            raise unsupported(
                f"{op.location or function.name}: linear() with a matrix that differs from row to "
                f"row ({op.operands[1].type}) would need rows x k x n memory. Use matrices indexed "
                f"by g.rel or a node type: compute on them before indexing, as in (W / c)[g.rel], "
                f"and scale the rows before or after the product."
            )
    return function
