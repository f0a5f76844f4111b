# SPDX-License-Identifier: Apache-2.0
"""Neighbour sampling on the CPU, alone and with the gather of features, against PyG's way.

PyG's sampler comes from ``torch_sparse``; without it the rows have no peer.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import bench_schema
import torch
from sampling_work import BATCH, EDGE, PEER, Peer, make_work

from pytorch_direct import NeighborSampler, SamplerOutput, gather

WIDTH = 128


def seconds_each(run: Callable[[int], object], count: int) -> float:
    """Return the seconds of a run, after one that is not counted."""
    run(0)
    start = time.perf_counter()
    for i in range(count):
        run(i)
    return (time.perf_counter() - start) / count


def check(out: SamplerOutput, edges: torch.Tensor) -> None:
    """Raise unless the sampled edges are the graph's."""
    if out.edge is None or not (
        torch.equal(edges[0][out.edge], out.node[out.row])
        and torch.equal(edges[1][out.edge], out.node[out.col])
    ):
        raise RuntimeError("a sampled edge is not the graph's")


def main() -> None:
    """Measure sampling by number of threads, then sampling with the gather."""
    options = bench_schema.arguments(__doc__)
    nodes, edges = (100_000, 1_000_000) if options.quick else (1_000_000, 20_000_000)
    work = make_work(nodes, edges, 10)
    most = torch.get_num_threads()
    features = torch.rand(nodes, WIDTH)
    peer = Peer(work.graph) if Peer.is_here() else None
    relation = work.graph.relations[EDGE]
    assert relation.edge_ids is not None
    ends = torch.empty(2, edges, dtype=torch.int64)
    ends[0, relation.edge_ids] = relation.indices.long()
    degree = relation.indptr.diff()
    ends[1, relation.edge_ids] = torch.repeat_interleave(torch.arange(nodes), degree)
    rows = []

    def report(what: str, ours: float, theirs: float | None, name: str, target: str = "") -> None:
        ratio = None if theirs is None else theirs / ours
        rows.append(
            bench_schema.Row(
                work=f"{what}, {work.what}",
                ours=ours * 1e3,
                unit="ms",
                peer=None if theirs is None else theirs * 1e3,
                peer_name="" if theirs is None else name,
                ratio=ratio,
                target=target if ratio is not None else "",
                met=ratio >= 2 if target and ratio is not None else None,
            )
        )
        print(f"{rows[-1].work}: {ours * 1e3:.2f} ms, peer {(theirs or 0) * 1e3:.2f}", flush=True)

    alone = None if peer is None else peer.seconds(work.batches)
    for threads in sorted({1, most}):
        sampler = NeighborSampler(work.graph, [15, 10, 5], threads=threads)
        check(sampler.sample(work.batches[0]), ends)  # type: ignore[arg-type]
        ours = seconds_each(lambda i: sampler.sample(work.batches[i], batch=i), 10)  # noqa: B023
        report(f"sample a batch, {threads} threads", ours, alone, PEER)

    def ours_with_features(i: int) -> None:
        out = sampler.sample(work.batches[i], batch=i)
        assert isinstance(out, SamplerOutput)
        gather(features, out.node)

    def peer_with_features(i: int) -> None:
        assert peer is not None
        torch.index_select(features, 0, peer.sample(work.batches[i])[0])

    ours = seconds_each(ours_with_features, 10)
    theirs = None if peer is None else seconds_each(peer_with_features, 10)
    report(
        f"sample a batch and gather {WIDTH * 4} B a node, {most} threads",
        ours,
        theirs,
        "torch-sparse's sampler, then torch.index_select",
        ">= 2x the peer",
    )
    extra = {"seeds": BATCH}
    bench_schema.write(options.json, "pytorch-direct: sampling on the CPU", rows, extra=extra)


if __name__ == "__main__":
    main()
