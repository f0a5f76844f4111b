# SPDX-License-Identifier: Apache-2.0
"""Kernels as groups of operators: their families, and what fits into one; joins none."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from hector.emit.triton.expand import REDUCTIONS
from hector.emit.triton.tiles import (
    BLOCK,
    padded,
    padded_width,
    row_local,
    single_block,
    supported,
)
from hector.ir.function import Value
from hector.ir.types import MAPS, Space

__all__ = [
    "BLOCK",
    "WALKS",
    "Family",
    "Group",
    "fits_walk_product",
    "registers",
    "single_block",
    "start",
]

_WALKED = 128
"""Elements of a target's row that it may hold where the sums go into products."""

_MATRICES = 4 * 64 * 64
"""Elements of matrices and of outer products that such a program may hold."""


class Family(enum.Enum):
    """Which template makes the kernel."""

    ROWS = "rows"
    TRAVERSAL = "traversal"
    PRODUCT = "product"
    OUTER = "outer"
    WALK_PRODUCT = "walk_product"
    HOST = "host"


WALKS = (Family.TRAVERSAL, Family.WALK_PRODUCT)
"""The families that walk along a map."""


@dataclass(eq=False)
class Group:
    """Operators of one kernel.

    Attributes
    ----------
    family : Family
    space : Space
        Whose rows the kernel visits: the source of ``map`` for a traversal.
    map : str or None
        Map of a traversal, also of one whose sums go into products.
    anchor : Value or None
        The product of a kernel that walks along no map.
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

    @property
    def anchors(self) -> tuple[Value, ...]:
        """Products and sums of outer products."""
        return tuple(op for op in self.ops if op.op in ("linear", "outer"))


def registers(op: Value, i: int) -> bool:
    """Whether operand i can come from the same row of the same kernel."""
    operand = op.operands[i]
    if operand.type.space is Space.WEIGHT or op.op == "gather":
        return False
    if op.op == "linear":
        return i == 0 and "rows" not in op.attrs
    if op.op == "outer":
        return ("rows", "rows_y")[i] not in op.attrs
    return op.op in REDUCTIONS or row_local(op)


def _templated(op: Value) -> bool:
    """Whether a product template takes the operator."""
    x, y = (operand.type for operand in op.operands)
    if x.dtype == "f64" or len(x.shape) > 2 or x.space is Space.WEIGHT:
        return False
    if op.op == "linear":
        return "type" in op.attrs or y.space is Space.WEIGHT
    if x.space in (Space.RELATION, Space.NODE_TYPE):
        return False  # few rows of whole matrices, and one sum: not what chunks of rows are for
    return y.space is not Space.WEIGHT and ("type" in op.attrs or "rows_summed" in op.attrs)


def start(op: Value, views: frozenset[Value]) -> Group:
    """The group that an operator is by itself."""
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


def fits_walk_product(first: Group, second: Group, joining: frozenset[str]) -> bool:
    """Whether a walk and products of its targets, or two such, fit into one kernel.

    Parameters
    ----------
    first, second : Group
    joining : frozenset of str
        Which of ``linear`` and ``outer`` may join a walk.
    """
    walks = [each for each in (first, second) if each.family in WALKS]
    ops = first.ops + second.ops
    anchors = [op for op in ops if op.op in ("linear", "outer")]
    sums = [op for op in ops if op.op in REDUCTIONS]
    spaces = {each.target if each.family in WALKS else each.space for each in (first, second)}
    held = sum(
        max(padded(n), 16) * max(padded(k), 16)
        for n, k in (
            op.type.shape if op.op == "outer" else op.operands[1].type.shape[-2:] for op in anchors
        )
    )
    return (
        bool(walks)
        and {op.op for op in anchors} <= joining
        and len({each.map for each in walks}) == 1
        and len(spaces) == 1
        and len({op.map("type") for op in anchors if op.map("type") is not None}) == 1
        and all(op.map("type") is not None for op in anchors if op.op == "linear")
        and all(op.op == "segment_sum" for op in sums)
        and all(single_block(op) for op in anchors)
        and len({op.operands[0].type.dtype for op in anchors}) == 1
        and sum(padded_width(op.type.shape) for op in sums) <= _WALKED + 2 * len(sums)
        and held <= _MATRICES
        and all(padded_width(op.type.shape) <= BLOCK for op in ops if op.op not in ("outer",))
    )
