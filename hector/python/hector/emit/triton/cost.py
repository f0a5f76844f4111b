# SPDX-License-Identifier: Apache-2.0
"""Predicted time of a function as the kernels that its operators are grouped into."""

from __future__ import annotations

from hector.cost import Machine
from hector.emit.torch.emitter import INLINE
from hector.emit.triton.columns import columns
from hector.emit.triton.expand import Expanded
from hector.emit.triton.groups import Family, Group, registers
from hector.ir.function import VIEWS, Value
from hector.ir.types import ELEMENT_BYTES, MAPS, Space, Type
from hector.plan import Counts

__all__ = ["group_bytes", "predicted_seconds", "runs", "stored_values", "weighed_bytes"]

_ID = 4
_SECTOR = 32
"""Bytes that memory gives at least for a number of its own."""
_CACHED = 24 << 20
"""Bytes of a table that stays in the cache, which is twice as fast as memory."""
_NEAR = 1 << 20
"""Bytes of a table most of which stays beside each multiprocessor."""
SHARES = {
    Family.ROWS: 0.9,
    Family.TRAVERSAL: 0.95,
    Family.PRODUCT: 0.9,
    Family.OUTER: 0.74,
    Family.WALK_PRODUCT: 0.35,
    Family.HOST: 0.7,
}
"""What kernels reach of the rate at which memory is copied."""
WALK_AND_LINEAR = 0.3
"""The same, of walks that go into products but not into outer products."""
COMPUTED = 0.5
"""The same, of products of rows that are computed in the kernel: their loads are not ahead."""
_PASSES = {Family.TRAVERSAL: 1, Family.WALK_PRODUCT: 2}
"""Further launches for targets in pieces, which most graphs have."""


def _size(type_: Type, rows: int) -> int:
    return rows * type_.width * ELEMENT_BYTES[type_.dtype]


def _through(op: Value, i: int) -> str | None:
    """The map through which an operator reads operand i from memory."""
    if op.op == "gather":
        return op.map()
    if op.op in ("linear", "outer"):
        return op.map(("rows", "rows_y")[i]) if op.op == "outer" or i == 0 else None
    return None


def _gathered(type_: Type, name: str, counts: Counts) -> int:
    """Bytes of rows read through a map: of memory, or of the cache in bytes of memory's rate."""
    rows, table = counts.rows(MAPS[name].source), _size(type_, counts.rows(type_.space))
    whole = _size(type_, rows)
    if table <= _CACHED:
        return min(whole, table + whole // (4 if table <= _NEAR else 2))
    scattered = MAPS[name].source is Space.EDGE and whole < rows * _SECTOR
    return rows * _SECTOR if scattered else whole


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
            if name is not None and name != each.map:
                maps[name] = counts.rows(MAPS[name].source) * _ID
                seen[operand, name] = _gathered(operand.type, name, counts)
            else:
                seen[operand, None] = _size(operand.type, counts.rows(operand.type.space))
    if each.map is not None:
        maps[each.map] = 3 * _ID * counts.rows(MAPS[each.map].target)
    return sum(seen.values()) + sum(maps.values())


def _flops(each: Group, counts: Counts) -> int:
    rows = counts.rows(each.target if each.anchor is None and each.target else each.space)
    total = 0
    for op in each.anchors:
        x, y = op.operands[0].type, op.type
        total += 2 * rows * (x.width // x.shape[-1]) * x.shape[-1] * y.shape[-1]
    return total


def stored_values(expanded: Expanded, groups: list[Group]) -> frozenset[Value]:
    """Values that must be in memory: results, and what another kernel reads."""
    home = {op: each for each in groups for op in each.ops}
    stored = set(expanded.results)
    for op in expanded.ops:
        for i, operand in enumerate(op.operands):
            if home.get(operand) is not home.get(op) or not registers(op, i):
                stored.add(operand)
    return frozenset(stored)


def runs(expanded: Expanded, groups: list[Group]) -> list[Group]:
    """The groups that cost anything: views and concatenations in place do not."""
    home = {op: each for each in groups for op in each.ops}
    joined = {at.whole for at in columns(expanded, home).values()}
    return [
        each
        for each in groups
        if each.family is not Family.HOST or not (each.ops[0].op in VIEWS or each.ops[0] in joined)
    ]


def _share(each: Group) -> float:
    """What a group's kernel reaches of the rate of a copy."""
    if each.family is Family.WALK_PRODUCT and all(op.op == "linear" for op in each.anchors):
        return WALK_AND_LINEAR
    if each.family is Family.PRODUCT and each.anchor and each.anchor.operands[0] in each.ops:
        return COMPUTED
    return SHARES[each.family]


def group_bytes(each: Group, stored: frozenset[Value], counts: Counts) -> tuple[int, int]:
    """Bytes that a group's kernels read and write."""
    written = 0
    for op in each.ops:
        if op in stored:
            rows = counts.rows(op.type.space)
            scattered = each.map is not None and op.type.space is Space.EDGE
            least = rows * _SECTOR if scattered and each.map != "edge.dst" else 0
            written += max(_size(op.type, rows), least)
    return _reads(each, counts), written


def weighed_bytes(expanded: Expanded, groups: list[Group], counts: Counts) -> float:
    """Bytes that all groups read and write, each over its share of the rate of a copy."""
    stored = stored_values(expanded, groups)
    return sum(
        sum(group_bytes(each, stored, counts)) / _share(each) for each in runs(expanded, groups)
    )


def predicted_seconds(
    expanded: Expanded, groups: list[Group], counts: Counts, machine: Machine
) -> float:
    """Predicted time of a function's kernels.

    Parameters
    ----------
    expanded : Expanded
    groups : list of Group
    counts : Counts
    machine : Machine

    Returns
    -------
    float
        Each kernel takes the longer of its bytes and its products, and a launch.
    """
    stored = stored_values(expanded, groups)
    total = 0.0
    for each in runs(expanded, groups):
        moved = sum(group_bytes(each, stored, counts)) / _share(each)
        launches = 1 + sum(op.op == "outer" for op in each.anchors) + _PASSES.get(each.family, 0)
        total += max(moved / machine.bandwidth, _flops(each, counts) / machine.flops)
        total += launches * machine.operator
    return total
