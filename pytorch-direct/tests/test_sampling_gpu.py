# SPDX-License-Identifier: Apache-2.0
"""Sampling on a GPU: equal to the CPU's twin, streams, hubs, structure on the host and there."""

from __future__ import annotations

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sampling_reference import Drawn, assert_equal, drawn_graphs

from datapath_core import UnsupportedError
from pytorch_direct import Graph, NegativeSampling, NeighborSampler, check, rmat
from pytorch_direct.sampling import device

pytestmark = pytest.mark.gpu

WHERE = ["unified", "device"]
FANOUTS = st.lists(st.sampled_from([-1, 0, 1, 2, 7, 100]), min_size=0, max_size=3)


@pytest.fixture(autouse=True)
def no_error_is_left_behind(cuda):
    check()
    yield
    check()
    torch.cuda.synchronize()


def placed(graph: Graph, where: str) -> Graph:
    return graph.unified() if where == "unified" else graph.to("cuda")


@settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    drawn_graphs(),
    FANOUTS,
    st.booleans(),
    st.booleans(),
    st.sampled_from(["plain", "weighted", "node_time", "edge_time"]),
    st.sampled_from(WHERE),
    st.integers(0, 2**63),
    st.booleans(),
)
def test_equal_to_the_cpu(
    cuda,
    drawn: Drawn,
    fanouts: list[int],
    replace: bool,
    flag: bool,
    extra: str,
    where: str,
    seed: int,
    grows: bool,
):
    random = torch.Generator().manual_seed(seed)
    more = {}
    if extra == "weighted":
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
    options = {
        "replace": replace,
        "disjoint": flag,
        "temporal_strategy": "last" if flag else "uniform",
        "seed": seed,
    }
    seed_time = None
    if extra.endswith("time"):
        seed_time = {
            kind: torch.randint(0, 9, (ids.numel(),), generator=random)
            for kind, ids in drawn.seeds.items()
        }
        if not drawn.is_hetero:
            seed_time = seed_time["node"]
    seeds = drawn.given_seeds()
    expected = NeighborSampler(graph, fanouts, **options).sample(
        seeds, batch=seed, seed_time=seed_time
    )
    before = device.MOST_UNREAD
    device.MOST_UNREAD = 0 if grows else before
    try:
        out = NeighborSampler(placed(graph, where), fanouts, **options).sample(
            seeds, batch=seed, seed_time=seed_time, device=cuda
        )
    finally:
        device.MOST_UNREAD = before
    assert_equal(out, expected)
    nodes = out.node if isinstance(out.node, torch.Tensor) else next(iter(out.node.values()))
    assert nodes.device == cuda


@pytest.fixture(scope="module")
def large() -> Graph:
    return Graph.from_edge_index(rmat(200_000, 4_000_000, seed=1), 200_000)


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("fanouts", [[15, 10, 5], [-1, 5], [300], [1, 1, 1, 1]])
@pytest.mark.parametrize("ids", [torch.int32, torch.int64])
def test_large_batches_are_equal(cuda, large, where, fanouts, ids):
    seeds = torch.randint(0, 200_000, (2048,), dtype=ids)
    expected = NeighborSampler(large, fanouts, seed=5).sample(seeds, batch=3)
    sampler = NeighborSampler(placed(large, where), fanouts, seed=5)
    for _ in range(3):
        assert_equal(sampler.sample(seeds.to(cuda), batch=3), expected)


def test_compressed_arrays_on_the_gpu_are_taken_as_they_are(cuda, large):
    relation = large.relations["node", "to", "node"]
    weight = torch.rand(relation.num_edges)
    arrays = relation.indptr, relation.indices
    host = Graph.from_csc(*arrays, edge_weight=weight)
    there = Graph.from_csc(*(array.to(cuda) for array in arrays), edge_weight=weight.to(cuda))
    assert there.device == cuda
    seeds = torch.arange(0, 200_000, 99)
    expected = NeighborSampler(host, [5, 3]).sample(seeds)
    assert_equal(NeighborSampler(there, [5, 3]).sample(seeds.to(cuda)), expected)


@pytest.mark.parametrize("fanout", [1, 64, 65, 1000, -1])
def test_hub_of_a_million_neighbours(cuda, fanout):
    edges = torch.stack([torch.arange(1, 1_000_001), torch.zeros(1_000_000, dtype=torch.int64)])
    graph = Graph.from_edge_index(edges, 1_000_001)
    seeds = torch.tensor([0, 7, 0])
    expected = NeighborSampler(graph, [fanout]).sample(seeds)
    assert_equal(NeighborSampler(graph.to(cuda), [fanout]).sample(seeds), expected)


