# SPDX-License-Identifier: Apache-2.0
"""``Graph``: one or several edge types, compressed by destination, on the host or on a GPU."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

import torch

from pytorch_direct.graph.build import as_times, compress, take_compressed
from pytorch_direct.graph.device import as_device
from pytorch_direct.graph.relation import Relation
from pytorch_direct.tensor.unified_tensor import UnifiedTensor, unified

__all__ = ["EdgeType", "Graph"]

EdgeType = tuple[str, str, str]

#: Names of the only types of a homogeneous graph.
NODE = "node"
EDGE: EdgeType = (NODE, "to", NODE)


class Graph:
    """A graph to sample from: for each node, its in-edges side by side.

    Made by :meth:`from_edge_index`, :meth:`from_csc` or :meth:`from_pyg`; never changed afterwards.
    Offsets have 64 bits, so more than 2^31 edges are normal. A heterogeneous graph has types of
    nodes and of edges ``(source type, relation, destination type)``; arguments are dictionaries by
    type then.

    Attributes
    ----------
    is_hetero : bool
        Whether it was made from dictionaries.
    node_types : tuple of str
        Types of nodes; one of a homogeneous graph.
    edge_types : tuple of EdgeType
        Types of edges, in the order in which sampling visits them.
    num_nodes : dict of str to int
        Nodes of each type.
    relations : dict of EdgeType to Relation
        The arrays.
    node_time : dict of str to torch.Tensor
        int64, of types that have times.
    """

    def __init__(
        self,
        relations: Mapping[EdgeType, Relation],
        num_nodes: Mapping[str, int],
        node_time: Mapping[str, torch.Tensor],
        *,
        is_hetero: bool,
    ) -> None:
        self.is_hetero = is_hetero
        self.relations = dict(relations)
        self.num_nodes = dict(num_nodes)
        self.node_time = dict(node_time)
        self.node_types = tuple(self.num_nodes)
        self.edge_types = tuple(self.relations)

    @classmethod
    def from_edge_index(
        cls,
        edge_index: Any,
        num_nodes: Any = None,
        *,
        edge_weight: Any = None,
        edge_time: Any = None,
        node_time: Any = None,
    ) -> Graph:
        """Compress lists of edges; an edge's id is its place in its list.

        Parameters
        ----------
        edge_index : tensor, numpy array, or dict by edge type of them
            int32 or int64 of shape ``[2, edges]``: sources and destinations.
        num_nodes : int, or dict by node type of int
            None: one more than the largest id.
        edge_weight : array, or dict by edge type; optional
            Real numbers of shape ``[edges]``, not negative, for sampling in proportion to them.
        edge_time : array of integers, or dict by edge type; optional
            When each edge came to be.
        node_time : array of integers, or dict by node type; optional
            When each node came to be. Not together with `edge_time`.

        Returns
        -------
        Graph
            On the CPU. Sources are kept as int32 where they fit.

        Raises
        ------
        TypeError, ValueError
            An array has the wrong dtype or shape, an id is out of range, a weight is negative or
            not finite; the text names it.
        """
        is_hetero = isinstance(edge_index, Mapping)
        lists = _by_edge_type(edge_index, "edge_index", is_hetero)
        sizes = _sizes(num_nodes, is_hetero, {kind: _largest(e) for kind, e in lists.items()})
        times = _node_times(node_time, is_hetero, sizes)
        _one_time(times, edge_time)
        weights = _by_edge_type(edge_weight, "edge_weight", is_hetero, lists)
        edge_times = _by_edge_type(edge_time, "edge_time", is_hetero, lists)
        relations = {
            kind: compress(
                edges,
                sizes[kind[0]],
                sizes[kind[2]],
                what=_name(kind, is_hetero),
                edge_weight=weights.get(kind),
                edge_time=edge_times.get(kind),
                node_time=times.get(kind[0]),
            )
            for kind, edges in lists.items()
        }
        return cls(relations, sizes, times, is_hetero=is_hetero)

    @classmethod
    def from_csc(
        cls,
        indptr: Any,
        indices: Any,
        num_nodes: Any = None,
        *,
        edge_ids: Any = None,
        edge_weight: Any = None,
        edge_time: Any = None,
        node_time: Any = None,
        check: bool = True,
    ) -> Graph:
        """Use arrays that are compressed by destination already, without a copy.

        Parameters
        ----------
        indptr : tensor, numpy array, or dict by edge type of them
            int64 of shape ``[destinations + 1]``.
        indices : the same
            int32 or int64 of shape ``[edges]``: sources.
        num_nodes : int, or dict by node type of int
            None: as many as `indptr` has destinations (a homogeneous graph), or what the edge types
            into a type say; types without in-edges must be given.
        edge_ids, edge_weight, edge_time : arrays or dicts by edge type; optional
            In the order of `indices`. Without `edge_ids` an edge's id is its position there.
        node_time : array or dict by node type; optional
            With a time, neighbourhoods must be in its order.
        check : bool
            Read all arrays once and raise for what is out of range. Without it such a graph crashes
            the process when sampled.

        Returns
        -------
        Graph
            On the arrays' device.

        Raises
        ------
        TypeError, ValueError
            As in :meth:`from_edge_index`, and for offsets or times that fall.
        """
        is_hetero = isinstance(indptr, Mapping)
        starts = _by_edge_type(indptr, "indptr", is_hetero)
        sources = _by_edge_type(indices, "indices", is_hetero, starts)
        if missing := set(starts) - set(sources):
            raise ValueError(f"indices lacks the edge types {sorted(missing)} that indptr has")
        counts: dict[EdgeType, tuple[int, int]] = {}
        for kind, start in starts.items():
            if not hasattr(start, "shape") or len(start.shape) != 1 or start.shape[0] < 1:
                raise ValueError(
                    f"{_name(kind, is_hetero)}: indptr must be an array of shape [nodes + 1]"
                )
            counts[kind] = (0, int(start.shape[0]) - 1)
        sizes = _sizes(num_nodes, is_hetero, counts)
        for kind, (_, destinations) in counts.items():
            if sizes[kind[2]] != destinations:
                raise ValueError(
                    f"{_name(kind, is_hetero)}: indptr has {destinations} destinations, but there "
                    f"are {sizes[kind[2]]} nodes"
                )
        times = _node_times(node_time, is_hetero, sizes)
        _one_time(times, edge_time)
        ids = _by_edge_type(edge_ids, "edge_ids", is_hetero, starts)
        weights = _by_edge_type(edge_weight, "edge_weight", is_hetero, starts)
        edge_times = _by_edge_type(edge_time, "edge_time", is_hetero, starts)
        relations = {
            kind: take_compressed(
                start,
                sources[kind],
                sizes[kind[0]],
                what=_name(kind, is_hetero),
                edge_ids=ids.get(kind),
                edge_weight=weights.get(kind),
                edge_time=edge_times.get(kind),
                node_time=times.get(kind[0]),
                check=check,
            )
            for kind, start in starts.items()
        }
        graph = cls(relations, sizes, times, is_hetero=is_hetero)
        device = graph.device
        graph.node_time = {kind: time.to(device) for kind, time in times.items()}
        return graph

    @classmethod
    def from_pyg(
        cls, data: Any, *, weight_attr: str | None = None, time_attr: str | None = None
    ) -> Graph:
        """Read the edges of a ``torch_geometric`` ``Data`` or ``HeteroData``.

        Parameters
        ----------
        data : Data or HeteroData
            With ``edge_index``; ``adj_t`` is refused.
        weight_attr : str, optional
            Name of the edges' weights.
        time_attr : str, optional
            Name of the times of nodes or of edges.

        Returns
        -------
        Graph
            On the CPU; edge ids are places in ``edge_index``.

        Raises
        ------
        TypeError
            `data` is neither.
        ValueError
            It has no ``edge_index``, or not the attribute that is named.
        """
        from pytorch_direct.graph.pyg import read

        return cls.from_edge_index(**read(data, weight_attr, time_attr))

    @property
    def device(self) -> torch.device:
        """Where the arrays are; ``cpu`` for unified ones."""
        for tensor in self._tensors():
            return tensor.device
        return torch.device("cpu")

    @property
    def is_unified(self) -> bool:
        """Whether GPUs can read the arrays in host memory."""
        tensors = self._tensors()
        return bool(tensors) and all(isinstance(tensor, UnifiedTensor) for tensor in tensors)

    @property
    def num_edges(self) -> dict[EdgeType, int]:
        """Edges of each type."""
        return {kind: relation.num_edges for kind, relation in self.relations.items()}

    @property
    def has_weights(self) -> bool:
        """Whether any edge type has weights."""
        return any(r.weight_sums is not None for r in self.relations.values())

    @property
    def has_times(self) -> bool:
        """Whether any node or edge type has times."""
        return bool(self.node_time) or any(r.edge_time is not None for r in self.relations.values())

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return sum(tensor.numel() * tensor.element_size() for tensor in self._tensors())

    def to(self, device: torch.device | str | int) -> Graph:
        """Return the graph with its arrays copied to a device; itself if they are there."""
        where = as_device(device)
        if self.device == where and not self.is_unified:
            return self
        return self._map(lambda tensor: _plain(tensor).to(where))

    def unified(self) -> Graph:
        """Return the graph over the same host memory, registered so that GPUs read it in place.

        Raises
        ------
        TypeError
            The arrays are on a GPU.
        """
        return self._map(unified)

    def __repr__(self) -> str:
        where = f"{self.device}, unified" if self.is_unified else str(self.device)
        if not self.is_hetero:
            return (
                f"Graph(num_nodes={self.num_nodes[NODE]}, num_edges={self.num_edges[EDGE]}, "
                f"device={where})"
            )
        return f"Graph(num_nodes={self.num_nodes}, num_edges={self.num_edges}, device={where})"

    def _tensors(self) -> list[torch.Tensor]:
        arrays = [tensor for relation in self.relations.values() for tensor in relation.tensors()]
        return arrays + list(self.node_time.values())

    def _map(self, function: Callable[[torch.Tensor], torch.Tensor]) -> Graph:
        relations = {kind: relation.map(function) for kind, relation in self.relations.items()}
        times = {kind: function(time) for kind, time in self.node_time.items()}
        return Graph(relations, self.num_nodes, times, is_hetero=self.is_hetero)


def _plain(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.as_subclass(torch.Tensor) if isinstance(tensor, UnifiedTensor) else tensor


def _name(kind: EdgeType, is_hetero: bool) -> str:
    return f"edge type {kind}" if is_hetero else "graph"


def _by_edge_type(
    value: Any, what: str, is_hetero: bool, known: Mapping[EdgeType, Any] | None = None
) -> dict[EdgeType, Any]:
    if value is None:
        return {}
    if isinstance(value, Mapping) != is_hetero:
        raise TypeError(
            f"{what} must {'' if is_hetero else 'not '}be a dict: a graph is heterogeneous in all "
            "of its arguments or in none"
        )
    if not is_hetero:
        return {EDGE: value}
    found = {}
    for kind, array in value.items():
        if not (
            isinstance(kind, tuple) and len(kind) == 3 and all(isinstance(k, str) for k in kind)
        ):
            raise TypeError(
                f"{what}: an edge type is a tuple (source type, relation, destination type), not "
                f"{kind!r}"
            )
        if known is not None and kind not in known:
            raise ValueError(f"{what}: there is no edge type {kind}; there are {sorted(known)}")
        found[kind] = array
    return found


def _largest(edge_index: Any) -> tuple[int, int]:
    """Return how many sources and destinations a list needs at least."""
    if not hasattr(edge_index, "shape") or len(edge_index.shape) != 2 or edge_index.shape[0] != 2:
        # `compress` says what is wrong with it.
        return 0, 0
    if edge_index.shape[1] == 0:
        return 0, 0
    return int(edge_index[0].max()) + 1, int(edge_index[1].max()) + 1


def _sizes(
    num_nodes: Any, is_hetero: bool, least: Mapping[EdgeType, tuple[int, int]]
) -> dict[str, int]:
    if num_nodes is not None and isinstance(num_nodes, Mapping) != is_hetero:
        raise TypeError(f"num_nodes must be {'a dict by node type' if is_hetero else 'an int'}")
    sizes: dict[str, int] = {}
    if isinstance(num_nodes, Mapping):
        sizes = {kind: _size(size, kind) for kind, size in num_nodes.items()}
    elif num_nodes is not None:
        sizes = {NODE: _size(num_nodes, NODE)}
    given = set(sizes)
    for (source, _, destination), (sources, destinations) in least.items():
        for kind, size in ((source, sources), (destination, destinations)):
            if kind not in given:
                sizes[kind] = max(sizes.get(kind, 0), size)
    return sizes


def _size(value: Any, kind: str) -> int:
    size = operator.index(value)
    if not 0 <= size < 2**62:
        raise ValueError(f"num_nodes of {kind!r} must be at least 0 and below 2^62, not {size}")
    return size


def _node_times(value: Any, is_hetero: bool, sizes: Mapping[str, int]) -> dict[str, torch.Tensor]:
    if value is None:
        return {}
    if isinstance(value, Mapping) != is_hetero:
        raise TypeError(f"node_time must be {'a dict by node type' if is_hetero else 'an array'}")
    times = value if is_hetero else {NODE: value}
    for kind in times:
        if kind not in sizes:
            raise ValueError(
                f"node_time: there is no node type {kind!r}; there are {sorted(sizes)}"
            )
    return {
        kind: as_times(time, f"node_time of {kind!r}", sizes[kind]) for kind, time in times.items()
    }


def _one_time(node_time: Mapping[str, torch.Tensor], edge_time: Any) -> None:
    if node_time and edge_time is not None:
        raise ValueError("give node_time or edge_time, not both: one order says what is past")
