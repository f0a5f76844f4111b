# SPDX-License-Identifier: Apache-2.0
"""Compact materialisation: a value that is the same for many edges is computed once.

An edge value that depends on the source and the relation only is the same for every edge of one
(relation, source) pair; one that depends on the source only, for every edge of that node
(Hector, ASPLOS 2024, compact materialisation).
"""

from __future__ import annotations

from hector.ir.function import Builder, Function, Value
from hector.ir.types import MAPS, Space, factor
from hector.passes.canonicalise import ROW_LOCAL, moves_to
from hector.passes.rewrite import rewrite
from hector.plan import Counts

__all__ = ["compact", "node_routes"]

# In order of preference: a node stands for more edges than a pair does.
_ROUTES = (
    "edge.src",
    "edge.dst",
    "src_pair.node",
    "dst_pair.node",
    "edge.src_pair",
    "edge.dst_pair",
)


def node_routes(counts: Counts) -> frozenset[str]:
    """The maps to nodes along which values may move: those with no more nodes than rows."""
    return frozenset(
        route
        for route in _ROUTES
        if MAPS[route].target is Space.NODE and counts.node <= counts.rows(MAPS[route].source)
    )


def _rest(name: str, route: str) -> str | None:
    """What remains of a map behind ``route``; empty where nothing does."""
    return "" if name == route else factor(name, route)


def _through(builder: Builder, op: Value, operands: tuple[Value, ...], route: str) -> Value | None:
    """The operator done on the far side of ``route``, or None where it may not move there."""
    if not moves_to(op, operands, MAPS[route].target):
        return None
    attrs = dict(op.attrs)
    if "type" in attrs:
        kind = factor(str(attrs["type"]), route)
        if kind is None:
            return None
        attrs["type"] = kind
    rests: list[str | None] = []
    for operand in operands:
        if operand.type.space is not MAPS[route].source:
            rests.append(None)
            continue
        rest = _rest(str(operand.map()), route) if operand.op == "gather" else None
        if rest is None:
            return None
        rests.append(rest)
    if all(rest is None for rest in rests):
        return None
    inner = []
    for operand, rest in zip(operands, rests, strict=True):
        if rest is None:
            inner.append(operand)
        elif rest:
            inner.append(builder.emit("gather", operand.operands[0], map=rest))
        else:
            inner.append(operand.operands[0])
    return builder.emit("gather", builder.emit(op.op, *inner, **attrs), map=route)


def compact(function: Function, routes: frozenset[str]) -> Function:
    """Compute values in the smallest space that determines them.

    Parameters
    ----------
    function : Function
        Canonical.
    routes : frozenset of str
        Maps along which values may move: some of ``node_routes``, ``edge.src_pair`` and
        ``edge.dst_pair``.

    Returns
    -------
    Function
    """

    def rule(builder: Builder, op: Value, operands: tuple[Value, ...]) -> Value | None:
        if op.op not in ROW_LOCAL and op.op != "linear":
            return None
        for route in _ROUTES:
            if route in routes and MAPS[route].source is op.type.space:
                value = _through(builder, op, operands, route)
                if value is not None:
                    return value
        return None

    return rewrite(function, rule)
