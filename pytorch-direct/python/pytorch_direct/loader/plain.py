# SPDX-License-Identifier: Apache-2.0
"""Features by name beside a ``Graph``, for use without PyG."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import torch

from pytorch_direct.graph.graph import EDGE, NODE, Graph
from pytorch_direct.loader.batch import Batch, HeteroBatch
from pytorch_direct.loader.columns import Attribute

__all__ = ["PlainSource"]


class PlainSource:
    """Tensors by name, or for heterogeneous graphs by type and name.

    Of a homogeneous graph, what has as many rows as there are nodes belongs to nodes, as many as
    there are edges to edges; with as many edges as nodes, the word ``edge`` in its name decides.
    What has neither goes into each batch as it is.
    """

    def __init__(self, features: Mapping[Any, Any], graph: Graph) -> None:
        self._features, self._graph = features, graph
        self.is_hetero = graph.is_hetero
        if not graph.is_hetero:
            for name, value in features.items():
                if not isinstance(name, str) or isinstance(value, Mapping):
                    raise TypeError(
                        "features of a homogeneous graph are a dict of tensors by name; this has "
                        f"{name!r}: {type(value).__name__}"
                    )
            return
        for kind, values in features.items():
            if kind not in graph.node_types and kind not in graph.edge_types:
                raise ValueError(
                    f"features: there is no type {kind!r}; there are {list(graph.node_types)} and "
                    f"{list(graph.edge_types)}"
                )
            if not isinstance(values, Mapping):
                raise TypeError(
                    f"features of type {kind!r} must be a dict by name, not {type(values).__name__}"
                )

    def graph(self, weight_attr: str | None, time_attr: str | None) -> Graph:
        """See `Source`."""
        for name, value in (("weight_attr", weight_attr), ("time_attr", time_attr)):
            if value is not None:
                raise ValueError(
                    f"{name}= names an attribute of PyG's objects; a Graph has its weights and "
                    "times from the start: give them when making it"
                )
        return self._graph

    def sources(self, weight_attr: str | None, time_attr: str | None) -> list[Any] | None:
        """See `Source`."""
        return [self._graph]

    def now(self) -> Self:
        """See `Source`."""
        features = self._features
        if self.is_hetero:
            return type(self)({kind: dict(named) for kind, named in features.items()}, self._graph)
        return type(self)(dict(features), self._graph)

    def attributes(self) -> list[Attribute]:
        """See `Source`."""
        found = []
        for name, value, kind in self._all():
            rows = _rows(value)
            of = self._belongs(name, rows, kind)
            if of is None:
                continue
            owner = kind if kind is not None else (NODE if of == "node" else EDGE)
            found.append(Attribute("node" if of == "node" else "edge", owner, name, value))
        return found

    def blank(self) -> Any:
        """See `Source`."""
        batch: Batch | HeteroBatch = HeteroBatch() if self.is_hetero else Batch()
        for name, value, kind in self._all():
            if self._belongs(name, _rows(value), kind) is None:
                self.store(batch, kind)[name] = value
        return batch

    def store(self, batch: Any, kind: Any) -> Any:
        """See `Source`."""
        return batch[kind] if self.is_hetero else batch

    def edge_index(self, kind: Any) -> Any:
        """See `Source`."""
        relation = self._graph.relations[kind]
        degrees = relation.indptr.diff().cpu()
        ends = torch.stack(
            [
                relation.indices.long().cpu(),
                torch.repeat_interleave(torch.arange(degrees.numel()), degrees),
            ]
        )
        if relation.edge_ids is None:
            return ends
        edges = torch.empty_like(ends)
        edges[:, relation.edge_ids.cpu()] = ends
        return edges

    def _all(self) -> list[tuple[str, Any, Any]]:
        if not self.is_hetero:
            return [(name, value, None) for name, value in self._features.items()]
        return [
            (name, value, kind)
            for kind, values in self._features.items()
            for name, value in values.items()
        ]

    def _belongs(self, name: str, rows: int | None, kind: Any) -> str | None:
        if rows is None:
            return None
        nodes, edges = self._graph.num_nodes, self._graph.num_edges
        if kind is not None:
            of = "node" if isinstance(kind, str) else "edge"
            return of if rows == (nodes[kind] if of == "node" else edges[kind]) else None
        if rows == nodes[NODE] and (rows != edges[EDGE] or "edge" not in name):
            return "node"
        return "edge" if rows == edges[EDGE] else None


def _rows(value: Any) -> int | None:
    if isinstance(value, (list, tuple)):
        return len(value)
    shape: Any = getattr(value, "shape", ())
    return int(shape[0]) if len(shape) else None
