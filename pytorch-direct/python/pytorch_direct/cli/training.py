# SPDX-License-Identifier: Apache-2.0
"""The graph and the model that the command line trains: GraphSAGE on R-MAT, without PyG.

Not a library of layers: what it is for is to keep a device busy as such training does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from pytorch_direct.graph.graph import Graph
from pytorch_direct.loader.neighbor_loader import NeighborLoader
from pytorch_direct.synthetic.rmat import rmat, rmat_features

__all__ = ["CLASSES", "Problem", "Sage", "Trainer", "Workload"]

CLASSES = 16


@dataclass(frozen=True)
class Workload:
    """Sizes of a training.

    Attributes
    ----------
    nodes, edges, width : int
        Of the graph, and features of a node.
    fanouts : list of int
        By hop; a layer each.
    batch_size, hidden : int
    """

    nodes: int
    edges: int
    width: int
    fanouts: list[int]
    batch_size: int
    hidden: int

    def __str__(self) -> str:
        return (
            f"R-MAT {self.nodes / 1e6:g} M nodes, {self.edges / 1e6:g} M edges, {self.width} "
            f"float32 a node, fan-out {'/'.join(map(str, self.fanouts))}, batch {self.batch_size}"
        )

    def make(self) -> Problem:
        """Make graph and features, in ordinary host memory."""
        edges = rmat(self.nodes, self.edges, seed=1, scramble=True)
        graph = Graph.from_edge_index(edges, self.nodes)
        x = rmat_features(self.nodes, self.width, seed=2)
        return Problem(self, graph, x, x[:, :CLASSES].argmax(1))


@dataclass(frozen=True)
class Problem:
    """A graph, features, and classes that can be told from them."""

    work: Workload
    graph: Graph
    x: torch.Tensor
    y: torch.Tensor

    def loader(self, device: torch.device, **options: Any) -> NeighborLoader:
        """Return a loader over all nodes, shuffled, whose batches are on the device."""
        return NeighborLoader(
            ({"x": self.x, "y": self.y}, self.graph), self.work.fanouts,
            batch_size=self.work.batch_size, shuffle=True, seed=0, device=device, **options,
        )  # fmt: skip

    def trainer(self, device: torch.device) -> Trainer:
        """Return a model that is trained, the same each time."""
        torch.manual_seed(0)
        model = Sage(self.work.width, self.work.hidden, len(self.work.fanouts)).to(device)
        return Trainer(model, torch.optim.Adam(model.parameters(), lr=3e-3))


class Sage(nn.Module):
    """GraphSAGE with means (W. Hamilton, R. Ying, J. Leskovec, NeurIPS 2017, algorithm 1)."""

    def __init__(self, width: int, hidden: int, layers: int) -> None:
        super().__init__()
        inputs = [width, *[hidden] * (layers - 1)]
        outputs = [*[hidden] * (layers - 1), CLASSES]
        pairs = zip(inputs, outputs, strict=True)
        self.layers = nn.ModuleList(nn.Linear(2 * a, b) for a, b in pairs)

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        """Return logits of all nodes, [nodes, CLASSES], for edges [2, edges]."""
        source, destination = edge_index
        ones = torch.ones(len(destination), device=x.device)
        degree = torch.zeros(len(x), device=x.device).index_add_(0, destination, ones)
        degree = degree.clamp_(min=1)[:, None]
        for number, layer in enumerate(self.layers):
            mean = torch.zeros_like(x).index_add_(0, destination, x[source]) / degree
            x = layer(torch.cat([x, mean], 1))
            if number + 1 < len(self.layers):
                x = functional.relu(x)
        return x


@dataclass
class Trainer:
    """A model and its optimizer."""

    model: Sage
    optimizer: torch.optim.Optimizer

    def step(self, batch: Any) -> torch.Tensor:
        """Train on a batch; return its loss, which nothing has waited for."""
        logits = self.model(batch.x, batch.edge_index)[: batch.batch_size]
        loss = functional.cross_entropy(logits, batch.y[: batch.batch_size])
        self.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        return loss.detach()
