# SPDX-License-Identifier: Apache-2.0
"""Which operators share a kernel; not what its text is.

Operators are taken in program order. Each starts a kernel of its own and joins those of its
operands where that is legal: values pass in registers within a kernel only along operators that
read the same row, everything else passes through memory, and memory is complete only between
kernels.
"""

from __future__ import annotations

from collections.abc import Iterable

from hector.emit.torch.emitter import INLINE
from hector.emit.triton.expand import FREE, REDUCTIONS, Expanded, program_order
from hector.emit.triton.groups import (
    BLOCK,
    WALKS,
    Family,
    Group,
    fits_walk_product,
    registers,
    single_block,
    start,
)
from hector.emit.triton.tiles import padded_width, supported
from hector.ir.function import Value
from hector.ir.types import Space

__all__ = ["group"]

_WIDE = 8
"""Elements of a row from which a value of edges is rather computed again than stored."""

_READS = 2
"""Rows that may be read again in place of writing one and reading it."""

_ACCUMULATORS = 512
"""Elements of a target's row that a traversal may hold over all of its reductions."""


def _repeatable(value: Value) -> bool:
    """Whether a value is cheap to compute twice: a load, or arithmetic on wide rows."""
    if value.op in FREE:
        return supported(value)
    return value.type.width >= _WIDE and value.op != "sum" and supported(value)


def _again(value: Value) -> int:
    """Wide rows that must be read to compute a value again."""
    if value.type.width < _WIDE or value.op == "count_scale":
        return 0
    if not _repeatable(value) or value.op == "gather":
        return 1
    operands = [v for v in value.operands if v.type.space is not Space.WEIGHT]
    return sum(_again(operand) for operand in operands)


def _views(expanded: Expanded) -> frozenset[Value]:
    """Reshapes that are read from memory only: views that cost nothing on the host."""
    read = {
        operand for op in expanded.ops for i, operand in enumerate(op.operands) if registers(op, i)
    }
    return frozenset(op for op in expanded.ops if op.op == "reshape" and op not in read)


class _Grouping:
    def __init__(self, joining: frozenset[str]) -> None:
        self.joining = joining
        self.groups: list[Group] = []
        self.home: dict[Value, Group] = {}

    def add(self, op: Value, views: frozenset[Value]) -> None:
        group = start(op, views)
        self.groups.append(group)
        self.home[op] = group
        if group.family is Family.HOST:
            return
        for i, operand in enumerate(op.operands):
            if registers(op, i) and operand in self.home:
                other = self.home[operand]
                if other is not group and self._legal(other, group):
                    group = self._merge(other, group)

    def apart(self, op: Value, views: frozenset[Value]) -> Value:
        """A reduction on operands of its own, where those would be stored for each edge else.

        A wide value that another kernel computes, and that this one could from what is in memory
        anyway, costs fewer bytes when it is computed again.
        """
        if op.op not in REDUCTIONS or start(op, views).family is Family.HOST:
            return op
        operands = []
        for operand in op.operands:
            other = self.home.get(operand)
            if other is not None and operand.type.width >= _WIDE:
                joins = self._legal(other, start(op, views))
                if not joins and _again(operand) <= _READS:
                    operand = self._copy(operand)
            operands.append(operand)
        if tuple(operands) == op.operands:
            return op
        return Value(op.op, tuple(operands), op.attrs, op.type, op.location)

    def _copy(self, value: Value) -> Value:
        if not _repeatable(value):
            return value
        operands = tuple(
            self._copy(operand) if registers(value, i) else operand
            for i, operand in enumerate(value.operands)
        )
        copy = Value(value.op, operands, value.attrs, value.type, value.location)
        alone = Group(Family.ROWS, copy.type.space, ops=[copy])
        self.groups.append(alone)
        self.home[copy] = alone
        # What was not copied is read from memory: joining it would undo the copy.
        for old, new in zip(value.operands, operands, strict=True):
            if new is not old and self.home[new] is not alone:
                alone = self._merge(self.home[new], alone)
        return copy

    def drop_unused(self, results: tuple[Value, ...]) -> None:
        """Leave out what only copies' originals needed."""
        needed: set[Value] = set()
        stack = list(results)
        while stack:
            value = stack.pop()
            if value not in needed:
                needed.add(value)
                stack.extend(value.operands)
        for each in self.groups:
            each.ops = [op for op in each.ops if op in needed]
        self.groups = [each for each in self.groups if each.ops]
        self.home = {op: each for each in self.groups for op in each.ops}

    def join_walks(self) -> None:
        """Let traversals of one map share their walk, where none needs another's result."""
        walks = [each for each in self.groups if each.family in WALKS]
        for i, first in enumerate(walks):
            for second in walks[i + 1 :]:
                alive = first in self.groups and second in self.groups
                if alive and first.map == second.map and self._legal(first, second):
                    self._merge(first, second)

    def absorb_rows(self) -> None:
        """Try again to put row-wise groups where their operands come from."""
        for each in [group for group in self.groups if group.family is Family.ROWS]:
            sources = {
                self.home[operand]
                for op in each.ops
                for i, operand in enumerate(op.operands)
                if registers(op, i) and operand in self.home and self.home[operand] is not each
            }
            for source in sorted(sources, key=self.groups.index):
                if each in self.groups and self._legal(source, each):
                    self._merge(source, each)
                    break

    def _merge(self, first: Group, second: Group) -> Group:
        keep = first if first.family is not Family.ROWS else second
        if keep.family is Family.ROWS:
            keep = first
        if Family.ROWS not in (first.family, second.family) and first.family != second.family:
            keep = first if first.family in WALKS else second
            keep.family = Family.WALK_PRODUCT
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
        several = families - {Family.ROWS, Family.TRAVERSAL}
        if several and Family.ROWS not in families:
            return fits_walk_product(first, second, self.joining)
        if families == {Family.TRAVERSAL}:
            width = sum(
                padded_width(op.type.shape) for op in first.ops + second.ops if op.op in REDUCTIONS
            )
            return first.map == second.map and width <= _ACCUMULATORS
        if Family.ROWS not in families:
            return False
        rows, other = (first, second) if first.family is Family.ROWS else (second, first)
        if other.family is Family.WALK_PRODUCT:
            wide = max(padded_width(op.type.shape) for op in rows.ops)
            return rows.space in (other.space, other.target) and wide <= BLOCK
        if other.family is Family.TRAVERSAL:
            wide = max(padded_width(op.type.shape) for op in rows.ops)
            return rows.space in (other.space, other.target) and wide <= 1024
        if other.anchor is not None and not single_block(other.anchor):
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


