# SPDX-License-Identifier: Apache-2.0
"""The graph, the batches and the peer of the sampling benchmarks; measures the peer alone.

The peer is the sampler that PyG's loaders call. It comes with torch-sparse, whose releases on PyPI
are sources; a C++ compiler and torch must be there, and some minutes of two cores::

    pip install torch-geometric
    pip install --no-build-isolation torch-scatter==2.1.2 torch-sparse==0.6.18

Its CUDA kernels are not needed: ``FORCE_ONLY_CPU=1`` leaves them out. Faster still, two of its
files make a library with the sampler alone, which ``DATAPATH_TORCH_SPARSE`` names then::

    pip download --no-deps --no-binary :all: --no-build-isolation torch-sparse==0.6.18
    tar xf torch_sparse-0.6.18.tar.gz
    python build_peer_sampler.py torch_sparse-0.6.18 libpeer.so
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
import time
from dataclasses import dataclass

import torch

from pytorch_direct import Graph, rmat

FANOUTS = [15, 10, 5]
BATCH = 1024
EDGE = ("node", "to", "node")
PEER = "torch-sparse's sampler, which PyG's loader calls, one process"
#: A library with torch-sparse's operators, where the package is not installed.
PEER_VARIABLE = "DATAPATH_TORCH_SPARSE"


@dataclass(frozen=True)
class Work:
    """A graph and batches of seeds."""

    graph: Graph
    batches: list[torch.Tensor]
    what: str


def make_work(nodes: int, edges: int, batches: int) -> Work:
    """Return an R-MAT graph without duplicates removed, and random seeds."""
    start = time.perf_counter()
    graph = Graph.from_edge_index(rmat(nodes, edges, seed=1, scramble=True), nodes)
    print(f"graph of {nodes} nodes, {edges} edges: {time.perf_counter() - start:.1f} s", flush=True)
    generator = torch.Generator().manual_seed(2)
    seeds = [torch.randint(0, nodes, (BATCH,), generator=generator) for _ in range(batches)]
    what = (
        f"R-MAT {nodes / 1e6:g} M nodes, {edges / 1e6:g} M edges, fan-out "
        f"{'/'.join(map(str, FANOUTS))}, batch {BATCH}"
    )
    return Work(graph, seeds, what)


class Peer:
    """torch-sparse's sampler over the same compressed graph."""

    def __init__(self, graph: Graph) -> None:
        relation = graph.relations[EDGE]
        self._indptr = relation.indptr
        self._indices = relation.indices.long()

    @staticmethod
    def is_here() -> bool:
        """Whether its operators can be called."""
        try:
            importlib.import_module("torch_sparse")
        except ImportError:
            library = os.environ.get(PEER_VARIABLE)
            if not library:
                return False
            torch.ops.load_library(library)  # type: ignore[no-untyped-call]
        return True

    def sample(self, seeds: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Sample one batch."""
        result: tuple[torch.Tensor, ...] = torch.ops.torch_sparse.neighbor_sample(
            self._indptr, self._indices, seeds, FANOUTS, False, True
        )
        return result

    def seconds(self, batches: list[torch.Tensor]) -> float:
        """Return the seconds of a batch in this process."""
        self.sample(batches[0])
        start = time.perf_counter()
        for seeds in batches:
            self.sample(seeds)
        return (time.perf_counter() - start) / len(batches)

    def seconds_with_workers(self, batches: list[torch.Tensor], workers: int) -> float:
        """Return the seconds of a batch when forked processes sample side by side.

        Results are dropped where they are made: handing them over would cost more.
        """
        context = multiprocessing.get_context("fork")
        barrier = context.Barrier(workers + 1)

        def work() -> None:
            torch.set_num_threads(1)
            self.sample(batches[0])
            barrier.wait()
            for seeds in batches:
                self.sample(seeds)
            barrier.wait()

        processes = [context.Process(target=work) for _ in range(workers)]
        for process in processes:
            process.start()
        barrier.wait()
        start = time.perf_counter()
        barrier.wait()
        elapsed = time.perf_counter() - start
        for process in processes:
            process.join()
        return elapsed / (workers * len(batches))
