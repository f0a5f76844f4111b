# SPDX-License-Identifier: Apache-2.0
"""The GPU's sampling kernels, all threads played by the host in drawn orders, against the CPU's."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sampling_reference import Drawn, assert_same, drawn_graphs, emulated

from pytorch_direct import Graph, NeighborSampler, rmat
from pytorch_direct.sampling import device

ANY = settings(max_examples=80, deadline=None)
FANOUTS = st.lists(st.sampled_from([-1, 0, 1, 2, 3, 7, 100]), min_size=0, max_size=3)


@ANY
@given(
    drawn_graphs(),
    FANOUTS,
    st.booleans(),
    st.booleans(),
    st.sampled_from(["plain", "weighted", "node_time", "edge_time"]),
    st.booleans(),
    st.integers(0, 2**32),
    st.sampled_from([32, 256]),
    st.booleans(),
)
def test_emulated_gpu_is_equal_to_the_cpu(
    drawn: Drawn,
    fanouts: list[int],
    replace: bool,
    disjoint: bool,
    extra: str,
    last: bool,
    order: int,
    threads: int,
    grows: bool,
):
    random = torch.Generator().manual_seed(order)
    more = {}
    if extra == "weighted":
        # Some are 0; the range is wide.
        more["edge_weight"] = {
            kind: (torch.rand(e.shape[1], generator=random) - 0.2).clamp(min=0) ** 8
            for kind, e in drawn.edges.items()
        }
    elif extra == "node_time":
        more["node_time"] = {
            kind: torch.randint(0, 9, (n,), generator=random) for kind, n in drawn.num_nodes.items()
        }
    elif extra == "edge_time":
        more["edge_time"] = {
            kind: torch.randint(0, 9, (e.shape[1],), generator=random)
            for kind, e in drawn.edges.items()
        }
    if not drawn.is_hetero:
        more = {name: value[next(iter(value))] for name, value in more.items()}
    graph = Graph.from_edge_index(**drawn.arguments(), **more)
    sampler = NeighborSampler(
        graph,
        fanouts,
        replace=replace,
        disjoint=disjoint,
        temporal_strategy="last" if last else "uniform",
        seed=order,
    )
    seed_time, times = None, None
    if extra.endswith("time"):
        seed_time = {
            kind: torch.randint(0, 9, (ids.numel(),), generator=random)
            for kind, ids in drawn.seeds.items()
        }
        times = torch.cat([seed_time[kind] for kind in drawn.num_nodes])
        if not drawn.is_hetero:
            seed_time = seed_time["node"]
    out = sampler.sample(drawn.given_seeds(), batch=order, seed_time=seed_time)
    before = device.MOST_UNREAD
    # With a bound of 0 each hop reads its sizes, and buffers grow on the way.
    device.MOST_UNREAD = 0 if grows else before
    try:
        played = emulated(
            sampler, drawn.given_seeds(), batch=order, times=times, threads=threads, order=order
        )
    finally:
        device.MOST_UNREAD = before
    assert_same(played, out, graph)


@pytest.mark.parametrize("fanouts", [[15, 10, 5], [-1, 3], [80, 2]])
def test_larger_graph(fanouts):
    graph = Graph.from_edge_index(rmat(5000, 60_000, seed=2), 5000)
    sampler = NeighborSampler(graph, fanouts, seed=6)
    seeds = torch.arange(0, 5000, 23)
    assert_same(emulated(sampler, seeds, threads=1024, order=4), sampler.sample(seeds), graph)


def test_bad_seeds_are_reported_not_followed():
    graph = Graph.from_edge_index(rmat(50, 500, seed=2), 50)
    sampler = NeighborSampler(graph, [3, 3])
    for bad in (-1, 50, 2**62):
        with pytest.raises(IndexError, match="seed 2 of the batch"):
            emulated(sampler, torch.tensor([1, 2, bad, 3, bad]))
