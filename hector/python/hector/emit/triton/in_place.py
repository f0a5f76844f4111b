# SPDX-License-Identifier: Apache-2.0
"""Which results of kernels take the memory of an operand that nothing reads any more."""

from __future__ import annotations

from collections.abc import Mapping, Set

from hector.emit.triton.expand import REDUCTIONS, Expanded
from hector.emit.triton.groups import Family, Group, registers
from hector.ir.function import Value
from hector.ir.types import Space

__all__ = ["in_place"]

_ACROSS = REDUCTIONS | {"sum", "amax", "linear", "outer"}
"""What joins elements that different threads may have read."""


def in_place(
    expanded: Expanded,
    groups: list[Group],
    stored: Set[Value],
    last: Mapping[Value, Group],
    kept: Set[Value],
) -> dict[Value, Value]:
    """The stored values that are written where another stood, with that other value.

    A thread must have read an element before one writes it. So only arithmetic on single elements
    may depend on what is overwritten: then the thread that writes has read by itself, and what
    another one reads too late goes nowhere.

    Parameters
    ----------
    expanded : Expanded
    groups : list of Group
    stored : set of Value
    last : mapping of Value to Group
        The last kernel that reads a value.
    kept : set of Value
        Values with a place of their own: columns of others, values in the order of a walk.

    Returns
    -------
    dict of Value to Value
    """
    made = {op for each in groups if each.family is not Family.HOST for op in each.ops}
    viewed = {
        operand
        for each in groups
        if each.family is Family.HOST
        for op in each.ops
        for operand in op.operands
    }
    free = (made & stored) - set(expanded.results) - viewed - kept
    found: dict[Value, Value] = {}
    for each in groups:
        if each.family is Family.HOST:
            continue
        taken: set[Value] = set()
        for op in each.ops:
            if op not in stored or op in kept or op.type.space is Space.WEIGHT:
                continue
            for value in _read(each):
                fits = value.type == op.type and value in free and last.get(value) is each
                if fits and value not in taken and op in _arithmetic_on(value, each):
                    found[op] = value
                    taken.add(value)
                    break
    return found


def _read(each: Group) -> list[Value]:
    """What a kernel reads from memory, in a fixed order."""
    members = set(each.ops)
    found = [operand for op in each.ops for operand in op.operands if operand not in members]
    return list(dict.fromkeys(found))


def _arithmetic_on(value: Value, each: Group) -> set[Value]:
    """What of a kernel depends on a value, if all of it is arithmetic on single elements."""
    found: set[Value] = set()
    for op in each.ops:
        for i, operand in enumerate(op.operands):
            if operand is not value and operand not in found:
                continue
            if op.op in _ACROSS or not registers(op, i) or op.type.space is not value.type.space:
                return set()
            found.add(op)
    return found
