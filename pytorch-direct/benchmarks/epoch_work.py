# SPDX-License-Identifier: Apache-2.0
"""What the benchmarks of whole epochs train: a graph, features, a model, and who feeds it."""

from __future__ import annotations

import importlib.util
import itertools
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from sampling_work import EDGE, Peer
from torch import nn
from torch.nn import functional

from pytorch_direct import Graph, NeighborLoader, rmat, rmat_features

__all__ = ["BATCH", "CLASSES", "Contender", "Sage", "Work", "make_work", "our_loader", "pyg_loader"]

FANOUTS = [15, 10, 5]
BATCH = 1024
CLASSES = 16


@dataclass
class PlainData:
    """What stands for PyG's ``Data`` where PyG is not installed."""

    x: torch.Tensor
    y: torch.Tensor
    edge_index: torch.Tensor

    @property
    def num_nodes(self) -> int:
        """Number of nodes."""
        return self.x.shape[0]


@dataclass(frozen=True)
class Work:
    """A graph with features, as PyG's ``Data``, its edges sorted by destination."""

    data: Any
    what: str
    fanouts: list[int]
    batch: int

    @property
    def batches(self) -> int:
        """How many an epoch has."""
        return -(-self.data.num_nodes // self.batch)


def make_work(nodes: int, edges: int, width: int, fanouts: list[int], batch: int) -> Work:
    """Return an R-MAT graph whose nodes' classes can be told from their features.

    A node's class is the largest of its first features, so a model that learns gets far above the
    share of the most common class, ``1 / CLASSES``.
    """
    kind = PlainData
    if importlib.util.find_spec("torch_geometric"):
        from torch_geometric.data import Data as kind  # noqa: N813
    start = time.perf_counter()
    graph = Graph.from_edge_index(rmat(nodes, edges, seed=1, scramble=True), nodes)
    relation = graph.relations[EDGE]
    # Sorted, so that no loader has to sort: that is not what is measured.
    edge_index = torch.stack(
        [
            relation.indices.long(),
            torch.repeat_interleave(torch.arange(nodes), relation.indptr.diff()),
        ]
    )
    del graph, relation
    x = rmat_features(nodes, width, seed=2)
    data = kind(x=x, y=x[:, :CLASSES].argmax(1), edge_index=edge_index)
    print(f"graph and features: {time.perf_counter() - start:.1f} s", flush=True)
    what = (
        f"R-MAT {nodes / 1e6:g} M nodes, {edges / 1e6:g} M edges, features {nodes / 1e6:g} M x "
        f"{width} float32, fan-out {'/'.join(map(str, fanouts))}, batch {batch}"
    )
    return Work(data, what, fanouts, batch)


def pyg_loader(work: Work, workers: int, sampler: Any = None, **options: Any) -> Any:
    """Return PyG's loader, with a sampler of its own or one that another loader has made."""
    import torch_geometric.typing
    from torch_geometric.loader import NeighborLoader as PygLoader

    if not Peer.is_here():
        raise RuntimeError("PyG's loader has no sampler here: see sampling_work.py")
    # PyG looks for the package when it is imported; its operators are what it calls.
    torch_geometric.typing.WITH_TORCH_SPARSE = True
    if workers:
        options.setdefault("persistent_workers", True)
    return PygLoader(
        work.data, work.fanouts, batch_size=work.batch, shuffle=True, num_workers=workers,
        is_sorted=True, neighbor_sampler=sampler, **options,
    )  # fmt: skip


def our_loader(work: Work, data: Any, device: torch.device, **options: Any) -> Any:
    """Return our loader: the arguments of PyG's, and the device that samples and fetches."""
    if isinstance(data, PlainData):
        graph = Graph.from_edge_index(data.edge_index, data.num_nodes)
        data = ({"x": data.x, "y": data.y}, graph)
    return NeighborLoader(
        data, work.fanouts, batch_size=work.batch, shuffle=True, seed=0, device=device, **options,
    )  # fmt: skip


class Sage(nn.Module):
    """Three layers of GraphSAGE with means, of PyG.

    With `trim` a layer computes only what later layers need, which takes the sizes of the hops,
    and they come with our batches only: `torch-sparse` does not say them.
    """

    def __init__(self, width: int, hidden: int, layers: int, *, trim: bool = False) -> None:
        super().__init__()
        from torch_geometric.nn import SAGEConv

        sizes = [width, *[hidden] * (layers - 1), CLASSES]
        self.layers = nn.ModuleList(SAGEConv(a, b) for a, b in itertools.pairwise(sizes))
        self.trim = trim

    def forward(self, batch: Any) -> torch.Tensor:
        """Return the logits of a batch's seeds."""
        from torch_geometric.utils import trim_to_layer

        x, edge_index = batch.x, batch.edge_index
        for number, layer in enumerate(self.layers):
            if self.trim:
                x, edge_index, _ = trim_to_layer(
                    number, batch.num_sampled_nodes, batch.num_sampled_edges, x, edge_index
                )
            x = layer(x, edge_index)
            if number + 1 < len(self.layers):
                x = functional.relu(x)
        return x[: batch.batch_size]


@dataclass
class Contender:
    """A model in training and what feeds it; batches go on over the ends of epochs.

    Parameters
    ----------
    name : str
    loader : iterable
    device : torch.device
        Where the model is; batches that are elsewhere are moved.
    ahead : int
        Batches that may lie ready when a turn begins; they are trained on but not timed.
    """

    name: str
    loader: Any
    model: Sage
    device: torch.device
    ahead: int
    losses: list[torch.Tensor] = field(default_factory=list)
    right: list[torch.Tensor] = field(default_factory=list)
    """Share of a batch's seeds told right before the step that trains on them."""
    seconds: list[float] = field(default_factory=list)
    """Of a batch, one number a turn."""
    _batches: Iterator[Any] | None = None
    _optimizer: torch.optim.Optimizer | None = None
    nodes: int = 0
    edges: int = 0

    def turn(self, count: int) -> float:
        """Train on batches; return and keep the seconds of one."""
        self.train(self.ahead)
        self.wait()
        start = time.perf_counter()
        self.train(count)
        self.wait()
        self.seconds.append((time.perf_counter() - start) / count)
        # Processes go on until their queues are full; the next one's turn is without them.
        time.sleep(1.5 * self.ahead * self.seconds[-1])
        return self.seconds[-1]

    def train(self, count: int) -> None:
        """Take so many steps."""
        if self._optimizer is None:
            self._optimizer = torch.optim.Adam(self.model.parameters(), lr=3e-3)
        for _ in range(count):
            batch = self._next()
            logits, wanted = self.model(batch), batch.y[: batch.batch_size]
            loss = functional.cross_entropy(logits, wanted)
            self.right.append((logits.detach().argmax(1) == wanted).double().mean())
            self._optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            self._optimizer.step()
            self.losses.append(loss.detach())
            self.nodes, self.edges = batch.x.shape[0], batch.edge_index.shape[1]

    def close(self) -> None:
        """End the loader's processes or thread, before anything else is forked."""
        self._batches = None
        running = getattr(self.loader, "_iterator", None)
        if running is not None:
            running._shutdown_workers()
        self.loader = None

    def wait(self) -> None:
        """Wait for the GPU."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    @property
    def best(self) -> float:
        """Seconds of a batch in the fastest turn."""
        return min(self.seconds)

    def _next(self) -> Any:
        if self._batches is None:
            self._batches = iter(self.loader)
        batch = next(self._batches, None)
        if batch is None:
            self._batches = iter(self.loader)
            batch = next(self._batches)
        return batch.to(self.device, non_blocking=True)
