# SPDX-License-Identifier: Apache-2.0
"""One batch as the CPU and the GPU carry it out alike: types by number, seeds, hops."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from pytorch_direct import _native
from pytorch_direct.graph.graph import EdgeType, Graph
from pytorch_direct.graph.relation import Address

__all__ = ["Counts", "Plan", "Sampled", "Step"]


@dataclass(frozen=True)
class Step:
    """One hop along one edge type."""

    hop: int
    relation: int
    source: int
    destination: int
    fanout: int


@dataclass(frozen=True)
class Plan:
    """What stays the same from batch to batch."""

    graph: Graph
    fanouts: dict[EdgeType, tuple[int, ...]]
    replace: bool
    last: bool
    disjoint: bool
    weighted: bool
    temporal: bool
    subgraph_type: str
    return_edge_ids: bool
    seed: int

    @property
    def hops(self) -> int:
        """Number of hops."""
        return max((len(numbers) for numbers in self.fanouts.values()), default=0)

    @property
    def edge_ids(self) -> bool:
        """Whether the sampled edges' ids are read."""
        return self.return_edge_ids and self.subgraph_type != "induced"

    def steps(self, hop: int) -> Iterator[Step]:
        """Yield what a hop does, edge type after edge type."""
        number = {kind: i for i, kind in enumerate(self.graph.node_types)}
        for relation, kind in enumerate(self.graph.edge_types):
            fanout = self.fanouts[kind][hop]
            if fanout != 0:
                yield Step(hop, relation, number[kind[0]], number[kind[2]], fanout)

    def rule(self, step: Step, batch: int) -> _native.SamplingRule:
        """Return the rule of a step with its random numbers."""
        return _native.SamplingRule(
            step.fanout, self.replace, self.last, self.seed, batch, step.hop, step.relation
        )

    def relations(self, address: Address) -> list[_native.Relation]:
        """Return all edge types as kernels on a device read them."""
        found = []
        for kind, relation in self.graph.relations.items():
            source_time = self.graph.node_time.get(kind[0]) if self.temporal else None
            found.append(
                relation.native(
                    address,
                    weighted=self.weighted and relation.weight_sums is not None,
                    edge_ids=self.edge_ids,
                    edge_time=self.temporal,
                    source_time=source_time,
                )
            )
        return found


@dataclass(frozen=True)
class Counts:
    """Sizes at the end of each hop, by number of type."""

    nodes: list[list[int]]  #: The seeds, then after each hop.
    edges: list[list[int]]  #: 0, then after each hop.


@dataclass(frozen=True)
class Sampled:
    """The tensors of a batch by number of type."""

    node: list[torch.Tensor]
    batch: list[torch.Tensor] | None
    row: list[torch.Tensor]
    col: list[torch.Tensor]
    edge: list[torch.Tensor]
    counts: Counts
