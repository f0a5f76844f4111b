# SPDX-License-Identifier: Apache-2.0
"""Fused IR to the primitives that kernels are grouped from; decides nothing about kernels.

Traversals are opened into loads, factors and reductions. A softmax becomes its log-sum-exp for
each target, and where its weights multiply what is summed over the same targets, both become one
``attend``, which needs no second walk over the edges.
"""

from __future__ import annotations

from dataclasses import dataclass

from hector.emit.triton.tiles import same_but_for_ones, single_block, supported
from hector.ir.function import Function, Value
from hector.ir.ops import Attr, infer
from hector.ir.types import MAPS, Space, Type

__all__ = ["FREE", "REDUCTIONS", "Expanded", "expand", "program_order", "root"]

REDUCTIONS = frozenset({"segment_sum", "segment_max", "segment_lse", "attend"})
"""Operators that walk the rows of a map's source, target by target.

``segment_lse(score) {map}`` is the logarithm of the sum of exponentials, in fp32;
``attend(score, value) {map, shape}`` the sum of ``value`` weighted by the softmax of ``score``,
whose weights take ``shape`` first. A third new operator, ``count_scale() {map, through}``, is
``inverse_count() {map}`` gathered through a map: a column that the plan keeps.
"""

_WIDE = 8
"""Elements of a row from which a number beside it is rather computed again than gathered."""

_NARROW = 4
"""Elements of a type's row up to which arithmetic on types is done where it is read."""

FREE = frozenset({"gather", "reshape", "broadcast"})
"""Operators that cost nothing inside the kernel of their reader: each reader gets its own."""


@dataclass(frozen=True)
class Expanded:
    """Primitive operators in program order, and the results."""

    ops: tuple[Value, ...]
    results: tuple[Value, ...]


def _emit(op: str, *operands: Value, location: str | None = None, **attrs: Attr | None) -> Value:
    kept = {key: value for key, value in attrs.items() if value is not None}
    type_ = infer(op, tuple(operand.type for operand in operands), kept)
    return Value(op, operands, kept, type_, location)


def _sinks(value: Value, space: Space) -> bool:
    """Whether a value of types is so cheap that a kernel of its own would cost more."""
    small = space in (Space.RELATION, Space.NODE_TYPE) and value.type.width <= _NARROW
    if not small or value.op in ("param", "gather", "sum", "inverse_count"):
        return False
    return supported(value) and all(
        operand.op in ("param", "const") or _sinks(operand, space) for operand in value.operands
    )


def _gather(value: Value, name: str | None) -> Value:
    """Rows through a map; counts of the graph alone are gathered once, in the plan."""
    if name is None:
        return value
    if _sinks(value, MAPS[name].target):
        operands = [
            operand if operand.type.space is Space.WEIGHT else _gather(operand, name)
            for operand in value.operands
        ]
        return _emit(value.op, *operands, location=value.location, **value.attrs)
    counted = root(value)
    if counted.op != "inverse_count":
        return _emit("gather", value, map=name)
    type_ = Type(MAPS[name].source, (), counted.type.dtype)
    attrs: dict[str, Attr] = {"map": str(counted.map()), "through": name}
    scale = Value("count_scale", (), attrs, type_)
    if value.type.shape == ():
        return scale
    return _emit("reshape", scale, shape=value.type.shape)


def root(value: Value) -> Value:
    """What a chain of reshapes that only move extents of one starts from."""
    while value.op == "reshape" and same_but_for_ones(
        value.type.shape, value.operands[0].type.shape
    ):
        value = value.operands[0]
    return value


def _wide_reads(function: Function) -> dict[Value, set[str]]:
    """The maps that wide rows are read through anyway."""
    found: dict[Value, set[str]] = {}
    for op in function.ops:
        keys = {"gather": ("map",), "gather_sum": ("rows",), "gather_dot": ("rows", "rows_y")}
        for operand, key in zip(op.operands, keys.get(op.op, ()), strict=False):
            name = op.map(key)
            if name is not None and operand.type.width >= _WIDE:
                found.setdefault(operand, set()).add(name)
    return found


