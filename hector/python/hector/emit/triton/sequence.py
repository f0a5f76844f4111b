# SPDX-License-Identifier: Apache-2.0
"""The order in which a program's kernels run: the one in which values are alive for least long.

Which operators share a kernel is settled before; any order in which each kernel comes after those
that it reads gives the same results.
"""

from __future__ import annotations

from collections.abc import Mapping, Set

from hector.emit.account import Step, held, value_bytes
from hector.emit.triton.columns import columns, walk_orders
from hector.emit.triton.cost import runs, stored_values
from hector.emit.triton.expand import Expanded
from hector.emit.triton.groups import Family, Group, registers
from hector.emit.triton.in_place import in_place, last_reads
from hector.ir.function import Value, rooted
from hector.plan import Counts

__all__ = ["in_turn", "memory", "replaced"]


def replaced(
    expanded: Expanded, groups: list[Group], stored: frozenset[Value]
) -> dict[Value, Value]:
    """The values that take the memory of another, in this order of the groups."""
    home = {op: each for each in groups for op in each.ops}
    kept = columns(expanded, home).keys() | walk_orders(expanded, home, stored).keys()
    return in_place(expanded, groups, stored, last_reads(groups), kept)


def memory(
    expanded: Expanded, groups: list[Group], stored: frozenset[Value], counts: Counts
) -> int:
    """The most bytes that a program's values take at a time, results included.

    Parameters
    ----------
    expanded : Expanded
    groups : list of Group
        In the order in which they run.
    stored : frozenset of Value
    counts : Counts
    """
    places = replaced(expanded, groups, stored)

    def place(value: Value) -> Value:
        """The value for which the memory that shows a value was made."""
        value = rooted(value)
        while value in places:
            value = places[value]
        return value

    made, read = _made(expanded, groups, stored), {each: _read(each) for each in groups}
    steps = [
        Step(
            tuple(op for op in made[each] if op not in places),
            tuple(place(value) for value in read[each]),
        )
        for each in groups
    ]
    return held(steps, [place(result) for result in expanded.results], counts)


def in_turn(expanded: Expanded, groups: list[Group], counts: Counts) -> list[Group]:
    """The groups in an order that holds little memory.

    Parameters
    ----------
    expanded : Expanded
    groups : list of Group
        In an order that respects what each reads.
    counts : Counts

    Returns
    -------
    list of Group
        Each time that one which adds least to what is alive; as given where that holds no less.
    """
    stored = stored_values(expanded, groups)
    other = _greedy(expanded, groups, stored, counts)
    return min((groups, other), key=lambda each: memory(expanded, each, stored, counts))


def _greedy(
    expanded: Expanded, groups: list[Group], stored: frozenset[Value], counts: Counts
) -> list[Group]:
    home = {op: each for each in groups for op in each.ops}
    made = _made(expanded, groups, stored)
    read = {each: {rooted(value) for value in _read(each)} for each in groups}
    kept = {rooted(result) for result in expanded.results}
    needs = {
        each: {home[value] for op in each.ops for value in op.operands if value in home} - {each}
        for each in groups
    }
    left: dict[Value, int] = {}
    for values in read.values():
        for value in values:
            left[value] = left.get(value, 0) + 1
    order: dict[Group, None] = {}
    while len(order) < len(groups):
        ready = [each for each in groups if each not in order and needs[each] <= order.keys()]
        added = {each: _added(made[each], read[each], left, kept, home, counts) for each in ready}
        first = min(ready, key=added.__getitem__)
        for value in read[first]:
            left[value] -= 1
        order[first] = None
    return list(order)


def _added(
    made: tuple[Value, ...], read: Set[Value], left: Mapping[Value, int], kept: Set[Value],
    home: Mapping[Value, Group], counts: Counts,
) -> int:  # fmt: skip
    """Bytes that are alive after a group more than before it."""
    gone = [value for value in read if left[value] == 1 and value in home and value not in kept]
    return sum(value_bytes(v, counts) for v in made) - sum(value_bytes(v, counts) for v in gone)


def _made(
    expanded: Expanded, groups: list[Group], stored: frozenset[Value]
) -> dict[Group, tuple[Value, ...]]:
    """What each group makes memory for."""
    costing = set(runs(expanded, groups))
    found: dict[Group, tuple[Value, ...]] = {}
    for each in groups:
        if each not in costing:
            found[each] = ()
        elif each.family is Family.HOST:
            found[each] = (each.ops[0],)
        else:
            found[each] = tuple(op for op in each.ops if op in stored)
    return found


def _read(each: Group) -> list[Value]:
    """What a group reads from memory."""
    members = set(each.ops)
    return [
        operand
        for op in each.ops
        for i, operand in enumerate(op.operands)
        if operand not in members or not registers(op, i)
    ]
