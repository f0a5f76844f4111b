# SPDX-License-Identifier: Apache-2.0
"""Where kernels store results: parts in the columns of the whole, edges as they are walked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hector.emit.triton.expand import Expanded
from hector.emit.triton.groups import WALKS, Family, Group, registers
from hector.ir.function import Value
from hector.ir.types import Space

__all__ = ["Column", "columns", "walk_orders"]


@dataclass(frozen=True)
class Column:
    """Where a value stands in a wider one.

    Attributes
    ----------
    whole : Value
        The concatenation.
    start : int
        First element of the value's run in each row of ``whole``.
    """

    whole: Value
    start: int


def _view(value: Value, home: Mapping[Value, Group]) -> bool:
    return value in home and home[value].family is Family.HOST


def columns(expanded: Expanded, home: Mapping[Value, Group]) -> dict[Value, Column]:
    """The values that kernels store as columns of a concatenation.

    Parameters
    ----------
    expanded : Expanded
    home : mapping of Value to Group
        The group of each operator that has one.

    Returns
    -------
    dict of Value to Column
        Concatenations of which every part can be stored in place, by their parts.
    """
    found: dict[Value, Column] = {}
    for op in expanded.ops:
        if op.op != "concat" or op.type.space is Space.WEIGHT:
            continue
        if any(extent != 1 for extent in op.type.shape[: int(op.number("axis"))]):
            continue
        start, parts = 0, {}
        for operand in op.operands:
            source = operand
            while source.op == "reshape" and _view(source, home):
                source = source.operands[0]
            parts[source] = Column(op, start)
            start += operand.type.width
        made = all(each in home and not _view(each, home) for each in parts)
        shared = parts.keys() & (found.keys() | set(expanded.results))
        if made and not shared and len(parts) == len(op.operands):
            found.update(parts)
    return found


def walk_orders(
    expanded: Expanded, home: Mapping[Value, Group], stored: frozenset[Value]
) -> dict[Value, str]:
    """The values of edges that stand in the order in which they are computed, by its map.

    A number stored for each edge out of order costs memory a sector read and one written. Read out
    of order it costs one, so it is stored as the walk goes, where other walks alone read it.
    """
    readers: dict[Value, list[bool]] = {}
    for op in expanded.ops:
        for i, operand in enumerate(op.operands):
            walks = op in home and home[op].family in WALKS and home[op].space is Space.EDGE
            readers.setdefault(operand, []).append(walks and registers(op, i))
    found = {}
    for value in stored - set(expanded.results):
        group = home.get(value)
        if group is None or group.family not in WALKS or value.type.space is not Space.EDGE:
            continue
        if group.map is not None and group.map != "edge.dst" and all(readers.get(value, [False])):
            found[value] = group.map
    return found
