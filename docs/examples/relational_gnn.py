# SPDX-License-Identifier: Apache-2.0
"""Predicts the section of a Debian package from its words and its relations.

The same two-layer relational GNN is built and trained in two modes, on batches that
``pytorch_direct.NeighborLoader`` draws for both:

``plain``
    Each batch is drawn when it is wanted, its rows fetched by ``index_select`` on the CPU and
    copied; layers are a loop over the relations.
``datapath``
    The loader draws and fetches ahead, rows too, by the GPU where there is one; the first layer is
    ``hector.nn.RGCNConv``, the second a function compiled by hector.

Not a library: a program to read from top to bottom.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from neighbor_sampling import Block, Sampler, blocks_of
from torch import nn
from torch.nn import functional

__all__ = ["Graph", "History", "RelationalGNN", "Settings", "count_steps", "train"]

Fetch = Callable[[torch.Tensor], torch.Tensor]


class Graph(Protocol):
    """What training needs of a graph; ``debian_graph.DebianGraph`` has it."""

    @property
    def features(self) -> torch.Tensor: ...
    @property
    def labels(self) -> torch.Tensor: ...
    @property
    def train_mask(self) -> torch.Tensor: ...
    @property
    def test_mask(self) -> torch.Tensor: ...
    @property
    def edge_index(self) -> torch.Tensor: ...
    @property
    def edge_type(self) -> torch.Tensor: ...
    @property
    def num_nodes(self) -> int: ...
    @property
    def num_relations(self) -> int: ...
    @property
    def num_classes(self) -> int: ...


@dataclass(frozen=True)
class Settings:
    """What is trained and for how long."""

    hidden: int = 64
    epochs: int = 8
    batch_size: int = 1024
    fanouts: tuple[int, ...] = (12, 8)
    learning_rate: float = 0.01
    dropout: float = 0.3
    seed: int = 0


@dataclass
class History:
    """What a run measured.

    Attributes
    ----------
    losses : list of float
        Training loss, one a step.
    accuracies : list of float
        Test accuracy after each epoch, between 0 and 1.
    seconds : float
        Time in training steps, evaluation excluded.
    fetched_bytes : int
        Feature bytes fetched by training steps.
    fetch_seconds : float
        Time that training waited for batches with their rows.
    """

    losses: list[float] = field(default_factory=list)
    accuracies: list[float] = field(default_factory=list)
    seconds: float = 0.0
    fetched_bytes: int = 0
    fetch_seconds: float = 0.0


class PlainLayer(nn.Module):
    """RGCN (Schlichtkrull et al., 2018, eq. 2): mean over each relation, plus the node itself."""

    def __init__(self, width_in: int, width_out: int, num_relations: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(num_relations, width_in, width_out))
        self.root = nn.Parameter(torch.empty(width_in, width_out))
        self.bias = nn.Parameter(torch.zeros(width_out))
        bound = math.sqrt(6 / (width_in + width_out))
        nn.init.uniform_(self.weight, -bound, bound)
        nn.init.uniform_(self.root, -bound, bound)

    def forward(self, x: torch.Tensor, block: Block) -> torch.Tensor:
        """Return float32 [num_nodes, width_out] for x [num_nodes, width_in]."""
        out = x @ self.root + self.bias
        counts = torch.bincount(block.edge_type, minlength=len(self.weight)).tolist()
        for weight, edges in zip(
            self.weight, torch.split(block.edge_index, counts, dim=1), strict=True
        ):
            source, destination = edges
            if len(source) == 0:
                continue
            in_degree = torch.bincount(destination, minlength=len(x))[destination]
            message = (x[source] @ weight) / in_degree[:, None]
            out = out.index_add(0, destination, message)
        return out


class RelationalGNN(nn.Module):
    """Two relational layers.

    Parameters
    ----------
    width_in, hidden, width_out, num_relations : int
        Sizes.
    dropout : float
        Share of the hidden values dropped in training.
    mode : str
        "plain" or "datapath". The same seed gives the same initial parameters in both.
    """

    def __init__(
        self,
        width_in: int,
        hidden: int,
        width_out: int,
        num_relations: int,
        dropout: float = 0.0,
        mode: str = "plain",
    ) -> None:
        super().__init__()
        self.dropout = dropout
        first = PlainLayer(width_in, hidden, num_relations)
        second = PlainLayer(hidden, width_out, num_relations)
        self.first: nn.Module = first
        self.second: nn.Module = second
        if mode == "datapath":
            from compiled_layers import CompiledLayer, LibraryLayer

            self.first = LibraryLayer(first.weight, first.root, first.bias)
            self.second = CompiledLayer(second.weight, second.root, second.bias)
        elif mode != "plain":
            raise ValueError(f"mode is {mode!r}; 'plain' or 'datapath' wanted")

    def forward(self, x: torch.Tensor, blocks: tuple[Block, ...]) -> torch.Tensor:
        """Return the logits, float32 [last block's num_outputs, width_out]."""
        first, second = blocks
        hidden = functional.relu(self.first(x, first))[: first.num_outputs]
        hidden = functional.dropout(hidden, self.dropout, self.training)
        logits: torch.Tensor = self.second(hidden, second)[: second.num_outputs]
        return logits


def count_steps(graph: Graph, settings: Settings) -> int:
    """Return how many training steps :func:`train` takes."""
    return settings.epochs * math.ceil(int(graph.train_mask.sum()) / settings.batch_size)


def _fetch(features: torch.Tensor, device: torch.device, mode: str) -> Fetch:
    """Return a function from package numbers (CPU) to feature rows on `device`."""
    if mode == "plain":
        return lambda ids: features.index_select(0, ids).to(device)
    import pytorch_direct

    unified = pytorch_direct.unified(features)
    return lambda ids: pytorch_direct.gather(unified, ids.to(device))


def _inputs(fetch: Fetch, nodes: torch.Tensor, num_packages: int) -> torch.Tensor:
    # Only packages have words; the other nodes start at zero and speak for their neighbours.
    is_package = nodes < num_packages
    rows = fetch(nodes[is_package])
    x = torch.zeros(len(nodes), rows.shape[1], dtype=rows.dtype, device=rows.device)
    return x.index_copy(0, is_package.nonzero()[:, 0].to(rows.device), rows)


def _padded(rows: torch.Tensor, num_nodes: int) -> torch.Tensor:
    """Return rows of packages, and zeros for all other nodes."""
    return torch.cat([rows, rows.new_zeros(num_nodes - len(rows), *rows.shape[1:])])


def _synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def train(
    graph: Graph,
    settings: Settings,
    *,
    mode: str = "plain",
    device: torch.device | str = "cpu",
    around_forward: Callable[[], AbstractContextManager[Any]] = nullcontext,
    on_step: Callable[[float], None] = lambda loss: None,
) -> tuple[RelationalGNN, History]:
    """Train from scratch and test after every epoch on the whole graph.

    Parameters
    ----------
    graph : Graph
        On the CPU.
    settings : Settings
        Equal settings give equal batches and equal initial parameters in both modes.
    mode : str
        "plain" or "datapath", see the module.
    device : torch.device or str
        Where to compute.
    around_forward : callable
        Gives a context for each forward pass of training, for example an ``ssdtrain.Offloader``.
    on_step : callable
        Called with the loss after each step.
    """
    device = torch.device(device)
    torch.manual_seed(settings.seed)
    num_packages, width = graph.features.shape
    model = RelationalGNN(
        width, settings.hidden, graph.num_classes, graph.num_relations, settings.dropout, mode
    ).to(device)
    torch.manual_seed(settings.seed)  # Building a layer may draw numbers; dropout starts afresh.
    fetch = _fetch(graph.features, device, mode)
    sampler = Sampler(
        graph.edge_index, graph.edge_type, graph.num_nodes, settings.fanouts, settings.seed
    )
    attributes = {"y": _padded(graph.labels, graph.num_nodes)}
    if mode == "datapath":
        attributes["x"] = _padded(graph.features, graph.num_nodes)
    loader = sampler.loader(
        attributes,
        input_nodes=graph.train_mask.nonzero()[:, 0],
        batch_size=settings.batch_size,
        shuffle=True,
        device=device if mode == "datapath" else "cpu",
        depth=2 if mode == "datapath" else 0,
    )
    whole = Block(graph.edge_index, graph.edge_type, graph.num_nodes, graph.num_nodes).to(device)
    steps = count_steps(graph, settings)
    optimizer = torch.optim.AdamW(model.parameters(), lr=settings.learning_rate)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, settings.learning_rate, steps)
    history = History()
    for _ in range(settings.epochs):
        batches = iter(loader)
        for _ in range(len(loader)):
            begin = time.perf_counter()
            batch = next(batches)
            sample = blocks_of(batch)
            x = batch.x if mode == "datapath" else _inputs(fetch, sample.nodes, num_packages)
            _synchronize(device)
            history.fetch_seconds += time.perf_counter() - begin
            history.fetched_bytes += int((sample.nodes < num_packages).sum()) * width * 4
            blocks = tuple(block.to(device) for block in sample.blocks)
            with around_forward():
                logits = model(x, blocks)
                loss = functional.cross_entropy(logits, batch.y[: len(logits)].to(device))
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            schedule.step()
            history.losses.append(float(loss.detach()))
            history.seconds += time.perf_counter() - begin
            on_step(history.losses[-1])
        model.eval()
        with torch.no_grad():
            x = _inputs(fetch, torch.arange(graph.num_nodes), num_packages)
            guess = model(x, (whole, whole))[:num_packages].argmax(1).cpu()
        model.train()
        right = (guess == graph.labels)[graph.test_mask]
        history.accuracies.append(float(right.double().mean()))
    return model, history
