# SPDX-License-Identifier: Apache-2.0
"""Recording of what works over the edges of a node: softmax and aggregation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hector import functional as semantic
from hector.frontend.record import Call, Recorder, SpaceVar
from hector.ir.types import Space

__all__ = ["EDGES"]


def _edge_softmax(r: Recorder, score: Call, g: Any, by: str = "dst") -> Call:
    _check_graph(r, g, "edge_softmax")
    if by not in semantic.SOFTMAX_GROUPS:
        known = ", ".join(semantic.SOFTMAX_GROUPS)
        raise ValueError(f"edge_softmax: by={by!r} is none of {known}")
    r.require(score, Space.EDGE, "hector.edge_softmax")
    return r.call("edge_softmax", (score,), score.shape, score.var, by=by)


def _aggregate(r: Recorder, message: Call, g: Any, reduce: str = "sum") -> Call:
    _check_graph(r, g, "aggregate")
    if reduce not in semantic.AGGREGATIONS:
        known = ", ".join(semantic.AGGREGATIONS)
        raise ValueError(f"aggregate: reduce={reduce!r} is none of {known}")
    r.require(message, Space.EDGE, "hector.aggregate")
    shape = (r.counts.node, *message.shape[1:])
    return r.call("aggregate", (message,), shape, SpaceVar(Space.NODE), reduce=reduce)


def _check_graph(r: Recorder, g: Any, name: str) -> None:
    if getattr(g, "recorder", None) is not r:
        raise TypeError(f"{name}: the graph must be the compiled function's own graph argument")


EDGES: dict[str, Callable[..., Any]] = {"edge_softmax": _edge_softmax, "aggregate": _aggregate}
"""Handlers by name."""
