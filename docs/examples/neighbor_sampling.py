# SPDX-License-Identifier: Apache-2.0
"""Samples the two-hop surroundings of a batch of nodes; not a data loader, and not fast.

A seeded sampler of a few lines, so that the plain run and the other run of the demo see the very
same batches. It works on CPU tensors.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

__all__ = ["Block", "Sample", "Sampler"]


@dataclass(frozen=True)
class Block:
    """The edges of one layer, in local node numbers.

    Attributes
    ----------
    edge_index : torch.Tensor
        int64 [2, num_edges]; sources below ``num_nodes``, destinations below ``num_outputs``.
    edge_type : torch.Tensor
        int64 [num_edges], ascending.
    num_nodes, num_outputs : int
        Nodes that the layer reads, and how many of them (the first) later layers need.
    """

    edge_index: torch.Tensor
    edge_type: torch.Tensor
    num_nodes: int
    num_outputs: int

    def to(self, device: torch.device) -> Block:
        """Return the block with its tensors on `device`."""
        edge_index, edge_type = self.edge_index.to(device), self.edge_type.to(device)
        return Block(edge_index, edge_type, self.num_nodes, self.num_outputs)


@dataclass(frozen=True)
class Sample:
    """A batch: ``nodes`` (int64, global numbers, the seeds first) and a block a layer."""

    nodes: torch.Tensor
    blocks: tuple[Block, ...]


class Sampler:
    """Draws in-edges of every node that a layer needs, the same for the same seed.

    Parameters
    ----------
    edge_index, edge_type : torch.Tensor
        int64 [2, num_edges] and [num_edges].
    num_nodes : int
        Nodes in the graph.
    fanouts : tuple of int
        In-edges drawn for a node, one number a hop, the seeds' hop first. A node with fewer
        in-edges keeps all; another's are drawn with replacement and doubles dropped.
    seed : int
        Start of the random numbers.
    """

    def __init__(
        self,
        edge_index: torch.Tensor,
        edge_type: torch.Tensor,
        num_nodes: int,
        fanouts: tuple[int, ...],
        seed: int,
    ) -> None:
        order = torch.argsort(edge_index[1], stable=True)
        self._source = edge_index[0, order]
        self._type = edge_type[order]
        self._degree = torch.bincount(edge_index[1], minlength=num_nodes)
        self._start = self._degree.cumsum(0) - self._degree
        self._local = torch.full((num_nodes,), -1, dtype=torch.int64)
        self._fanouts = fanouts
        self._generator = torch.Generator().manual_seed(seed)

    def sample(self, seeds: torch.Tensor) -> Sample:
        """Return the surroundings of `seeds`, int64 [batch] without doubles.

        The blocks come in the order of the layers: the outermost hop first.
        """
        nodes = seeds
        self._local[nodes] = torch.arange(len(nodes))
        edge_ids = torch.empty(0, dtype=torch.int64)
        destinations = torch.empty(0, dtype=torch.int64)
        first = 0
        blocks = []
        for fanout in self._fanouts:
            reached = len(nodes)
            new_ids, new_destinations = self._draw(nodes[first:], fanout)
            edge_ids = torch.cat([edge_ids, new_ids])
            destinations = torch.cat([destinations, new_destinations])
            sources = self._source[new_ids]
            unseen = torch.unique(sources[self._local[sources] < 0])
            self._local[unseen] = torch.arange(reached, reached + len(unseen))
            nodes = torch.cat([nodes, unseen])
            order = torch.argsort(self._type[edge_ids], stable=True)
            ordered = edge_ids[order]
            ends = torch.stack([self._source[ordered], destinations[order]])
            blocks.append(Block(self._local[ends], self._type[ordered], len(nodes), reached))
            first = reached
        self._local[nodes] = -1
        return Sample(nodes, tuple(reversed(blocks)))

    def _draw(self, nodes: torch.Tensor, fanout: int) -> tuple[torch.Tensor, torch.Tensor]:
        degree = self._degree[nodes, None]
        drawn = torch.rand(len(nodes), fanout, generator=self._generator, dtype=torch.float64)
        every = torch.arange(fanout).expand(len(nodes), fanout)
        few = degree <= fanout
        position = torch.where(few, every, (drawn * degree).long())
        kept = (position < degree) & (few | (degree > 0))
        edge_ids = torch.unique((self._start[nodes, None] + position)[kept])
        destinations = torch.searchsorted(self._start, edge_ids, right=True) - 1
        return edge_ids, destinations
