# SPDX-License-Identifier: Apache-2.0
"""Reads PyG's ``FeatureStore`` and ``GraphStore``, in memory or remote."""

from __future__ import annotations

import copy
from typing import Any, Self

import torch
from torch_geometric.data import Data, FeatureStore, GraphStore, HeteroData

from datapath_core.errors import UnsupportedError
from pytorch_direct.graph.graph import EDGE, NODE, Graph
from pytorch_direct.loader.columns import Attribute, Remote
from pytorch_direct.stores.feature_store import UnifiedFeatureStore

__all__ = ["StoreSource"]


class StoreSource:
    """A pair of stores, or a feature store beside a ``Graph``.

    As in PyG, features of nodes become attributes of the batch. Those of a
    :class:`~pytorch_direct.stores.UnifiedFeatureStore` are gathered by the GPU; other stores are
    asked for rows, with ids on the CPU.
    """

    def __init__(self, features: FeatureStore, graph: Any, custom_cls: Any) -> None:
        if not isinstance(graph, (Graph, GraphStore)):
            raise TypeError(
                "beside a FeatureStore goes a GraphStore or a pytorch_direct.Graph, not "
                f"{type(graph).__name__}"
            )
        self._features, self._structure, self._class = features, graph, custom_cls
        if isinstance(graph, Graph):
            self.is_hetero = graph.is_hetero
        else:
            kinds = [attr.edge_type for attr in graph.get_all_edge_attrs()]
            if not kinds:
                raise ValueError("the GraphStore has no edges: put some, if only an empty list")
            self.is_hetero = kinds != [None]

    def graph(self, weight_attr: str | None, time_attr: str | None) -> Graph:
        """See `Source`."""
        if weight_attr is not None:
            raise UnsupportedError(
                "weight_attr is not supported with stores: make a Graph with edge_weight and give "
                "(feature_store, graph)"
            )
        if isinstance(self._structure, Graph):
            if time_attr is not None:
                raise ValueError("a Graph has its times from the start: leave time_attr out")
            return self._structure
        node_time, edge_time = self._times(time_attr)
        row, colptr, permutation = self._structure.csc()
        if not self.is_hetero:
            # Offsets of a store may be 32-bit.
            return Graph.from_csc(
                colptr.long(),
                row,
                self._sizes().get(NODE),
                edge_ids=permutation,
                node_time=node_time.get(NODE),
                edge_time=_permuted(edge_time.get(EDGE), permutation),
            )
        return Graph.from_csc(
            {kind: start.long() for kind, start in colptr.items()},
            row,
            self._sizes(),
            edge_ids={k: ids for k, ids in permutation.items() if ids is not None} or None,
            node_time=node_time or None,
            edge_time={k: _permuted(time, permutation.get(k)) for k, time in edge_time.items()}
            or None,
        )

    def sources(self, weight_attr: str | None, time_attr: str | None) -> list[Any] | None:
        """See `Source`."""
        return [self._structure] if isinstance(self._structure, Graph) else None

    def now(self) -> Self:
        """See `Source`."""
        return self

    def attributes(self) -> list[Attribute]:
        """See `Source`."""
        found = []
        for attr in self._features.get_all_tensor_attrs():
            kind = NODE if not self.is_hetero else attr.group_name
            if isinstance(kind, tuple):
                # As in PyG, features of edges are not read from stores.
                continue
            value: Any = Remote(self._features, attr)
            if isinstance(self._features, UnifiedFeatureStore):
                value = self._features.table(attr.group_name, attr.attr_name)
            found.append(Attribute("node", kind, attr.attr_name, value))
        return found

    def blank(self) -> Any:
        """See `Source`."""
        if self._class is not None:
            return self._class()
        return HeteroData() if self.is_hetero else Data()

    def store(self, batch: Any, kind: Any) -> Any:
        """See `Source`."""
        return batch[kind] if self.is_hetero else batch

    def edge_index(self, kind: Any) -> Any:
        """See `Source`."""
        if isinstance(self._structure, Graph):
            raise UnsupportedError("give edge_label_index: a store does not list a Graph's edges")
        rows, columns, _ = self._structure.coo([kind] if self.is_hetero else None)
        if isinstance(rows, dict):
            rows, columns = rows[kind], columns[kind]
        return torch.stack([rows, columns])

    def _times(self, name: str | None) -> tuple[dict[Any, Any], dict[Any, Any]]:
        nodes: dict[Any, Any] = {}
        edges: dict[Any, Any] = {}
        if name is None:
            return nodes, edges
        for attr in self._features.get_all_tensor_attrs():
            if attr.attr_name != name:
                continue
            whole = copy.copy(attr)
            whole.index = None
            time = torch.as_tensor(self._features.get_tensor(whole))
            if not self.is_hetero:
                # PyG's rule: the name says to what a time belongs.
                (nodes if name == "time" else edges)[NODE if name == "time" else EDGE] = time
            elif isinstance(attr.group_name, tuple):
                edges[attr.group_name] = time
            else:
                nodes[attr.group_name] = time
        if not nodes and not edges:
            raise ValueError(f"time_attr={name!r}, but the FeatureStore has no tensor of that name")
        return nodes, edges

    def _sizes(self) -> dict[str, int]:
        sizes: dict[str, int] = {}

        def note(kind: Any, count: Any) -> None:
            if count is not None:
                sizes[kind] = max(sizes.get(kind, 0), int(count))

        edges: Any = self._structure
        for edge in edges.get_all_edge_attrs():
            if edge.size is not None:
                kind = edge.edge_type if self.is_hetero else EDGE
                note(kind[0], edge.size[0])
                note(kind[2], edge.size[1])
        for attr in self._features.get_all_tensor_attrs():
            kind = attr.group_name if self.is_hetero else NODE
            if not isinstance(kind, tuple):
                size = self._features.get_tensor_size(attr)
                note(kind, size[0] if size else None)
        return sizes


def _permuted(time: Any, permutation: Any) -> Any:
    return time if time is None or permutation is None else time[permutation]
