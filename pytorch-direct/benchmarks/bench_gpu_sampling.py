# SPDX-License-Identifier: Apache-2.0
"""Neighbour sampling by a GPU, structure in host memory and on the GPU, against PyG's processes.

PyG's sampler comes from ``torch_sparse``, or from a library with its operators that
``DATAPATH_TORCH_SPARSE`` names; without either the rows have no peer. It is measured first, since
processes cannot be forked once the GPU is in use.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable

import bench_schema
import torch
from sampling_work import FANOUTS, PEER, Peer, Work, make_work

from pytorch_direct import Graph, NeighborSampler, SamplerOutput

TARGETS = {"host memory": 20, "GPU memory": 50}


def options() -> argparse.Namespace:
    """Parse the command line; sizes in millions may be given for smaller machines."""
    own = argparse.ArgumentParser(add_help=False)
    own.add_argument("--nodes", type=float, default=10)
    own.add_argument("--edges", type=float, default=200)
    mine, rest = own.parse_known_args()
    sys.argv[1:] = rest
    return argparse.Namespace(**vars(mine), **vars(bench_schema.arguments(__doc__)))


def one_by_one(sampler: NeighborSampler, work: Work) -> float:
    """Return the seconds of a batch when each is waited for."""
    start = time.perf_counter()
    for batch, seeds in enumerate(work.batches):
        sampler.sample(seeds, batch=batch, device="cuda")
    return (time.perf_counter() - start) / len(work.batches)


def two_in_flight(sampler: NeighborSampler, work: Work) -> float:
    """Return the seconds of a batch when the next has begun before one is waited for."""
    start = time.perf_counter()
    pending = sampler.start(work.batches[0], device="cuda")
    for batch, seeds in enumerate(work.batches[1:], 1):
        ahead = sampler.start(seeds, batch=batch, device="cuda")
        pending.result()
        pending = ahead
    pending.result()
    return (time.perf_counter() - start) / len(work.batches)


def check(out: SamplerOutput, expected: SamplerOutput) -> None:
    """Raise unless two samples are equal."""
    for part in ("node", "row", "col", "edge"):
        if not torch.equal(getattr(out, part).cpu(), getattr(expected, part)):
            raise RuntimeError(f"the GPU's sample differs from the CPU's in {part!r}")


def main() -> None:
    """Measure the peer, then the CPU, then each place of the structure."""
    chosen = options()
    nodes, edges = (0.1, 1) if chosen.quick else (chosen.nodes, chosen.edges)
    work = make_work(int(nodes * 1e6), int(edges * 1e6), 10 if chosen.quick else 50)
    alone, side_by_side = None, ""
    if Peer.is_here():
        peer = Peer(work.graph)
        alone = peer.seconds(work.batches[:5])
        cores = len(os.sched_getaffinity(0))
        found = {
            workers: peer.seconds_with_workers(work.batches[:5], workers)
            for workers in sorted({2, 4, 8, cores})
            if workers <= cores
        }
        best = min(found, key=lambda workers: found[workers])
        side_by_side = f"; with its best number of processes ({best}) {found[best] * 1e3:.2f} ms"
        del peer
    host = NeighborSampler(work.graph, FANOUTS)
    expected = host.sample(work.batches[0])
    assert isinstance(expected, SamplerOutput)
    start = time.perf_counter()
    for batch, seeds in enumerate(work.batches):
        host.sample(seeds, batch=batch)
    by_cpu = (time.perf_counter() - start) / len(work.batches)
    extra = {"gpu": torch.cuda.get_device_name(), "edges a batch": int(expected.row.numel())}
    rows = []
    place: Callable[[], Graph]
    for where, place in (
        ("host memory", work.graph.unified),
        ("GPU memory", lambda: work.graph.to("cuda")),
    ):
        sampler = NeighborSampler(place(), FANOUTS)
        out = sampler.sample(work.batches[0], device="cuda")
        assert isinstance(out, SamplerOutput)
        check(out, expected)
        for ids in (True, False):
            sampler = NeighborSampler(sampler.graph, FANOUTS, return_edge_ids=ids)
            for name, measure in (("one by one", one_by_one), ("two in flight", two_in_flight)):
                measure(sampler, work)
                ours = measure(sampler, work)
                ratio = None if alone is None else alone / ours
                goal = ids and name == "two in flight" and ratio is not None
                rows.append(
                    bench_schema.Row(
                        work=f"sample a batch by the GPU, structure in {where}, {name}, "
                        f"{'with' if ids else 'without'} edge ids, {work.what}",
                        ours=ours * 1e3,
                        unit="ms",
                        peer=None if alone is None else alone * 1e3,
                        peer_name="" if alone is None else PEER,
                        ratio=ratio,
                        target=f">= {TARGETS[where]}x the peer" if goal else "",
                        met=ratio >= TARGETS[where] if goal and ratio is not None else None,
                        note=f"our CPU sampler {by_cpu * 1e3:.2f} ms with "
                        f"{torch.get_num_threads()} threads{side_by_side}",
                    )
                )
                print(f"{rows[-1].work}: {ours * 1e3:.3f} ms, peer {(alone or 0) * 1e3:.1f} ms, "
                      f"{rows[-1].note}", flush=True)  # fmt: skip
                # After every row, so that a run that ends early keeps those it has.
                bench_schema.write(
                    chosen.json, "pytorch-direct: sampling by the GPU", rows, extra=extra
                )
        del sampler


if __name__ == "__main__":
    main()