class _Expander:
    def __init__(self, function: Function) -> None:
        self.new: dict[Value, Value] = {}
        self.wide = _wide_reads(function)
        self.scores: dict[Value, Value] = {}
        """The score of every softmax, by its weights."""

    def operand(self, old: Value) -> Value:
        """The new operand; free operators are rebuilt for each reader."""
        value = self.new[old]
        return self.private(value)

    def beside_row(self, value: Value, name: str) -> Value:
        """Rows of a value through a map: an inner product is done again where its row is read.

        A number that is gathered by itself costs a sector of memory; the row is there already.
        """
        dot = root(value)
        if dot.op != "sum" or dot.operands[0].op != "mul":
            return _gather(value, name)
        row, vector = dot.operands[0].operands
        read = any(name in maps and self.new.get(old) is row for old, maps in self.wide.items())
        if not read or vector.type.space is not Space.WEIGHT:
            return _gather(value, name)
        product = _emit("mul", _gather(row, name), vector, location=dot.location)
        again = _emit("sum", product, axes=dot.integers("axes"), location=dot.location)
        if again.type.shape == value.type.shape:
            return again
        return _emit("reshape", again, shape=value.type.shape)

    def private(self, value: Value) -> Value:
        if value.op not in FREE:
            return value
        if value.op == "reshape" and not same_but_for_ones(
            value.type.shape, value.operands[0].type.shape
        ):
            return value
        if value.op == "gather":  # reads memory: what it reads is one value for all
            return _gather(value.operands[0], value.map())
        inner = self.private(value.operands[0])
        return Value(value.op, (inner,), value.attrs, value.type, value.location)

    def softmax(self, op: Value) -> Value:
        score, name = self.operand(op.operands[0]), str(op.map())
        if op.op == "segment_weights":
            lse = self.operand(op.operands[1])
        else:
            lse = _emit("segment_lse", score, map=name, location=op.location)
        spread = _emit("gather", lse, map=name)
        shifted = Value("sub", (score, spread), {}, score.type, op.location)
        weights = Value("exp", (shifted,), {}, score.type, op.location)
        self.scores[weights] = score
        return weights

    def attend(self, body: Value, factor: Value, name: str, op: Value) -> Value | None:
        """The sum over targets of ``body`` times ``factor``, if those are softmax weights."""
        weights = root(factor)
        score = self.scores.get(weights)
        if score is None or self._softmax_map(weights) != name:
            return None
        attrs: dict[str, Attr] = {"map": name, "shape": factor.type.shape}
        return Value("attend", (score, body), attrs, op.type, op.location)

    def vector(self, op: Value, operands: list[Value]) -> Value | None:
        """A product with a vector is a dot, or a scaling: row by row, no matrix instruction."""
        x, w = operands
        typed = op.map("type")
        k, n = w.type.shape[::-1] if op.attrs.get("transpose", False) else w.type.shape
        if len(x.type.shape) != 1 or 1 not in (k, n):
            return None
        if typed is None and w.type.space is not Space.WEIGHT:
            return None
        vector = w if w.op == "param" else self.private(w)
        vector = _emit("reshape", vector, shape=(k * n,), location=op.location)
        row = _gather(x, op.map("rows"))
        if typed is not None:
            vector = _emit("gather", vector, map=typed)
        product = _emit("mul", row, vector, location=op.location)
        if n > 1:
            return product
        dot = product
        if k > 1:
            dot = _emit("sum", product, axes=(0,), location=op.location)
        return _emit("reshape", dot, shape=(1,), location=op.location) if k > 1 else dot

    def scaled(self, op: Value, operands: list[Value]) -> Value | None:
        """A product with matrices that are each scaled: its rows are scaled instead."""
        x, w = operands
        typed, made = op.map("type"), root(w)
        if made.op != "mul" or typed is None or not single_block(op):
            return None
        for matrix, scale in (made.operands, made.operands[::-1]):
            if matrix.type == made.type and scale.type.width == 1 and scale.op != "const":
                if made is not w:
                    matrix = _emit("reshape", matrix, shape=w.type.shape, location=op.location)
                product = Value("linear", (x, matrix), op.attrs, op.type, op.location)
                factor = _emit("reshape", root(scale), shape=(1,), location=op.location)
                if factor.type.space is not Space.WEIGHT:
                    factor = _gather(factor, typed)
                return Value("mul", (product, factor), {}, op.type, op.location)
        return None

    def _softmax_map(self, weights: Value) -> str:
        return str(weights.operands[0].operands[1].map())

    def value(self, op: Value) -> Value:
        if op.op in ("segment_softmax", "segment_weights"):
            return self.softmax(op)
        if op.op == "gather":
            return self.beside_row(self.new[op.operands[0]], str(op.map()))
        through = {"gather_sum": ("rows",), "gather_dot": ("rows", "rows_y")}.get(op.op, ())
        operands = [
            self.new[operand] if i < len(through) and op.map(through[i]) else self.operand(operand)
            for i, operand in enumerate(op.operands)
        ]
        if op.op == "gather_sum":
            body, name = _gather(operands[0], op.map("rows")), str(op.map())
            if len(operands) == 2:
                found = self.attend(body, operands[1], name, op)
                if found is not None:
                    return found
                body = _emit("mul", body, operands[1], location=op.location)
            return _emit("segment_sum", body, map=name, location=op.location)
        if op.op == "segment_sum" and operands[0].op == "mul":
            body, factor = operands[0].operands
            if body.type == operands[0].type and factor.type.space is body.type.space:
                found = self.attend(self.private(body), factor, str(op.map()), op)
                if found is not None:
                    return found
        if op.op == "linear":
            vector = self.vector(op, operands)
            if vector is not None:
                return vector
            scaled = self.scaled(op, operands)
            if scaled is not None:
                return scaled
        if op.op == "gather_dot":
            x = _gather(operands[0], op.map("rows"))
            y = _gather(operands[1], op.map("rows_y"))
            product = _emit("mul", x, y, location=op.location)
            return _emit("sum", product, axes=(len(product.type.shape) - 1,), location=op.location)
        return Value(op.op, tuple(operands), op.attrs, op.type, op.location)


def program_order(results: tuple[Value, ...]) -> tuple[Value, ...]:
    """What results depend on, operands first; parameters left out."""
    order: dict[Value, None] = {}
    stack: list[tuple[Value, bool]] = [(result, False) for result in reversed(results)]
    while stack:
        value, done = stack.pop()
        if done:
            order[value] = None
        elif value not in order and value.op != "param":
            stack.append((value, True))
            stack.extend((operand, False) for operand in reversed(value.operands))
    return tuple(order)


def expand(function: Function) -> Expanded:
    """The primitives of a fused function.

    Parameters
    ----------
    function : Function

    Returns
    -------
    Expanded
        Only what results depend on.
    """
    expander = _Expander(function)
    expander.new.update({param: param for param in function.params})
    for op in function.ops:
        expander.new[op] = expander.value(op)
    results = tuple(expander.new[result] for result in function.results)
    return Expanded(program_order(results), results)
