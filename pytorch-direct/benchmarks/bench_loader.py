# SPDX-License-Identifier: Apache-2.0
"""Our loader against PyG's on the CPU: batches with features, nothing trained.

PyG's loader needs the sampler that sampling_work.py tells of; without it the rows have no peer.
Turns alternate; each begins with batches that may lie ready and are not counted.
"""

from __future__ import annotations

import importlib.util
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import measured_rows
import torch
from bench_schema import Row
from epoch_work import BATCH, FANOUTS, Work, make_work, our_loader, pyg_loader
from sampling_work import Peer

SECTIONS = ("loader",)
TURNS = 3


@dataclass
class Reader:
    """A loader that is read and nothing else."""

    name: str
    loader: Any
    ahead: int
    seconds: list[float] = field(default_factory=list)
    nodes: int = 0
    _batches: Iterator[Any] | None = None

    def turn(self, count: int) -> None:
        """Read batches; keep the seconds of one."""
        self.read(self.ahead)
        start = time.perf_counter()
        self.nodes = self.read(count) // count
        self.seconds.append((time.perf_counter() - start) / count)
        # Processes go on until their queues are full; the next one's turn is without them.
        time.sleep(1.5 * self.ahead * self.seconds[-1])

    def read(self, count: int) -> int:
        """Read batches; return how many nodes they have."""
        nodes = 0
        for _ in range(count):
            batch = next(self._batches, None) if self._batches is not None else None
            if batch is None:
                self._batches = iter(self.loader)
                batch = next(self._batches)
            nodes += batch.x.shape[0]
        return nodes

    @property
    def middle(self) -> float:
        """Seconds of a batch in the middle turn."""
        return sorted(self.seconds)[len(self.seconds) // 2]


def check(batch: Any, work: Work) -> None:
    """Raise unless a batch has the features of its nodes and edges of the graph."""
    if not torch.equal(batch.x, work.data.x[batch.n_id]):
        raise RuntimeError("a batch has rows that are not its nodes'")
    ends = work.data.edge_index[:, batch.e_id]
    if not torch.equal(batch.n_id[batch.edge_index], ends):
        raise RuntimeError("a batch has an edge that is not the graph's")


def measure(options: Any) -> Iterator[Row]:
    """Take turns; one row against each number of the peer's workers."""
    sizes = (20_000, 200_000, 32) if options.quick else (1_000_000, 20_000_000, 128)
    fanouts, batch = ([4, 3, 2], 128) if options.quick else (FANOUTS, BATCH)
    count = 3 if options.quick else 12
    work = make_work(*sizes, fanouts, batch)
    device = torch.device("cpu")
    ours = Reader("ours", our_loader(work, work.data, device), 3)
    check(next(iter(ours.loader)), work)
    cores = len(os.sched_getaffinity(0))
    peers = []
    if importlib.util.find_spec("torch_geometric") and Peer.is_here():
        sampler = pyg_loader(work, 0).node_sampler
        for workers in (0,) if options.quick else sorted({0, 1, 2, cores}):
            loader = pyg_loader(work, workers, sampler)
            peers.append(Reader(f"PyG's NeighborLoader, {workers} workers", loader, 2 * workers))
    for _ in range(TURNS):
        for one in (ours, *peers):
            one.turn(count)
            print(f"{one.name}: {one.seconds[-1] * 1e3:.1f} ms a batch", flush=True)
    what = f"a batch sampled and its features gathered, {cores} cores, {work.what}"
    if not peers:
        yield Row(work=what, ours=ours.middle * 1e3, unit="ms", note=f"{ours.nodes} nodes")
    best = min(peers, key=lambda one: one.middle, default=None)
    for peer in peers:
        ratio = peer.middle / ours.middle
        judged = peer is best and not options.quick
        yield Row(
            work=f"{what}, against {peer.name}", ours=ours.middle * 1e3, unit="ms",
            peer=peer.middle * 1e3, peer_name=peer.name, ratio=ratio,
            target=">= 2x PyG's best" if judged else "", met=ratio >= 2 if judged else None,
            note=f"{TURNS} turns of {count} batches; {ours.nodes} nodes a batch, "
            f"{peer.nodes} the peer's",
        )  # fmt: skip


def main() -> None:
    """Measure and write."""
    options = measured_rows.options(__doc__, SECTIONS)
    results = measured_rows.Results(options.json, "pytorch-direct: loading on the CPU")
    results.section("loader", lambda: measure(options))
    results.finish()


if __name__ == "__main__":
    main()
