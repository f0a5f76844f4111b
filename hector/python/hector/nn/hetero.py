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


def node_order(g: Graph, types: Sequence[str], *, strangers: bool = False) -> list[int]:
    """Number, in the layer, of each node type of the graph; errors as ``relation_order``.

    Parameters
    ----------
    g : Graph
    types : sequence of str
    strangers : bool
        Whether types that the layer does not know are taken, as one behind all that it knows.
    """
    count = _count(g, g.num_node_types)
    if not g.node_type_names and count is not None and 0 < count < len(types):
        return list(range(count))  # The last types may have no node.
    if strangers and g.node_type_names:
        return [types.index(n) if n in types else len(types) for n in g.node_type_names]
    return _order("node types", g.node_type_names, types, count)


def stacked(g: Graph, x: Tensor | Mapping[str, Tensor], widths: Mapping[str, int]) -> Tensor:
    """Features of all nodes, in the graph's order, filled up with zeros to one width.

    Parameters
    ----------
    g : Graph
    x : Tensor, or dict by node type
    widths : dict of str to int
        Of the types whose features are read; others' rows are zero.

    Raises
    ------
    ValueError
        If a node type has no features, or of another width, or another number of rows than nodes;
        or if the graph was not made by ``Graph.from_pyg``.
    """
    if not isinstance(x, Mapping):
        return x
    if not g.node_type_names:
        raise ValueError("features by node type need a graph of Graph.from_pyg(data)")
    missing = [name for name in g.node_type_names if name in widths and name not in x]
    if missing:
        raise ValueError(f"no features for the node types {missing}")
    width, parts = max(widths.values()), []
    like = next((x[name] for name in widths if name in x), None)
    for name, count in zip(g.node_type_names, g.node_type_counts, strict=True):
        if name not in widths:
            parts.append(
                torch.zeros(count, width) if like is None else like.new_zeros(count, width)
            )
            continue
        part, wanted = x[name], (count, widths[name])
        if part.shape != wanted:
            raise ValueError(f"features of {name!r} are {tuple(part.shape)}, not {wanted}")
        parts.append(functional.pad(part, (0, width - part.shape[1])))
    return torch.cat(parts)


def unstacked(g: Graph, out: Tensor, kept: Sequence[str]) -> dict[str, Tensor]:
    """Rows of the node types that are kept, by name."""
    parts = zip(g.node_type_names, torch.split(out, list(g.node_type_counts)), strict=True)
    return {name: part for name, part in parts if name in kept}
