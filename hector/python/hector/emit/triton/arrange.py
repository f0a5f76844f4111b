# SPDX-License-Identifier: Apache-2.0
"""The order in which operators are shared out to kernels: the one whose kernels move least.

What a value of edges is computed beside is decided by who asks for it first. Walks that read the
same rows should ask first, and which those are depends on the program and on the graph's counts.
"""

from __future__ import annotations

from hector.emit.triton.cost import weighed_bytes
from hector.emit.triton.expand import REDUCTIONS, Expanded, program_order
from hector.emit.triton.grouping import group
from hector.emit.triton.groups import Group
from hector.ir.function import Value
from hector.ir.types import MAPS, Space
from hector.plan import Counts

__all__ = ["arrange"]

_PRODUCTS = frozenset({"linear", "outer"})
_JOINING = (frozenset[str](), frozenset({"linear"}), _PRODUCTS)
"""What may join walks, one after the other."""
_WIDE = 8
"""Elements of a row from which a walk over edges may set the time."""


def _walks(expanded: Expanded) -> list[Value]:
    """Sums of wide rows over edges: where it matters what shares the walk."""
    return [
        op
        for op in expanded.ops
        if op.op in REDUCTIONS
        and MAPS[str(op.map())].source is Space.EDGE
        and op.type.width >= _WIDE
    ]


def arrange(expanded: Expanded, counts: Counts) -> tuple[Expanded, list[Group]]:
    """Share the operators out to kernels, for graphs of these counts.

    Parameters
    ----------
    expanded : Expanded
    counts : Counts

    Returns
    -------
    Expanded, list of Group
        As ``group`` gives them, the best that was tried: in the order as written, and with each
        walk over edges in turn asked for first; with products in the walks, with sums of outer
        products too, and apart. The first of equals.
    """
    orders = [expanded.ops]
    walks = _walks(expanded)
    if len(walks) > 1 or (walks and len(expanded.results) > 1):
        orders += [program_order((walk, *expanded.results)) for walk in walks]
    tried = [
        group(Expanded(ops, expanded.results), joining)
        for ops in dict.fromkeys(orders)
        for joining in (_JOINING if _PRODUCTS & {op.op for op in ops} else _JOINING[:1])
    ]
    return min(tried, key=lambda each: weighed_bytes(each[0], each[1], counts))
