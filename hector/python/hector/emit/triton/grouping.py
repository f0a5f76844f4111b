# SPDX-License-Identifier: Apache-2.0
"""Which operators share a kernel; not what its text is.

Operators are taken in program order. Each starts a kernel of its own and joins those of its
operands where that is legal: values pass in registers within a kernel only along operators that
read the same row, everything else passes through memory, and memory is complete only between
kernels.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass, field

from hector.emit.torch.emitter import INLINE
from hector.emit.triton.expand import REDUCTIONS, Expanded
from hector.emit.triton.tiles import padded, padded_width, supported
from hector.ir.function import Value
from hector.ir.types import MAPS, Space

__all__ = ["BLOCK", "Family", "Group", "group", "registers"]

BLOCK = 128
"""Columns of a product up to which one program holds all of them, so that more can be fused."""

_ACCUMULATORS = 512
"""Elements of a target's row that a traversal may hold over all of its reductions."""


class Family(enum.Enum):
    """Which template makes the kernel."""

    ROWS = "rows"
    TRAVERSAL = "traversal"
    PRODUCT = "product"
    OUTER = "outer"
    HOST = "host"


@dataclass(eq=False)
class Group:
    """Operators of one kernel.

    Attributes
    ----------
    family : Family
    space : Space
        Whose rows the kernel visits: the source of ``map`` for a traversal.
    map : str or None
        Map of a traversal.
    anchor : Value or None
        The product.
    ops : list of Value
        In program order.
    """

    family: Family
    space: Space
    map: str | None = None
    anchor: Value | None = None
    ops: list[Value] = field(default_factory=list)

    @property
    def target(self) -> Space | None:
        """Space of a traversal's results."""
        return None if self.map is None else MAPS[self.map].target


def registers(op: Value, i: int) -> bool:
    """Whether operand i can come from the same row of the same kernel."""
    operand = op.operands[i]
    if operand.type.space is Space.WEIGHT or op.op == "gather":
        return False
    if op.op == "linear":
        return i == 0 and "rows" not in op.attrs
    if op.op == "outer":
        return ("rows", "rows_y")[i] not in op.attrs
    return True


def _single_block(op: Value) -> bool:
    """Whether a product's operands and result have one block of columns, and no heads."""
    shapes = [op.operands[0].type.shape, op.operands[1].type.shape if op.op == "outer" else ()]
    if any(len(shape) > 1 for shape in shapes):
        return False
    extents = (*op.type.shape, *(extent for shape in shapes for extent in shape))
    return all(padded(extent) <= BLOCK for extent in extents)


def _templated(op: Value) -> bool:
    """Whether a product template takes the operator."""
    x, y = (operand.type for operand in op.operands)
    if x.dtype == "f64" or len(x.shape) > 2 or x.space is Space.WEIGHT:
        return False
    if op.op == "linear":
        return "type" in op.attrs or y.space is Space.WEIGHT
    return y.space is not Space.WEIGHT and ("type" in op.attrs or "rows_summed" in op.attrs)


def _start(op: Value, views: frozenset[Value]) -> Group:
    if op.op in REDUCTIONS:
        name = str(op.map())
        if all(operand.type.dtype != "f64" for operand in op.operands) and all(
            len(operand.type.shape) <= 3 and padded_width(operand.type.shape) <= 1024
            for operand in op.operands
        ):
            return Group(Family.TRAVERSAL, MAPS[name].source, name, ops=[op])
        return Group(Family.HOST, op.type.space, ops=[op])
    if op.op in ("linear", "outer") and _templated(op):
        family = Family.PRODUCT if op.op == "linear" else Family.OUTER
        rows = op.map("rows")
        space = op.operands[0].type.space if rows is None else MAPS[rows].source
        return Group(family, space, anchor=op, ops=[op])
    if supported(op) and op not in views:
        return Group(Family.ROWS, op.type.space, ops=[op])
    return Group(Family.HOST, op.type.space, ops=[op])


