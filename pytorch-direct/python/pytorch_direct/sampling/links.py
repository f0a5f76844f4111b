# SPDX-License-Identifier: Apache-2.0
"""Turns links and their negatives into seeds, and says where they are in the sample."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch

from pytorch_direct.graph.build import as_times
from pytorch_direct.graph.graph import NODE, EdgeType, Graph
from pytorch_direct.sampling.negative import NegativeSampling, draw_nodes

__all__ = ["Links", "links_as_seeds"]

_SOURCES, _DESTINATIONS = 1, 2


@dataclass(frozen=True)
class Links:
    """Seeds of a link task."""

    seeds: Any
    times: Any
    metadata: tuple[Any, ...]
    link_of: torch.Tensor | None  #: With disjoint subgraphs: the link of each seed.
    device: torch.device  #: Where the links were given.


def links_as_seeds(
    graph: Graph,
    edge_label_index: torch.Tensor | tuple[EdgeType, torch.Tensor],
    edge_label: torch.Tensor | None,
    edge_label_time: torch.Tensor | None,
    neg_sampling: NegativeSampling | None,
    *,
    seed: int,
    batch: int,
    disjoint: bool,
    temporal: bool,
    input_id: torch.Tensor | None,
) -> Links:
    """Draw negatives and lay the ends of all links out as seeds, as PyG does.

    Raises
    ------
    TypeError, ValueError
        An argument has another type or shape than it must have.
    """
    kind, index = _parts(graph, edge_label_index)
    source_type, _, destination_type = kind
    device = index.device
    index = index.to("cpu", torch.int64)
    src, dst = index[0], index[1]
    links = int(src.shape[0])
    if temporal and edge_label_time is None:
        raise ValueError("a temporal sampler needs edge_label_time, one integer a link")
    time = None
    if edge_label_time is not None:
        if not temporal:
            raise ValueError("edge_label_time is given, but the sampler is not temporal")
        time = as_times(edge_label_time, "edge_label_time", links).cpu()
    if edge_label is not None and int(edge_label.shape[0]) != links:
        raise ValueError(f"edge_label has {edge_label.shape[0]} labels for {links} links")
    src_time = dst_time = time
    negatives = 0
    if neg_sampling is not None:
        negatives = neg_sampling.count(links)
        per_link = math.ceil(neg_sampling.amount)
        later = None if time is None else time.repeat(per_link)[:negatives]
        draw = _Draw(graph, seed, batch, negatives, later)
        if neg_sampling.is_triplet:
            if edge_label is not None:
                raise ValueError("edge_label does not go with triplets, which have no labels")
        else:
            src = torch.cat([src, draw(source_type, neg_sampling.src_sums, "src_weight")])
            src_time = None if time is None or later is None else torch.cat([time, later])
            label = torch.ones(links) if edge_label is None else edge_label
            edge_label = torch.cat([label, label.new_zeros((negatives, *label.shape[1:]))])
        dst = torch.cat([dst, draw(destination_type, neg_sampling.dst_sums, "dst_weight")])
        dst_time = None if time is None or later is None else torch.cat([time, later])
    seeds, src_at, dst_at = _lay_out(source_type, destination_type, src, dst, disjoint)
    times = None
    if src_time is not None and dst_time is not None:
        times = _lay_out(source_type, destination_type, src_time, dst_time, True)[0]
    link_of = None
    if disjoint:
        ends = {source_type: [src], destination_type: [dst]}
        if source_type == destination_type:
            ends = {source_type: [src, dst]}
        # Subgraphs are numbered in the graph's order of types.
        parts = [part for name in graph.node_types for part in ends.get(name, [])]
        link_of = torch.cat([torch.arange(part.shape[0]) % max(links, 1) for part in parts])
    metadata: tuple[Any, ...]
    if neg_sampling is not None and neg_sampling.is_triplet:
        dst_neg = dst_at[links:]
        # A link's negatives are `links` apart, as PyG lays them out.
        if disjoint:
            dst_neg = dst_neg.view(-1, links).t() if links else dst_neg.view(0, 1)
        dst_neg = dst_neg.reshape(links, -1).squeeze(-1) if links else dst_neg.view(0)
        metadata = (input_id, src_at, dst_at[:links], dst_neg, src_time)
    else:
        metadata = (input_id, torch.stack([src_at, dst_at]), edge_label, src_time)
    if not graph.is_hetero:
        own = None if times is None else times[NODE]
        return Links(seeds[NODE], own, metadata, link_of, device)
    return Links(seeds, times, metadata, link_of, device)


class _Draw:
    """Draws negatives of both ends, each from random numbers of its own."""

    def __init__(
        self, graph: Graph, seed: int, batch: int, count: int, before: torch.Tensor | None
    ) -> None:
        self._graph, self._seed, self._batch = graph, seed, batch
        self._count, self._before = count, before

    def __call__(self, kind: str, sums: torch.Tensor | None, what: str) -> torch.Tensor:
        time = self._graph.node_time.get(kind) if self._before is not None else None
        return draw_nodes(
            self._count,
            self._graph.num_nodes[kind],
            sums,
            what=what,
            seed=self._seed,
            batch=self._batch,
            purpose=_SOURCES if what == "src_weight" else _DESTINATIONS,
            before=self._before,
            node_time=None if time is None else time.cpu(),
        )


def _parts(
    graph: Graph, value: torch.Tensor | tuple[EdgeType, torch.Tensor]
) -> tuple[EdgeType, torch.Tensor]:
    if isinstance(value, tuple) != graph.is_hetero:
        raise TypeError(
            "edge_label_index must be a tensor for a homogeneous graph and a pair (edge type, "
            "tensor) for a heterogeneous one"
        )
    kind, index = value if isinstance(value, tuple) else ((NODE, "to", NODE), value)
    if kind[0] not in graph.node_types or kind[2] not in graph.node_types:
        raise ValueError(f"edge_label_index: there are no node types {kind[0]!r} and {kind[2]!r}")
    if not isinstance(index, torch.Tensor) or index.dtype not in (torch.int32, torch.int64):
        raise TypeError("edge_label_index must be a tensor of int32 or int64")
    if index.dim() != 2 or index.shape[0] != 2:
        raise ValueError(f"edge_label_index must have shape [2, links], not {list(index.shape)}")
    for end, name in ((0, kind[0]), (1, kind[2])):
        nodes = graph.num_nodes[name]
        bad = (index[end] < 0) | (index[end] >= nodes)
        if bool(bad.any()):
            position = int(bad.nonzero()[0])
            raise IndexError(
                f"edge_label_index[{end}]: node {int(index[end][position])} at position "
                f"{position} is not in [0, {nodes})"
            )
    return kind, index


def _lay_out(
    source_type: str,
    destination_type: str,
    src: torch.Tensor,
    dst: torch.Tensor,
    disjoint: bool,
) -> tuple[dict[str, torch.Tensor], torch.Tensor, torch.Tensor]:
    """Return seeds by type and where each end is among them."""
    if source_type != destination_type:
        if disjoint:
            both = {source_type: src, destination_type: dst}
            return both, torch.arange(src.shape[0]), torch.arange(dst.shape[0])
        src, src_at = torch.unique(src, return_inverse=True)
        dst, dst_at = torch.unique(dst, return_inverse=True)
        return {source_type: src, destination_type: dst}, src_at, dst_at
    seeds = torch.cat([src, dst])
    at = torch.arange(seeds.shape[0])
    if not disjoint:
        seeds, at = torch.unique(seeds, return_inverse=True)
    return {source_type: seeds}, at[: src.shape[0]], at[src.shape[0] :]
