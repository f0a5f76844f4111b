# SPDX-License-Identifier: Apache-2.0
"""Between dicts by node type and one tensor of all nodes, and between two orders of names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, cast

import torch
from torch import Tensor
from torch.nn import functional

from hector.frontend.graph import TracedGraph
from hector.graph import Graph

__all__ = [
    "Metadata",
    "PygData",
    "graph_of",
    "node_order",
    "relation_order",
    "stacked",
    "unstacked",
]

Relation = tuple[str, str, str]
Metadata = tuple[Sequence[str], Sequence[Relation]]


class PygData(Protocol):
    """A ``Data`` or ``HeteroData`` of PyG, or a loader's batch."""

    @property
    def node_stores(self) -> Sequence[Any]:
        """Where PyG keeps what belongs to nodes."""
        ...


def graph_of(data: Graph | PygData, num_relations: int | None = None) -> Graph:
    """A layer's graph: itself, or that of a data object or batch of PyG.

    Parameters
    ----------
    data : Graph, Data or HeteroData
    num_relations : int or None
        Of a ``Data``, whose edges may not show it.
    """
    if isinstance(data, Graph | TracedGraph):
        return cast("Graph", data)
    return Graph.from_pyg(data, num_relations=num_relations)


def _count(g: Graph, count: int) -> int | None:
    """A count of a graph; None in a trace, which serves many (calls compare rows then)."""
    return None if isinstance(g, TracedGraph) else count


def _order(
    what: str, found: Sequence[object], known: Sequence[object], count: int | None
) -> list[int]:
    if not found and count is None:
        return list(range(len(known)))
    if not found:
        if count != len(known):
            raise ValueError(
                f"the graph has {count} {what} without names; the layer knows {len(known)}"
            )
        return list(range(count))
    missing = [name for name in found if name not in known]
    if missing:
        raise ValueError(f"the graph's {what} {missing} are not in the layer's metadata")
    return [list(known).index(name) for name in found]


def relation_order(g: Graph, relations: Sequence[Relation]) -> list[int]:
    """Number, in the layer, of each relation of the graph.

    Raises
    ------
    ValueError
        If the graph has a relation that the layer does not know, or no names and another count.
    """
    return _order("relations", g.relation_names, relations, _count(g, g.num_relations))


def node_order(g: Graph, types: Sequence[str]) -> list[int]:
    """Number, in the layer, of each node type of the graph; errors as ``relation_order``."""
    count = _count(g, g.num_node_types)
    if not g.node_type_names and count is not None and 0 < count < len(types):
        return list(range(count))  # The last types may have no node.
    return _order("node types", g.node_type_names, types, count)


def stacked(g: Graph, x: Tensor | Mapping[str, Tensor], width: int) -> Tensor:
    """Features of all nodes, in the graph's order, filled up with zeros to one width.

    Raises
    ------
    ValueError
        If a node type has no features, or the graph was not made by ``Graph.from_pyg``.
    """
    if not isinstance(x, Mapping):
        return x
    if not g.node_type_names:
        raise ValueError("features by node type need a graph of Graph.from_pyg(data)")
    missing = [name for name in g.node_type_names if name not in x]
    if missing:
        raise ValueError(f"no features for the node types {missing}")
    parts = [x[name] for name in g.node_type_names]
    return torch.cat([functional.pad(part, (0, width - part.shape[1])) for part in parts])


def unstacked(g: Graph, out: Tensor, kept: Sequence[str]) -> dict[str, Tensor]:
    """Rows of the node types that are kept, by name."""
    parts = zip(g.node_type_names, torch.split(out, list(g.node_type_counts)), strict=True)
    return {name: part for name, part in parts if name in kept}