def _views(expanded: Expanded) -> frozenset[Value]:
    """Reshapes that are read from memory only: views that cost nothing on the host."""
    read = {
        operand for op in expanded.ops for i, operand in enumerate(op.operands) if registers(op, i)
    }
    return frozenset(op for op in expanded.ops if op.op == "reshape" and op not in read)


class _Grouping:
    def __init__(self) -> None:
        self.groups: list[Group] = []
        self.home: dict[Value, Group] = {}

    def add(self, op: Value, views: frozenset[Value]) -> None:
        group = _start(op, views)
        self.groups.append(group)
        self.home[op] = group
        if group.family is Family.HOST:
            return
        for i, operand in enumerate(op.operands):
            if registers(op, i) and operand in self.home:
                other = self.home[operand]
                if other is not group and self._legal(other, group):
                    group = self._merge(other, group)

    def _merge(self, first: Group, second: Group) -> Group:
        keep = first if first.family is not Family.ROWS else second
        if keep.family is Family.ROWS:
            keep = first
        keep.ops = first.ops + second.ops
        gone = second if keep is first else first
        self.groups.remove(gone)
        for op in gone.ops:
            self.home[op] = keep
        return keep

    def _legal(self, first: Group, second: Group) -> bool:
        ops = first.ops + second.ops
        members = set(ops)
        for op in ops:
            for i, operand in enumerate(op.operands):
                if operand in members and not registers(op, i):
                    return False
        return self._compatible(first, second) and not self._through_others(first, second)

    def _compatible(self, first: Group, second: Group) -> bool:
        families = {first.family, second.family}
        if Family.HOST in families:
            return False
        if families == {Family.TRAVERSAL}:
            width = sum(
                padded_width(op.type.shape) for op in first.ops + second.ops if op.op in REDUCTIONS
            )
            return first.map == second.map and width <= _ACCUMULATORS
        if Family.ROWS not in families:
            return False
        rows, other = (first, second) if first.family is Family.ROWS else (second, first)
        if other.family is Family.TRAVERSAL:
            wide = max(padded_width(op.type.shape) for op in rows.ops)
            return rows.space in (other.space, other.target) and wide <= 1024
        if other.anchor is not None and not _single_block(other.anchor):
            return False
        wide = max(padded_width(op.type.shape) for op in rows.ops)
        return rows.space is other.space and (other.family is Family.ROWS or wide <= BLOCK)

    def _through_others(self, first: Group, second: Group) -> bool:
        """Whether a third group must run between the two."""
        readers: dict[Group, set[Group]] = {}
        for op, group in self.home.items():
            for operand in op.operands:
                source = self.home.get(operand)
                if source is not None and source is not group:
                    readers.setdefault(source, set()).add(group)
        pair = {first, second}
        stack = [r for each in pair for r in readers.get(each, ()) if r not in pair]
        seen: set[Group] = set()
        while stack:
            each = stack.pop()
            if each in pair:
                return True
            if each not in seen:
                seen.add(each)
                stack.extend(readers.get(each, ()))
        return False


def _sorted(groups: Iterable[Group], home: dict[Value, Group]) -> list[Group]:
    """Groups in an order where each comes after those that it reads."""
    order: dict[Group, None] = {}

    def visit(group: Group) -> None:
        if group in order:
            return
        for op in group.ops:
            for operand in op.operands:
                other = home.get(operand)
                if other is not None and other is not group:
                    visit(other)
        order[group] = None

    for group in groups:
        visit(group)
    return list(order)


def group(expanded: Expanded) -> list[Group]:
    """Share the operators out to kernels.

    Parameters
    ----------
    expanded : Expanded

    Returns
    -------
    list of Group
        In an order that respects what each reads; inlined operators are in none.
    """
    grouping = _Grouping()
    views = _views(expanded)
    for op in expanded.ops:
        if op.op not in INLINE and op.op != "count_scale":
            grouping.add(op, views)
    position = {op: i for i, op in enumerate(expanded.ops)}
    for each in grouping.groups:
        each.ops.sort(key=position.__getitem__)
    return _sorted(grouping.groups, grouping.home)