@pytest.mark.parametrize("where", WHERE)
def test_streams_and_batches_in_flight(cuda, large, where):
    sampler = NeighborSampler(placed(large, where), [10, 5], seed=2)
    host = NeighborSampler(large, [10, 5], seed=2)
    seeds = [torch.randint(0, 200_000, (500,)) for _ in range(8)]
    streams = [torch.cuda.Stream() for _ in range(3)]
    pending = []
    for batch, ids in enumerate(seeds):
        with torch.cuda.stream(streams[batch % 3]):
            torch.cuda._sleep(1_000_000)
            pending.append(sampler.start(ids, batch=batch, device=cuda))
    for batch, (ids, work) in enumerate(zip(seeds, pending, strict=True)):
        with torch.cuda.stream(streams[batch % 3]):
            assert_equal(work.result(), host.sample(ids, batch=batch))


def test_result_on_another_stream_outlives_its_stream(cuda, large):
    sampler = NeighborSampler(large.to(cuda), [10, 5], subgraph_type="bidirectional")
    seeds = torch.arange(400)
    expected = NeighborSampler(large, [10, 5], subgraph_type="bidirectional").sample(seeds)
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        pending = sampler.start(seeds)
    out = pending.result()
    del pending
    torch.cuda._sleep(20_000_000)
    copies = [tensor.clone() for tensor in (out.node, out.row, out.col)]
    del out
    with torch.cuda.stream(side):
        # Memory that was free for the side stream would be given out and overwritten here.
        rubbish = [torch.full((1 << 20,), -1, device=cuda) for _ in range(50)]
    for copy, part in zip(copies, ("node", "row", "col"), strict=True):
        assert torch.equal(copy.cpu(), getattr(expected, part))
    del rubbish


def test_start_does_not_wait(cuda, large):
    sampler = NeighborSampler(large.to(cuda), [10, 5])
    seeds = torch.arange(500)
    sampler.sample(seeds)
    torch.cuda._sleep(2_000_000_000)
    work = sampler.start(seeds)
    assert not work.done()
    work.result()
    assert work.done()


def test_bad_seeds_on_the_gpu_raise_with_the_result(cuda, large):
    sampler = NeighborSampler(large.to(cuda), [10, 5])
    with pytest.raises(IndexError, match="seed 1 of the batch"):
        sampler.sample(torch.tensor([3, 200_000, -1], device=cuda))
    with pytest.raises(IndexError, match="node 200000 at position 1"):
        sampler.sample(torch.tensor([3, 200_000, -1]))
    assert sampler.sample(torch.tensor([3], device=cuda)).node[0] == 3


def test_links_are_equal(cuda, large):
    links = torch.randint(0, 200_000, (2, 300))
    negatives = NegativeSampling("binary", 2)
    expected = NeighborSampler(large, [5, 5]).sample_links(links, neg_sampling=negatives)
    for where in (links, links.to(cuda)):
        out = NeighborSampler(large.unified(), [5, 5]).sample_links(
            where, neg_sampling=negatives, device=cuda
        )
        assert_equal(out, expected)
        assert torch.equal(out.metadata[1].cpu(), expected.metadata[1])


@pytest.mark.parametrize("subgraph_type", ["induced", "bidirectional"])
@pytest.mark.parametrize("where", WHERE)
def test_other_subgraphs_are_equal(cuda, where, subgraph_type):
    graph = Graph.from_edge_index(rmat(3000, 20_000, seed=1), 3000)
    seeds = torch.arange(100)
    expected = NeighborSampler(graph, [3, 3], subgraph_type=subgraph_type).sample(seeds)
    out = NeighborSampler(placed(graph, where), [3, 3], subgraph_type=subgraph_type).sample(
        seeds, device=cuda
    )
    assert_equal(out, expected)


def test_what_the_gpu_cannot_read_is_refused(cuda, large):
    with pytest.raises(UnsupportedError, match=r"graph.unified\(\)"):
        NeighborSampler(large, [3]).sample(torch.arange(3, device=cuda), device=cuda)
    with pytest.raises(UnsupportedError, match="the graph is on cuda"):
        NeighborSampler(large.to(cuda), [3]).sample(torch.arange(3), device="cpu")
