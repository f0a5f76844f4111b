# SPDX-License-Identifier: Apache-2.0
"""Recorded calls to IR, once every space is known."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hector._errors import unsupported
from hector.frontend.record import Call
from hector.ir.function import Builder, Function, Value
from hector.ir.types import MAPS, Space, Type

__all__ = ["feature_shape", "to_ir"]


def feature_shape(call: Call) -> tuple[int, ...]:
    """Extents behind the rows, or all of them for a weight."""
    return call.shape if call.var.resolve() is Space.WEIGHT else call.shape[1:]


def _first(call: Call) -> int:
    """Number of leading dimensions that are rows."""
    return 0 if call.var.resolve() is Space.WEIGHT else 1


def _axes(call: Call, axes: Sequence[int]) -> tuple[int, ...]:
    return tuple(axis - _first(call.operands[0]) for axis in axes)


def _const(b: Builder, call: Call, args: list[Value]) -> Value:
    return b.scalar(call.attrs["value"], call.dtype)


def _unary(b: Builder, call: Call, args: list[Value]) -> Value:
    return b.emit(call.attrs["op"], args[0], **call.attrs["attrs"])


def _binary(b: Builder, call: Call, args: list[Value]) -> Value:
    rank = len(feature_shape(call))
    for i, arg in enumerate(args):
        shape = arg.type.shape
        if arg.type.space is Space.WEIGHT and len(shape) > rank:
            args[i] = b.reshape(arg, shape[len(shape) - rank :])
    return b.emit(call.attrs["op"], *args)


def _gather(b: Builder, call: Call, args: list[Value]) -> Value:
    return b.emit("gather", args[0], map=call.attrs["map"])


def _sum(b: Builder, call: Call, args: list[Value]) -> Value:
    total = b.emit("sum", args[0], axes=_axes(call, call.attrs["axes"]))
    return b.reshape(total, feature_shape(call))


def _amax(b: Builder, call: Call, args: list[Value]) -> Value:
    high = b.emit("amax", args[0], axes=_axes(call, call.attrs["axes"]))
    return b.reshape(high, feature_shape(call))


def _broadcast(b: Builder, call: Call, args: list[Value]) -> Value:
    return b.emit("broadcast", args[0], shape=feature_shape(call))


def _keep(b: Builder, call: Call, args: list[Value]) -> Value:
    space, shape = call.var.resolve().value, feature_shape(call)
    return b.emit("keep", args[0], space=space, shape=shape, dtype=call.dtype, p=call.attrs["p"])


def _seed(b: Builder, call: Call, args: list[Value]) -> Value:
    return b.emit("seed", value=call.attrs["value"])


def _reshape(b: Builder, call: Call, args: list[Value]) -> Value:
    return b.reshape(args[0], feature_shape(call))


def _permute(b: Builder, call: Call, args: list[Value]) -> Value:
    perm = call.attrs["perm"][_first(call) :]
    return b.emit("transpose", args[0], perm=tuple(axis - _first(call) for axis in perm))


def _slice(b: Builder, call: Call, args: list[Value]) -> Value:
    (axis,) = _axes(call, (call.attrs["axis"],))
    return b.emit("slice", args[0], axis=axis, start=call.attrs["start"], stop=call.attrs["stop"])


def _concat(b: Builder, call: Call, args: list[Value]) -> Value:
    (axis,) = _axes(call, (call.attrs["axis"],))
    return b.emit("concat", *args, axis=axis)


def _matmul(b: Builder, call: Call, args: list[Value]) -> Value:
    x, w = args
    if len(w.type.shape) == 1:
        w = b.reshape(w, (*w.type.shape, 1))
    if x.type.space is Space.WEIGHT and len(x.type.shape) == 1:
        x = b.reshape(x, (1, *x.type.shape))
    return b.reshape(b.emit("linear", x, w), feature_shape(call))


# Past so many columns the zeros of a block-diagonal matrix cost more than separate products.
_BLOCK_DIAGONAL = 256


def _for_each_head(b: Builder, x: Value, w: Value) -> Value:
    """Rows [heads, k] times matrices [heads, k, n]."""
    heads, k, n = w.type.shape

    def matrix(head: int) -> Value:
        piece = b.emit("slice", w, axis=0, start=head, stop=head + 1)
        return b.reshape(piece, (k, n))

    lead = x.type.shape[:-2]  # the rows, where they are a weight's
    if heads * max(k, n) > _BLOCK_DIAGONAL:
        at = len(lead)
        rows = [b.emit("slice", x, axis=at, start=head, stop=head + 1) for head in range(heads)]
        parts = [b.emit("linear", row, matrix(head)) for head, row in enumerate(rows)]
        return parts[0] if heads == 1 else b.emit("concat", *parts, axis=at)
    blocks = [
        b.emit("pad", matrix(head), axis=1, before=head * n, after=(heads - 1 - head) * n)
        for head in range(heads)
    ]
    whole = blocks[0] if heads == 1 else b.emit("concat", *blocks, axis=0)
    flat = b.reshape(x, (*lead, heads * k))
    return b.reshape(b.emit("linear", flat, whole), (*lead, heads, n))


def _by_type(value: Value) -> set[bool]:
    """Whether the rows that a value is made from are selected by relation or node type."""
    if value.op == "gather":
        return {MAPS[str(value.map())].target in (Space.RELATION, Space.NODE_TYPE)}
    if value.type.space in (Space.RELATION, Space.NODE_TYPE):
        return {True}
    if not value.operands:
        return set() if value.op == "const" else {False}
    return set().union(*(_by_type(operand) for operand in value.operands))


def _features(b: Builder, call: Call, x: Value, w: Value) -> Value:
    """Products of features that are matrices to an einsum only: elementwise, then summed."""
    lead, columns = w.type.shape[:-2], w.type.shape[-1]
    middle = x.type.shape[len(lead) : -1]
    k = x.type.shape[-1]
    left = b.reshape(x, (*lead, *middle, k, 1))
    right = b.reshape(w, (*lead, *(1 for _ in middle), k, columns))
    product = b.emit("mul", left, right)
    total = b.emit("sum", product, axes=(len(product.type.shape) - 2,))
    return b.reshape(total, feature_shape(call))


def _linear(b: Builder, call: Call, args: list[Value]) -> Value:
    x, w = args
    if call.attrs.get("shared"):
        return _for_each_head(b, x, w)
    if call.attrs.get("einsum") and _by_type(w) <= {False}:
        return _features(b, call, x, w)
    if w.type.space is Space.WEIGHT:
        raise unsupported(
            f"{call.location}: hector.linear with one matrix a row, but no row index: "
            f"index the matrices, as in W[g.rel], or use a (k, n) matrix"
        )
    if len(w.type.shape) == 2:
        return b.emit("linear", x, w)
    if len(x.type.shape) == 2:
        return _for_each_head(b, x, w)
    heads, k, n = w.type.shape
    joined = b.reshape(b.emit("transpose", w, perm=(1, 0, 2)), (k, heads * n))
    return b.reshape(b.emit("linear", x, joined), (heads, n))


def _edge_softmax(b: Builder, call: Call, args: list[Value]) -> Value:
    groups = {"dst": "edge.dst", "dst_rel": "edge.dst_pair"}
    return b.emit("segment_softmax", args[0], map=groups[call.attrs["by"]])


def _scale(b: Builder, value: Value, count: Value) -> Value:
    ones = (1,) * len(value.type.shape)
    return b.emit("mul", value, b.reshape(count, ones))


def _aggregate(b: Builder, call: Call, args: list[Value]) -> Value:
    (message,), reduce, dtype = args, call.attrs["reduce"], call.dtype
    if reduce == "max":
        return b.emit("segment_max", message, map="edge.dst")
    if reduce == "mean_rel":
        count = b.emit("inverse_count", map="edge.dst_pair", dtype=dtype)
        message = _scale(b, message, b.emit("gather", count, map="edge.dst_pair"))
    total = b.emit("segment_sum", message, map="edge.dst")
    if reduce == "mean":
        return _scale(b, total, b.emit("inverse_count", map="edge.dst", dtype=dtype))
    return total


_TABLE: dict[str, Callable[[Builder, Call, list[Value]], Value]] = {
    "const": _const,
    "unary": _unary,
    "binary": _binary,
    "gather": _gather,
    "sum": _sum,
    "amax": _amax,
    "broadcast": _broadcast,
    "keep": _keep,
    "seed": _seed,
    "reshape": _reshape,
    "permute": _permute,
    "slice": _slice,
    "concat": _concat,
    "matmul": _matmul,
    "linear": _linear,
    "edge_softmax": _edge_softmax,
    "aggregate": _aggregate,
}


def to_ir(name: str, calls: Sequence[Call], results: Sequence[Call]) -> Function:
    """Build the IR of a record.

    Parameters
    ----------
    name : str
        Name of the function.
    calls : sequence of Call
        In program order; inputs have kind ``input`` and attribute ``name``.
    results : sequence of Call

    Returns
    -------
    Function

    Raises
    ------
    ValueError
        If an operator does not fit its operands; the message starts with the source line.
    """
    builder = Builder(name)
    values: dict[Call, Value] = {}
    for call in calls:
        builder.location = call.location
        if call.kind == "input":
            type_ = Type(call.var.resolve(), feature_shape(call), call.dtype)
            values[call] = builder.param(call.attrs["name"], type_)
            continue
        try:
            values[call] = _TABLE[call.kind](builder, call, [values[x] for x in call.operands])
        except ValueError as error:
            raise ValueError(f"{call.location}: {error}") from error
    return builder.finish(values[result] for result in results)
