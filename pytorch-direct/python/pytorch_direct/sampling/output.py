# SPDX-License-Identifier: Apache-2.0
"""What a sampler returns, with the names and the meaning that PyG gives them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from pytorch_direct.graph.graph import EdgeType

__all__ = ["HeteroSamplerOutput", "SamplerOutput"]


@dataclass
class SamplerOutput:
    """A sampled subgraph of a homogeneous graph. All tensors are int64, on one device.

    Attributes
    ----------
    node : torch.Tensor
        Ids of nodes: the seeds as given, then new nodes in order of first occurrence, hop by hop.
    row, col : torch.Tensor
        For each sampled edge the places in `node` of its source and of its destination.
    edge : torch.Tensor or None
        Ids of the edges; None if they were not asked for.
    batch : torch.Tensor or None
        With disjoint subgraphs: the number of the seed that each node was reached from.
    num_sampled_nodes : list of int or None
        Seeds, then the new nodes of each hop.
    num_sampled_edges : list of int or None
        Edges of each hop.
    orig_row, orig_col : torch.Tensor or None
        Sampled edges before they were made bidirectional.
    metadata : tuple or None
        ``(input_id, seed_time)`` for nodes; for links ``(input_id, edge_label_index, edge_label,
        time)``, or with triplets ``(input_id, src_index, dst_pos_index, dst_neg_index, time)``.
    """

    node: torch.Tensor
    row: torch.Tensor
    col: torch.Tensor
    edge: torch.Tensor | None
    batch: torch.Tensor | None = None
    num_sampled_nodes: list[int] | None = None
    num_sampled_edges: list[int] | None = None
    orig_row: torch.Tensor | None = None
    orig_col: torch.Tensor | None = None
    metadata: tuple[Any, ...] | None = None


@dataclass
class HeteroSamplerOutput:
    """A sampled subgraph of a heterogeneous graph: `SamplerOutput` with dictionaries by type.

    Every type of the graph is in them, also where nothing was sampled.
    """

    node: dict[str, torch.Tensor]
    row: dict[EdgeType, torch.Tensor]
    col: dict[EdgeType, torch.Tensor]
    edge: dict[EdgeType, torch.Tensor] | None
    batch: dict[str, torch.Tensor] | None = None
    num_sampled_nodes: dict[str, list[int]] | None = None
    num_sampled_edges: dict[EdgeType, list[int]] | None = None
    orig_row: dict[EdgeType, torch.Tensor] | None = None
    orig_col: dict[EdgeType, torch.Tensor] | None = None
    metadata: tuple[Any, ...] | None = None
