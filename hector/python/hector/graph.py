# SPDX-License-Identifier: Apache-2.0
"""The relational graph as users see it; orders and unique maps are in plan."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from hector.handles import handle_of
from hector.plan import Plan

__all__ = ["Graph"]

_INTEGERS = (torch.int32, torch.int64)


def _check_ids(name: str, ids: Tensor, limit: int, what: str) -> None:
    if ids.numel() == 0:
        return
    low, high = (int(bound) for bound in torch.aminmax(ids))
    if low < 0 or high >= limit:
        bad = low if low < 0 else high
        raise IndexError(f"Graph: {name} holds {bad}, but there are {limit} {what}")


def _known(count: int | None, name: str) -> int:
    if count is None:
        raise ValueError(f"Graph.from_pyg: the number of nodes of {name} is not known")
    return int(count)


def _check_tensor(name: str, value: object, rank: int) -> Tensor:
    if not isinstance(value, Tensor):
        raise TypeError(f"Graph: {name} must be a tensor, not {type(value).__name__}")
    if value.dtype not in _INTEGERS:
        raise TypeError(f"Graph: {name} must be int32 or int64, not {value.dtype}")
    if value.layout is not torch.strided:
        raise TypeError(f"Graph: {name} must be dense, not {value.layout}; use to_dense()")
    if value.dim() != rank:
        raise ValueError(f"Graph: {name} must have {rank} dimension(s), not {tuple(value.shape)}")
    return value


class Graph:
    """A directed graph whose edges carry a relation, and whose nodes may carry a type.

    Parameters
    ----------
    edge_index : Tensor, int32 or int64, shape (2, E)
        Source ids in row 0, destination ids in row 1, in any order; duplicates are kept.
    edge_type : Tensor, int32 or int64, shape (E,)
        Relation of each edge.
    num_nodes : int
    num_relations : int, optional
        Default: the largest relation plus one. Relations without an edge are normal.
    node_type : Tensor, int32 or int64, shape (num_nodes,), optional
        Needed by ``g.node_type``, ``g.src_type`` and ``g.dst_type`` only.
    num_node_types : int, optional
        Default: the largest node type plus one. Types without a node are normal.

    Raises
    ------
    TypeError
        If an id tensor is no tensor or not of an integer dtype.
    ValueError
        If shapes do not fit, devices differ or a count is negative.
    IndexError
        If an id is out of range.

    Notes
    -----
    The tensors must not be changed afterwards: derived orders are cached, and a changed tensor
    raises when it is next used.
    """

    def __init__(
        self,
        edge_index: Tensor,
        edge_type: Tensor,
        num_nodes: int,
        num_relations: int | None = None,
        node_type: Tensor | None = None,
        num_node_types: int | None = None,
    ) -> None:
        _check_tensor("edge_index", edge_index, 2)
        _check_tensor("edge_type", edge_type, 1)
        if edge_index.shape[0] != 2 or edge_index.shape[1] != edge_type.shape[0]:
            raise ValueError(
                f"Graph: edge_index must be (2, E) and edge_type (E,), not "
                f"{tuple(edge_index.shape)} and {tuple(edge_type.shape)}"
            )
        if edge_index.device != edge_type.device:
            raise ValueError(
                f"Graph: edge_index is on {edge_index.device}, edge_type on {edge_type.device}"
            )
        if edge_index.is_meta:
            raise TypeError("Graph: edge_index is on meta; a graph needs ids that have values")
        if num_relations is None:
            num_relations = int(edge_type.max()) + 1 if edge_type.numel() else 0
        for name, count in (("num_nodes", num_nodes), ("num_relations", num_relations)):
            if isinstance(count, bool) or not isinstance(count, int):
                raise TypeError(f"Graph: {name} must be an int, not {type(count).__name__}")
            if count < 0:
                raise ValueError(f"Graph: {name} must not be negative, got {count}")
        _check_ids("edge_index", edge_index, num_nodes, "nodes")
        _check_ids("edge_type", edge_type, num_relations, "relations")
        self.edge_index = edge_index
        self.edge_type = edge_type
        self.num_nodes = num_nodes
        self.num_edges = int(edge_type.shape[0])
        self.num_relations = num_relations
        self.num_node_types = 0
        self.node_type_names: tuple[str, ...] = ()
        self.node_type_counts: tuple[int, ...] = ()
        self.relation_names: tuple[tuple[str, str, str], ...] = ()
        self._node_type = node_type
        if node_type is not None:
            self._check_node_type(node_type, num_node_types)
        self._versions = self._current_versions()
        self._plan = Plan(
            self.src, self.dst, self.rel, num_nodes, num_relations, node_type, self.num_node_types
        )
        self.num_src_pairs = self._plan.counts.src_pair
        self.num_dst_pairs = self._plan.counts.dst_pair
        self.handle = handle_of(self._plan)

    def _check_node_type(self, node_type: Tensor, count: int | None) -> None:
        _check_tensor("node_type", node_type, 1)
        if node_type.shape[0] != self.num_nodes:
            raise ValueError(
                f"Graph: node_type has {node_type.shape[0]} rows for {self.num_nodes} nodes"
            )
        if node_type.device != self.device:
            raise ValueError(f"Graph: node_type is on {node_type.device}, edges on {self.device}")
        if count is None:
            count = int(node_type.max()) + 1 if node_type.numel() else 0
        if isinstance(count, bool) or not isinstance(count, int):
            raise TypeError(f"Graph: num_node_types must be an int, not {type(count).__name__}")
        self.num_node_types = count
        _check_ids("node_type", node_type, self.num_node_types, "node types")

    def _current_versions(self) -> tuple[int, ...]:
        tensors = (self.edge_index, self.edge_type, self._node_type)
        # Inference tensors track no version; they cannot be watched.
        return tuple(
            0 if tensor is None or tensor.is_inference() else tensor._version for tensor in tensors
        )

    @classmethod
    def from_pyg(cls, data: Any) -> Graph:
        """The graph of a ``torch_geometric.data.HeteroData`` or ``Data``, or of a loader's batch.

        Parameters
        ----------
        data : HeteroData or Data
            Of the first, ``node_types``, ``edge_types``, ``data[node_type].num_nodes`` and
            ``data[edge_type].edge_index`` are read; of the second, ``edge_index``, ``edge_type``
            and ``num_nodes``. Batches of ``NeighborLoader`` are one of both.

        Returns
        -------
        Graph
            Nodes are numbered type after type in the order of ``data.node_types``, relations in
            the order of ``data.edge_types``; ``node_type_names``, ``node_type_counts`` and
            ``relation_names`` keep both. Node features belong in the same order:
            ``torch.cat([data[name].x for name in g.node_type_names])``. Of a ``Data`` everything
            keeps its number, and there are no names.

        Raises
        ------
        ValueError
            If there is no node type, a count or the edges' types are missing, or an id is outside
            its own type's nodes.
        """
        if not hasattr(data, "node_types"):
            edge_type = getattr(data, "edge_type", None)
            if edge_type is None or data.edge_index is None:
                raise ValueError("Graph.from_pyg: the data has no edge_index with an edge_type")
            return cls(data.edge_index, edge_type, _known(data.num_nodes, "the data"))
        names = tuple(data.node_types)
        if not names:
            raise ValueError("Graph.from_pyg: the data has no node type")
        counts = [_known(data[name].num_nodes, name) for name in names]
        starts = dict(zip(names, [sum(counts[:i]) for i in range(len(counts))], strict=True))
        sizes = dict(zip(names, counts, strict=True))
        relations = tuple(data.edge_types)
        ends, types = [], []
        for number, relation in enumerate(relations):
            index = _check_tensor(f"edge_index of {relation}", data[relation].edge_index, 2)
            for row, name in ((0, relation[0]), (1, relation[2])):
                if name not in sizes:
                    raise ValueError(f"Graph.from_pyg: {relation} names no node type of the data")
                _check_ids(f"edge_index of {relation}", index[row], sizes[name], f"nodes {name!r}")
            shift = torch.tensor([[starts[relation[0]]], [starts[relation[2]]]])
            ends.append(index.long() + shift.to(index.device))
            types.append(torch.full((index.shape[1],), number, device=index.device))
        device = ends[0].device if ends else None
        graph = cls(
            torch.cat(ends, 1) if ends else torch.zeros(2, 0, dtype=torch.int64),
            torch.cat(types) if types else torch.zeros(0, dtype=torch.int64),
            sum(counts),
            len(relations),
            torch.arange(len(names), device=device).repeat_interleave(
                torch.tensor(counts, device=device)
            ),
            len(names),
        )
        graph.node_type_names, graph.relation_names = names, relations
        graph.node_type_counts = tuple(counts)
        return graph

    @property
    def device(self) -> torch.device:
        """Where the ids live."""
        return self.edge_type.device

    @property
    def src(self) -> Tensor:
        """Source node of each edge, shape (E,)."""
        return self.edge_index[0]

    @property
    def dst(self) -> Tensor:
        """Destination node of each edge, shape (E,)."""
        return self.edge_index[1]

    @property
    def rel(self) -> Tensor:
        """Relation of each edge, shape (E,)."""
        return self.edge_type

    @property
    def node_type(self) -> Tensor:
        """Type of each node, shape (num_nodes,)."""
        if self._node_type is None:
            raise ValueError("this Graph has no node types: pass node_type= when building it")
        return self._node_type

    @property
    def src_type(self) -> Tensor:
        """Type of each edge's source node, shape (E,)."""
        return self.node_type[self.src]

    @property
    def dst_type(self) -> Tensor:
        """Type of each edge's destination node, shape (E,)."""
        return self.node_type[self.dst]

    @property
    def has_node_types(self) -> bool:
        """Whether node types were given."""
        return self._node_type is not None

    def plan(self) -> Plan:
        """The plan: orders, unique maps and counts.

        Raises
        ------
        ValueError
            If an id tensor was changed in place since the graph was built.
        """
        if self._versions != self._current_versions():
            raise ValueError("Graph: an id tensor was changed in place; build a new Graph")
        return self._plan

    def __getstate__(self) -> dict[str, Any]:
        """Everything but the handle, which is this process's and this object's."""
        return {key: value for key, value in vars(self).items() if key != "handle"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._versions = self._current_versions()
        self.handle = handle_of(self._plan)

    def __repr__(self) -> str:
        return (
            f"Graph(num_nodes={self.num_nodes}, num_edges={self.num_edges}, "
            f"num_relations={self.num_relations}, device={self.device})"
        )
