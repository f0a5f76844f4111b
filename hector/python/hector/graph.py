# SPDX-License-Identifier: Apache-2.0
"""The relational graph as users see it; orders and unique maps are in plan."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from hector.handles import handle_of
from hector.hetero_data import hetero_edges, is_sample, known_count
from hector.ids import IdRange, check_tensor
from hector.plan import Plan, Recipe

__all__ = ["Graph"]


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
    sampled : bool
        Whether this is one of many graphs that are each used for a step or so. Programs are then
        chosen once for all graphs of about this size, and what kernels need beside the ids takes
        no further answer of the device: see Notes.

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

    On a GPU, building a graph waits for the device once: for whether the ids are in range, and for
    the number of unique (relation, node) pairs; twice where a count is left to be found. What a
    program needs further is derived when it first runs on the graph, and waits for the sizes of
    some tables unless the graph is ``sampled``: then their upper bounds serve. ``hector.prefetch``
    does all of it ahead of the step that needs it.
    """

    def __init__(
        self,
        edge_index: Tensor,
        edge_type: Tensor,
        num_nodes: int,
        num_relations: int | None = None,
        node_type: Tensor | None = None,
        num_node_types: int | None = None,
        *,
        sampled: bool = False,
    ) -> None:
        self._build(
            edge_index, edge_type, num_nodes, num_relations, node_type, num_node_types, sampled
        )

    def _build(
        self,
        edge_index: Tensor,
        edge_type: Tensor,
        num_nodes: int,
        num_relations: int | None,
        node_type: Tensor | None,
        num_node_types: int | None,
        sampled: bool,
        *,
        ranges: Sequence[IdRange] = (),
        types_ascend: bool = False,
    ) -> None:
        check_tensor("edge_index", edge_index, 2)
        check_tensor("edge_type", edge_type, 1)
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
        checked = [
            *ranges,
            IdRange("edge_index", edge_index, num_nodes, "nodes", of_edges=True),
            IdRange("edge_type", edge_type, num_relations, "relations", of_edges=True),
        ]
        if node_type is not None:
            self.num_node_types = self._node_types(node_type, num_node_types)
            checked.append(IdRange("node_type", node_type, self.num_node_types, "node types"))
        self._versions = self._current_versions()
        self._plan = Plan(
            self.src, self.dst, self.rel, num_nodes, num_relations, node_type, self.num_node_types,
            ranges=checked, types_ascend=types_ascend, sampled=sampled,
        )  # fmt: skip
        self.num_src_pairs = self._plan.counts.src_pair
        self.num_dst_pairs = self._plan.counts.dst_pair
        self.handle = handle_of(self._plan)

    def _node_types(self, node_type: Tensor, count: int | None) -> int:
        check_tensor("node_type", node_type, 1)
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
        if count < 0:
            raise ValueError(f"Graph: num_node_types must not be negative, got {count}")
        return count

    def _current_versions(self) -> tuple[int, ...]:
        tensors = (self.edge_index, self.edge_type, self._node_type)
        # Inference tensors track no version; they cannot be watched.
        return tuple(
            0 if tensor is None or tensor.is_inference() else tensor._version for tensor in tensors
        )

    @classmethod
    def from_pyg(
        cls, data: Any, *, num_relations: int | None = None, sampled: bool | None = None
    ) -> Graph:
        """The graph of a ``torch_geometric.data.HeteroData`` or ``Data``, or of a loader's batch.

        Parameters
        ----------
        data : HeteroData or Data
            Of the first, ``node_types``, ``edge_types``, ``data[node_type].num_nodes`` and
            ``data[edge_type].edge_index`` are read; of the second, ``edge_index``, ``edge_type``
            and ``num_nodes``. Batches of ``NeighborLoader`` are one of both.
        num_relations : int, optional
            Of a ``Data``, as for ``Graph``; a batch need not hold an edge of the last relation. A
            ``HeteroData`` has as many as edge types.
        sampled : bool, optional
            As for ``Graph``. Default: whether the data is a batch of one of PyG's loaders.

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
            If there is no node type, a count or the edges' types are missing, the number of
            relations is another one, or the edges of two relations are on two devices.
        IndexError
            If an id is outside its own type's nodes.
        """
        if not hasattr(data, "node_types"):
            edge_type = getattr(data, "edge_type", None)
            if edge_type is None or getattr(data, "edge_index", None) is None:
                raise ValueError("Graph.from_pyg: the data has no edge_index with an edge_type")
            return cls(
                data.edge_index, edge_type, known_count(data.num_nodes, "the data"), num_relations,
                sampled=is_sample(data) if sampled is None else sampled,
            )  # fmt: skip
        found = hetero_edges(data, num_relations)
        graph = object.__new__(cls)
        graph._build(
            found.edge_index, found.edge_type, found.node_type.shape[0], len(found.relations),
            found.node_type, len(found.names), is_sample(data) if sampled is None else sampled,
            ranges=[found.own_type], types_ascend=True,
        )  # fmt: skip
        graph.node_type_names, graph.relation_names = found.names, found.relations
        graph.node_type_counts = found.counts
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

    @property
    def sampled(self) -> bool:
        """Whether the graph is one of many that are each used for a step or so."""
        return self._plan.sampled

    def recipe(self) -> Recipe:
        """What programs that ran on this graph derived from it; for ``prepare``."""
        return self._plan.recipe()

    def prepare(self, recipe: Recipe) -> Graph:
        """Derive now what programs will need, rather than when they first run.

        Parameters
        ----------
        recipe : Recipe
            Of a graph that the same programs ran on.

        Returns
        -------
        Graph
            This one.
        """
        self.plan().prepare(recipe)
        return self

    def tensors(self) -> list[Tensor]:
        """Every tensor that the graph holds, derived ones included."""
        own = [self.edge_index, self.edge_type, *self._plan.tensors()]
        return own if self._node_type is None else [*own, self._node_type]

    def to(self, device: torch.device | str | int, *, non_blocking: bool = False) -> Graph:
        """The graph on another device, with all that was derived from it.

        Parameters
        ----------
        device : torch.device, str or int
        non_blocking : bool
            As for ``Tensor.to``.

        Returns
        -------
        Graph
            This one where it is there already. Nothing is sorted or checked again, and no device
            is asked for anything.
        """
        device = torch.empty(0, device=device).device  # with its number
        if device == self.device:
            return self
        plan = self.plan().to(device, non_blocking)
        made = object.__new__(type(self))
        vars(made).update(vars(self))
        made.edge_index = self.edge_index.to(device, non_blocking=non_blocking)
        made.edge_type = self.edge_type.to(device, non_blocking=non_blocking)
        if self._node_type is not None:
            made._node_type = self._node_type.to(device, non_blocking=non_blocking)
        made._plan, made._versions = plan, made._current_versions()
        made.handle = handle_of(plan)
        return made

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
