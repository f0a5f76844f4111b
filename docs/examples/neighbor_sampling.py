# SPDX-License-Identifier: Apache-2.0
"""Batches of a relational graph from ``pytorch_direct.NeighborLoader``, as a block for each layer.

The loader samples, and fetches what belongs to nodes; here its batches are cut into what each layer
computes. Works without PyG.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

__all__ = ["Block", "Sample", "Sampler", "blocks_of"]


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
        In-edges drawn for a node without replacement, one number a hop, the seeds' hop first. A
        node with fewer in-edges keeps all.
    seed : int
        What random numbers are a function of.
    """

    def __init__(
        self,
        edge_index: torch.Tensor,
        edge_type: torch.Tensor,
        num_nodes: int,
        fanouts: tuple[int, ...],
        seed: int,
    ) -> None:
        import pytorch_direct

        self._graph = pytorch_direct.Graph.from_edge_index(edge_index, num_nodes)
        self._edge_type, self._fanouts, self._seed = edge_type, list(fanouts), seed

    def loader(self, attributes: dict[str, torch.Tensor] | None = None, **options: Any) -> Any:
        """Return a ``NeighborLoader`` whose batches have edge types and what else is given.

        Parameters
        ----------
        attributes : dict
            Tensors with a row a node, which the loader fetches.
        **options
            Its other arguments: ``input_nodes``, ``batch_size``, ``shuffle``, ``device``, ...
        """
        from pytorch_direct import NeighborLoader

        data = ({"edge_type": self._edge_type, **(attributes or {})}, self._graph)
        return NeighborLoader(data, self._fanouts, seed=self._seed, **options)

    def sample(self, seeds: torch.Tensor) -> Sample:
        """Return the surroundings of `seeds`, int64 [batch] without doubles."""
        batch = self.loader(input_nodes=seeds, batch_size=len(seeds), device="cpu", depth=0)
        return blocks_of(next(iter(batch)))


def blocks_of(batch: Any) -> Sample:
    """Cut a loader's batch into blocks, in the order of the layers: the outermost hop first."""
    blocks = []
    edges = 0
    nodes = batch.num_sampled_nodes[0]
    for more_nodes, more_edges in zip(
        batch.num_sampled_nodes[1:], batch.num_sampled_edges, strict=True
    ):
        reached, nodes, edges = nodes, nodes + more_nodes, edges + more_edges
        kinds, order = torch.sort(batch.edge_type[:edges], stable=True)
        blocks.append(Block(batch.edge_index[:, :edges][:, order], kinds, nodes, reached))
    return Sample(batch.n_id, tuple(reversed(blocks)))
