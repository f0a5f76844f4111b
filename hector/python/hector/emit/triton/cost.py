# SPDX-License-Identifier: Apache-2.0
"""Predicted time of a function as the kernels that its operators are grouped into."""

from __future__ import annotations

from hector.cost import Machine
from hector.emit.torch.emitter import INLINE
from hector.emit.triton.expand import Expanded, expand
from hector.emit.triton.grouping import Family, Group, group, registers
from hector.ir.function import Function, Value
from hector.ir.types import MAPS, Type
from hector.plan import Counts

__all__ = ["predicted_seconds"]

_BYTES = {"f64": 8, "f32": 4, "bf16": 2, "f16": 2}
_ID = 4
_VIEWS = frozenset("reshape slice transpose broadcast".split())


def _size(type_: Type, rows: int) -> int:
    return rows * type_.width * _BYTES.get(type_.dtype, 8)


def _through(op: Value, i: int) -> str | None:
    """The map through which an operator reads operand i from memory."""
    if op.op == "gather":
        return op.map()
    if op.op in ("linear", "outer"):
        return op.map(("rows", "rows_y")[i]) if op.op == "outer" or i == 0 else None
    return None


def _reads(each: Group, counts: Counts) -> int:
    """Bytes that a group reads: each value once for each map that it is read through."""
    members = set(each.ops)
    seen: dict[tuple[Value, str | None], int] = {}
    maps: dict[str, int] = {}
    for op in each.ops:
        for i, operand in enumerate(op.operands):
            if operand in members and registers(op, i):
                continue
            if operand.op in INLINE:
                continue
            name = _through(op, i)
            rows = counts.rows(operand.type.space)
            if name is not None and name != each.map:
                rows = counts.rows(MAPS[name].source)
                maps[name] = rows * _ID
            seen[operand, name] = _size(operand.type, rows)
    if each.map is not None:
        maps[each.map] = 3 * _ID * counts.rows(MAPS[each.map].target)
    return sum(seen.values()) + sum(maps.values())


def _flops(each: Group, counts: Counts) -> int:
    op = each.anchor
    if op is None:
        return 0
    x, y = op.operands[0].type, op.type
    return 2 * counts.rows(each.space) * (x.width // x.shape[-1]) * x.shape[-1] * y.shape[-1]


def _stored(expanded: Expanded, groups: list[Group]) -> frozenset[Value]:
    home = {op: each for each in groups for op in each.ops}
    stored = set(expanded.results)
    for op in expanded.ops:
        for i, operand in enumerate(op.operands):
            if home.get(operand) is not home.get(op) or not registers(op, i):
                stored.add(operand)
    return frozenset(stored)


def predicted_seconds(function: Function, counts: Counts, machine: Machine) -> float:
    """Predicted time of a function's kernels.

    Parameters
    ----------
    function : Function
        Fused.
    counts : Counts
    machine : Machine

    Returns
    -------
    float
        Each kernel takes the longer of its bytes and its products, and a launch.
    """
    expanded, groups = group(expand(function))
    stored = _stored(expanded, groups)
    total = 0.0
    for each in groups:
        if each.family is Family.HOST and each.ops[0].op in _VIEWS:
            continue
        written = sum(_size(op.type, counts.rows(op.type.space)) for op in each.ops if op in stored)
        moved = _reads(each, counts) + written
        launches = 2 if each.family is Family.OUTER else 1
        total += max(moved / machine.bandwidth, _flops(each, counts) / machine.flops)
        total += launches * machine.operator
    return total
