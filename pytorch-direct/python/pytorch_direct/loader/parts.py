# SPDX-License-Identifier: Apache-2.0
"""A sample with one or many types, read alike."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from pytorch_direct.graph.graph import EDGE, NODE
from pytorch_direct.sampling.output import HeteroSamplerOutput, SamplerOutput

__all__ = ["Parts", "Sampled", "parts_of"]

Sampled = SamplerOutput | HeteroSamplerOutput


@dataclass(frozen=True)
class Parts:
    """What was sampled, by type; a dict lacks types for which there is nothing to say."""

    nodes: dict[Any, torch.Tensor]
    rows: dict[Any, torch.Tensor]
    cols: dict[Any, torch.Tensor]
    edges: dict[Any, torch.Tensor]
    batch: dict[Any, torch.Tensor]
    node_counts: dict[Any, list[int]]
    edge_counts: dict[Any, list[int]]


def parts_of(out: Sampled) -> Parts:
    """Return the parts of a sample."""

    def by_type(value: Any, kind: Any) -> dict[Any, Any]:
        if value is None:
            return {}
        return value if isinstance(out, HeteroSamplerOutput) else {kind: value}

    return Parts(
        by_type(out.node, NODE),
        by_type(out.row, EDGE),
        by_type(out.col, EDGE),
        by_type(out.edge, EDGE),
        by_type(out.batch, NODE),
        by_type(out.num_sampled_nodes, NODE),
        by_type(out.num_sampled_edges, EDGE),
    )