def _once(ops: tuple[Value, ...], home: dict[Value, Group]) -> dict[Value, Value]:
    """What operators become when a kernel does nothing twice that costs nothing to do.

    Each reader got a copy of its own; those that came into one kernel would each be stored.
    """
    new: dict[Value, Value] = {}
    known: dict[tuple[object, ...], Value] = {}
    for old in ops:
        operands = tuple(new.get(operand, operand) for operand in old.operands)
        op = old
        if operands != old.operands:
            op = Value(old.op, operands, old.attrs, old.type, old.location)
        if old.op in FREE and old in home:
            attrs = tuple(sorted((key, repr(value)) for key, value in old.attrs.items()))
            op = known.setdefault((home[old], old.op, operands, attrs, old.type), op)
        if op is not old:
            new[old] = op
    return new


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


def group(
    expanded: Expanded, joining: frozenset[str] = frozenset()
) -> tuple[Expanded, list[Group]]:
    """Share the operators out to kernels.

    Parameters
    ----------
    expanded : Expanded
    joining : frozenset of str
        Which of ``linear`` and ``outer`` join the walk whose sums they take.

    Returns
    -------
    Expanded
        With copies of what is rather computed again than stored.
    list of Group
        In an order that respects what each reads; inlined operators are in none.
    """
    grouping = _Grouping(joining)
    views = _views(expanded)
    new: dict[Value, Value] = {}
    for old in expanded.ops:
        operands = tuple(new.get(operand, operand) for operand in old.operands)
        op = old
        if operands != old.operands:
            op = Value(old.op, operands, old.attrs, old.type, old.location)
            views |= {op} if old in views else set()
        op = grouping.apart(op, views)
        new[old] = op
        if op.op not in INLINE and op.op != "count_scale":
            grouping.add(op, views)
    results = tuple(new.get(result, result) for result in expanded.results)
    grouping.join_walks()
    grouping.absorb_rows()
    grouping.drop_unused(results)
    again = _once(program_order(results), grouping.home)
    results = tuple(again.get(result, result) for result in results)
    ops = program_order(results)
    position = {op: i for i, op in enumerate(ops)}
    for each in grouping.groups:
        kept = dict.fromkeys(again.get(op, op) for op in each.ops)
        each.ops = sorted(kept, key=position.__getitem__)
        each.anchor = None if each.anchor is None else again.get(each.anchor, each.anchor)
        grouping.home.update((op, each) for op in each.ops)
    return Expanded(ops, results), _sorted(grouping.groups, grouping.home)
