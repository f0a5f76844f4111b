# SPDX-License-Identifier: Apache-2.0
"""A PyG ``GraphStore`` over tensors in host memory, in any layout that PyG has."""

from __future__ import annotations

from typing import Any

import torch
from torch_geometric.data import EdgeAttr, GraphStore

__all__ = ["HostGraphStore"]

Edges = tuple[torch.Tensor, torch.Tensor]


class HostGraphStore(GraphStore):  # type: ignore[misc]
    """Edges of a graph for a PyG loader, beside :class:`UnifiedFeatureStore`.

    Examples
    --------
    >>> store = HostGraphStore()
    >>> edge_index = torch.tensor([[0, 1], [1, 2]])
    >>> store["cites", "coo", False, (3, 3)] = edge_index
    """

    def __init__(self) -> None:
        super().__init__()
        self._edges: dict[tuple[Any, str], tuple[EdgeAttr, Edges]] = {}

    def _put_edge_index(self, edge_index: Edges, edge_attr: EdgeAttr) -> bool:
        first, second = edge_index
        self._edges[edge_attr.edge_type, edge_attr.layout.value] = (edge_attr, (first, second))
        return True

    def _get_edge_index(self, edge_attr: EdgeAttr) -> Edges | None:
        found = self._edges.get((edge_attr.edge_type, edge_attr.layout.value))
        return None if found is None else found[1]

    def _remove_edge_index(self, edge_attr: EdgeAttr) -> bool:
        return self._edges.pop((edge_attr.edge_type, edge_attr.layout.value), None) is not None

    def get_all_edge_attrs(self) -> list[EdgeAttr]:
        """Return the attributes under which edges were put."""
        return [attr for attr, _ in self._edges.values()]
