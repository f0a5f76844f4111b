# SPDX-License-Identifier: Apache-2.0
"""Where a loader's graph and attributes come from: PyG's objects, its stores, or plain tensors."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, Protocol, Self

from pytorch_direct.graph.graph import Graph
from pytorch_direct.loader.columns import Attribute
from pytorch_direct.loader.plain import PlainSource

__all__ = ["Source", "source_of"]


class Source(Protocol):
    """A graph with attributes."""

    is_hetero: bool

    def graph(self, weight_attr: str | None, time_attr: str | None) -> Graph:
        """Return the graph, on whatever device it is made."""

    def sources(self, weight_attr: str | None, time_attr: str | None) -> list[Any] | None:
        """Return what the graph is a function of, or None where that cannot be told."""

    def now(self) -> Self:
        """Return the attributes there are now, whatever the caller adds or takes away later."""

    def attributes(self) -> list[Attribute]:
        """Return what has rows."""

    def blank(self) -> Any:
        """Return a new batch with all that has no rows."""

    def store(self, batch: Any, kind: Any) -> Any:
        """Return the part of a batch that holds attributes of a type."""

    def edge_index(self, kind: Any) -> Any:
        """Return all edges of a type, int64 of shape ``[2, edges]``."""


def source_of(data: Any, custom_cls: Any = None) -> Source:
    """Return how to read what a loader was given.

    Raises
    ------
    TypeError
        It is nothing that a loader takes.
    """
    # Whoever has an object of PyG's has imported it.
    pyg = sys.modules.get("torch_geometric.data")
    if pyg is not None and isinstance(data, (pyg.Data, pyg.HeteroData)):
        from pytorch_direct.loader.pyg import PygSource

        return PygSource(data)
    if isinstance(data, Graph):
        return PlainSource({}, data)
    if isinstance(data, (tuple, list)) and len(data) == 2:
        features, graph = data
        if isinstance(graph, Graph) and isinstance(features, Mapping):
            return PlainSource(features, graph)
        if pyg is not None and isinstance(features, pyg.FeatureStore):
            from pytorch_direct.loader.stores import StoreSource

            return StoreSource(features, graph, custom_cls)
    raise TypeError(
        "a loader takes a torch_geometric Data or HeteroData, a pair (FeatureStore, GraphStore), a "
        f"pytorch_direct.Graph, or a pair (dict of features, Graph), not {_named(data)}"
    )


def _named(data: Any) -> str:
    if isinstance(data, (tuple, list)):
        return f"({', '.join(type(part).__name__ for part in data)})"
    return type(data).__name__
