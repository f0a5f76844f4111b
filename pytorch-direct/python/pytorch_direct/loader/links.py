# SPDX-License-Identifier: Apache-2.0
"""The links around whose ends a loader samples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from pytorch_direct.graph.build import as_times
from pytorch_direct.graph.graph import EDGE, EdgeType, Graph
from pytorch_direct.loader.seeds import on_host
from pytorch_direct.loader.sources import Source
from pytorch_direct.ops.arguments import first_outside
from pytorch_direct.sampling.negative import NegativeSampling
from pytorch_direct.sampling.neighbor_sampler import NeighborSampler
from pytorch_direct.sampling.pending import PendingSample

__all__ = ["LinkSeeds", "link_seeds", "negatives_of"]


@dataclass(frozen=True)
class LinkSeeds:
    """Links of one edge type; all on the CPU."""

    kind: EdgeType
    is_hetero: bool
    edge_label_index: torch.Tensor
    edge_label: torch.Tensor | None
    edge_label_time: torch.Tensor | None
    input_id: torch.Tensor | None
    neg_sampling: NegativeSampling | None

    @property
    def count(self) -> int:
        """Number of links."""
        return int(self.edge_label_index.shape[1])

    def start(
        self, sampler: NeighborSampler, positions: torch.Tensor, number: int, device: torch.device
    ) -> PendingSample:
        """Begin to sample around the links at some positions."""
        ends: Any = self.edge_label_index[:, positions]
        label, time = self.edge_label, self.edge_label_time
        return sampler.start_links(
            (self.kind, ends) if self.is_hetero else ends,
            edge_label=None if label is None else label[positions],
            edge_label_time=None if time is None else time[positions],
            neg_sampling=self.neg_sampling,
            batch=number,
            device=device,
            input_id=positions if self.input_id is None else self.input_id[positions],
        )

    def describe(self, batch: Any, metadata: tuple[Any, ...]) -> None:
        """Write what belongs to the links into a batch."""
        source = batch[self.kind[0]] if self.is_hetero else batch
        destination = batch[self.kind[2]] if self.is_hetero else batch
        store = batch[self.kind] if self.is_hetero else batch
        store.input_id = metadata[0]
        if self.neg_sampling is not None and self.neg_sampling.is_triplet:
            source.src_index = metadata[1]
            destination.dst_pos_index, destination.dst_neg_index = metadata[2], metadata[3]
            source.seed_time = destination.seed_time = metadata[4]
            # Of the whole graph, if they were among its attributes.
            store.edge_label_index = store.edge_label_time = None
        else:
            store.edge_label_index, store.edge_label = metadata[1], metadata[2]
            store.edge_label_time = metadata[3]


def link_seeds(
    source: Source,
    graph: Graph,
    edge_label_index: Any,
    edge_label: Any,
    edge_label_time: Any,
    input_id: Any,
    neg_sampling: NegativeSampling | None,
) -> LinkSeeds:
    """Check the links of a loader.

    Raises
    ------
    IndexError, TypeError, ValueError
        They are no links between nodes of the graph, or what goes with them does not fit.
    """
    kind, given = _kind(graph, edge_label_index)
    if given is None:
        if kind not in graph.relations:
            raise ValueError(f"edge_label_index: {kind} is no edge type of the graph; give links")
        given = source.edge_index(kind)
    index = on_host(given, "edge_label_index")
    if index.dim() != 2 or index.shape[0] != 2 or index.dtype.is_floating_point:
        raise ValueError(
            f"edge_label_index must hold ids and have shape [2, links], not {index.dtype} of shape "
            f"{list(index.shape)}"
        )
    index = index.to(torch.int64)
    for end, name in ((0, kind[0]), (1, kind[2])):
        position = first_outside(index[end], graph.num_nodes[name])
        if position is not None:
            raise IndexError(
                f"edge_label_index[{end}]: node {int(index[end, position])} at position {position} "
                f"is not in [0, {graph.num_nodes[name]})"
            )
    links = int(index.shape[1])
    if edge_label is not None:
        edge_label = on_host(edge_label, "edge_label")
        if edge_label.dim() < 1 or edge_label.shape[0] != links:
            raise ValueError(f"edge_label has shape {list(edge_label.shape)} for {links} links")
        if neg_sampling is not None and neg_sampling.is_triplet:
            raise ValueError("edge_label does not go with triplets, which have no labels")
        if neg_sampling is not None and links and float(edge_label.min()) == 0:
            # 0 means negative from here on.
            edge_label = edge_label + 1
    if edge_label_time is not None:
        edge_label_time = as_times(
            on_host(edge_label_time, "edge_label_time"), "edge_label_time", links
        )
    if input_id is not None:
        input_id = on_host(input_id, "input_id")
        if tuple(input_id.shape) != (links,):
            raise ValueError(f"input_id has shape {list(input_id.shape)} for {links} links")
    return LinkSeeds(
        kind, graph.is_hetero, index.clone(), edge_label, edge_label_time, input_id, neg_sampling
    )


def _kind(graph: Graph, given: Any) -> tuple[EdgeType, Any]:
    if not graph.is_hetero:
        return EDGE, given
    if isinstance(given, (tuple, list)):
        parts = tuple(given)
        if (
            len(parts) == 2
            and not isinstance(parts[0], str)
            and isinstance(parts[0], (tuple, list))
        ):
            return _canonical(graph, tuple(parts[0])), parts[1]
        if parts and all(isinstance(part, str) for part in parts):
            return _canonical(graph, parts), None
    raise TypeError(
        "edge_label_index of a heterogeneous graph is an edge type or a pair (edge type, links), "
        f"not {type(given).__name__}"
    )


def _canonical(graph: Graph, kind: tuple[Any, ...]) -> EdgeType:
    """Return an edge type of which the relation, or its ends, may have been left out."""
    if len(kind) == 3:
        for end in (kind[0], kind[2]):
            if end not in graph.node_types:
                raise ValueError(
                    f"edge_label_index: there is no node type {end!r}; there are "
                    f"{list(graph.node_types)}"
                )
        return (str(kind[0]), str(kind[1]), str(kind[2]))
    found = [
        known
        for known in graph.edge_types
        if (len(kind) == 2 and (known[0], known[2]) == kind)
        or (len(kind) == 1 and known[1] == kind[0])
    ]
    if len(found) != 1:
        raise ValueError(
            f"edge_label_index: {kind} names {len(found)} edge types of {list(graph.edge_types)}"
        )
    return found[0]


def negatives_of(given: Any, ratio: float | None) -> NegativeSampling | None:
    """Return how negatives are drawn: as given, in PyG's words, or by the older ratio."""
    if ratio:
        return NegativeSampling("binary", ratio)
    if given is None or isinstance(given, NegativeSampling):
        return given
    if isinstance(given, str):
        return NegativeSampling(given)  # type: ignore[arg-type]
    if isinstance(given, dict):
        return NegativeSampling(**given)
    if isinstance(given, (tuple, list)):
        return NegativeSampling(*given)
    if hasattr(given, "mode") and hasattr(given, "amount"):
        mode = getattr(given.mode, "value", given.mode)
        return NegativeSampling(
            mode,
            given.amount,
            getattr(given, "src_weight", None),
            getattr(given, "dst_weight", None),
        )
    raise TypeError(
        f"neg_sampling must be a NegativeSampling, its mode or a dict, not {type(given).__name__}"
    )
