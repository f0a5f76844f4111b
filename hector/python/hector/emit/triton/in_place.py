# SPDX-License-Identifier: Apache-2.0
"""Which results of kernels take the memory of an operand that nothing reads any more."""

from __future__ import annotations

from collections.abc import Mapping, Set

from hector.emit.torch.emitter import INLINE
from hector.emit.triton.expand import REDUCTIONS, Expanded
from hector.emit.triton.groups import Family, Group, registers
from hector.ir.function import Value
from hector.ir.types import Space

__all__ = ["in_place", "last_reads"]

_ACROSS = REDUCTIONS | {"sum", "amax", "linear", "outer"}
"""What joins elements that different threads may have read."""

_COLUMNS = range(32, 129)
"""Elements of a row of which a product's program reads each once, all at the same time."""


def last_reads(groups: list[Group]) -> dict[Value, Group]:
    """The last group that reads each value, in this order of the groups."""
    found: dict[Value, Group] = {}
    for each in groups:
        for op in each.ops:
            for operand in op.operands:
                if operand.op not in INLINE and operand.op != "count_scale":
                    found[operand] = each
    return found


def in_place(
    expanded: Expanded,
    groups: list[Group],
    stored: Set[Value],
    last: Mapping[Value, Group],
    kept: Set[Value],
) -> dict[Value, Value]:
    """The stored values that are written where another stood, with that other value.

    An element must have been read by all who read it before it is overwritten. Where only
    arithmetic on single elements depends on it, the thread that writes has read by itself, and what
    another one reads too late goes nowhere. A product's program reads each element of its rows by
    one thread, and no element of the result is known before the whole row is.

    Parameters
    ----------
    expanded : Expanded
    groups : list of Group
        In the order in which they run.
    stored : set of Value
    last : mapping of Value to Group
        The last group that reads a value.
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
                if fits and value not in taken and op in _replacing(value, each):
                    found[op] = value
                    taken.add(value)
                    break
    return found


def _read(each: Group) -> list[Value]:
    """What a kernel reads from memory, in a fixed order."""
    members = set(each.ops)
    found = [operand for op in each.ops for operand in op.operands if operand not in members]
    return list(dict.fromkeys(found))


def _replacing(value: Value, each: Group) -> set[Value]:
    """What of a kernel may be written where a value stands that it reads."""
    readers = [op for op in each.ops if value in op.operands]
    if each.family is Family.PRODUCT and readers == [each.anchor]:
        (product,) = readers
        row = product.operands[0] is value and registers(product, 0)
        if not row or len(value.type.shape) != 1 or value.type.width not in _COLUMNS:
            return set()
        return {product, *_depending(product, each)}
    found = _depending(value, each)
    across = any(op.op in _ACROSS or op.type.space is not value.type.space for op in found)
    return set() if across else found


def _depending(value: Value, each: Group) -> set[Value]:
    """What of a kernel depends on a value row by row; nothing where some of it does otherwise."""
    found: set[Value] = set()
    for op in each.ops:
        for i, operand in enumerate(op.operands):
            if operand is value or operand in found:
                if not registers(op, i):
                    return set()
                found.add(op)
    return found
