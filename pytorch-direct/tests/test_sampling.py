# SPDX-License-Identifier: Apache-2.0
"""Neighbour sampling on the CPU: order, law, determinism, times, weights, errors."""

from __future__ import annotations

import math
import pickle
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sampling_reference import (
    EDGE,
    Drawn,
    as_hetero,
    assert_equal,
    chosen,
    drawn_graphs,
    in_edges,
    replay,
)
from scipy import stats

from datapath_core import UnsupportedError
from pytorch_direct import Graph, NeighborSampler, rmat

ANY = settings(max_examples=60, deadline=None)
FANOUTS = st.lists(st.sampled_from([-1, 0, 1, 2, 3, 7, 100]), min_size=0, max_size=3)


def star(leaves: int) -> Graph:
    """Return a graph whose node 0 has all others as neighbours."""
    edges = torch.stack([torch.arange(1, leaves + 1), torch.zeros(leaves, dtype=torch.int64)])
    return Graph.from_edge_index(edges, leaves + 1)


def is_likely(counts: list[int], expected: list[float]) -> bool:
    """Whether counts may come from a law; wrong once in a million times, and draws are fixed."""
    return bool(stats.chisquare(counts, expected).pvalue > 1e-6)


@ANY
@given(drawn_graphs(), FANOUTS, st.booleans(), st.booleans(), st.integers(0, 2**64 - 1))
def test_order_and_numbers_are_those_of_the_definition(
    drawn: Drawn, fanouts: list[int], replace: bool, disjoint: bool, batch: int
):
    graph = Graph.from_edge_index(**drawn.arguments())
    sampler = NeighborSampler(graph, fanouts, replace=replace, disjoint=disjoint, seed=batch)
    out = sampler.sample(drawn.given_seeds(), batch=batch)
    replay(out, drawn.edges, drawn.seeds, len(fanouts), disjoint)
    everything = as_hetero(out)
    for kind, edges in drawn.edges.items():
        hop_of = []
        for hop, count in enumerate(everything.num_sampled_edges[kind]):
            hop_of += [hop] * count
        took: dict[int, tuple[int, list[int]]] = {}
        for i, col in enumerate(everything.col[kind].tolist()):
            took.setdefault(col, (hop_of[i], []))[1].append(int(everything.edge[kind][i]))
        bounds = np.cumsum([0, *everything.num_sampled_nodes[kind[2]]])
        for hop, fanout in enumerate(fanouts):
            for col in range(bounds[hop], bounds[hop + 1]):
                near = in_edges(edges, int(everything.node[kind[2]][col]))
                _, ids = took.get(col, (hop, []))
                if fanout < 0 or (not replace and len(near) <= fanout):
                    assert ids == near
                elif replace:
                    assert len(ids) == (fanout if near else 0)
                    assert set(ids) <= set(near)
                else:
                    assert len(ids) == len(set(ids)) == fanout
                    assert set(ids) <= set(near)


@ANY
@given(drawn_graphs(), FANOUTS, st.booleans(), st.integers(0, 5))
def test_threads_do_not_matter(drawn: Drawn, fanouts: list[int], replace: bool, batch: int):
    graph = Graph.from_edge_index(**drawn.arguments())
    outs = [
        NeighborSampler(graph, fanouts, replace=replace, threads=threads).sample(
            drawn.given_seeds(), batch=batch
        )
        for threads in (1, 2, 3, 4)
    ]
    for out in outs[1:]:
        assert_equal(outs[0], out)


def test_threads_do_not_matter_for_large_batches():
    graph = Graph.from_edge_index(rmat(20_000, 200_000, seed=3), 20_000)
    seeds = torch.arange(0, 20_000, 7)
    outs = [NeighborSampler(graph, [10, 5], threads=n).sample(seeds, batch=9) for n in (1, 2, 4)]
    assert outs[0].num_sampled_edges[1] > 10_000
    for out in outs[1:]:
        assert_equal(outs[0], out)


def test_same_seed_and_batch_same_sample_else_another():
    graph = Graph.from_edge_index(rmat(2000, 40_000, seed=1), 2000)
    seeds = torch.arange(100)
    first = NeighborSampler(graph, [5, 5], seed=7)
    assert_equal(
        first.sample(seeds, batch=3), NeighborSampler(graph, [5, 5], seed=7).sample(seeds, batch=3)
    )
    for other in (
        first.sample(seeds, batch=4),
        NeighborSampler(graph, [5, 5], seed=8).sample(seeds, batch=3),
    ):
        assert not torch.equal(first.sample(seeds, batch=3).edge[:100], other.edge[:100])


@pytest.mark.parametrize("ids", [torch.int32, torch.int64])
def test_int32_and_int64_ids_are_the_same(ids):
    edges = rmat(300, 3000, seed=5)
    graphs = [Graph.from_edge_index(edges.to(dtype), 300) for dtype in (torch.int32, torch.int64)]
    csc = Graph.from_csc(
        graphs[0].relations[EDGE].indptr,
        graphs[0].relations[EDGE].indices.to(ids),
        edge_ids=graphs[0].relations[EDGE].edge_ids,
    )
    seeds = torch.arange(0, 300, 3, dtype=ids)
    outs = [NeighborSampler(graph, [4, 4]).sample(seeds) for graph in (*graphs, csc)]
    assert_equal(outs[0], outs[1])
    assert_equal(outs[0], outs[2])


def test_duplicate_seeds_stay_and_edges_point_to_the_first():
    edges = torch.tensor([[1, 2, 0], [0, 0, 1]])
    graph = Graph.from_edge_index(edges, 3)
    out = NeighborSampler(graph, [-1, -1]).sample(torch.tensor([0, 1, 0]))
    assert out.node.tolist() == [0, 1, 0, 2]
    assert out.row.tolist() == [1, 3, 0, 1, 3]
    assert out.col.tolist() == [0, 0, 1, 2, 2]
    assert out.num_sampled_nodes == [3, 1, 0]
    assert out.num_sampled_edges == [5, 0]


def test_isolated_nodes_and_empty_seeds():
    graph = Graph.from_edge_index(torch.empty((2, 0), dtype=torch.int64), 4)
    for fanouts in ([3, 3], [-1], []):
        for replace in (False, True):
            out = NeighborSampler(graph, fanouts, replace=replace).sample(torch.tensor([2, 3]))
            assert out.node.tolist() == [2, 3]
            assert out.row.numel() == out.edge.numel() == 0
            out = NeighborSampler(graph, fanouts, replace=replace).sample(
                torch.empty(0, dtype=torch.int64)
            )
            assert out.node.numel() == 0
            assert out.num_sampled_nodes == [0] * (len(fanouts) + 1)


@pytest.mark.parametrize("fanout", [1, 10, 63, 64, 65, 5000, 999_999, -1])
def test_hub_of_a_million_neighbours(fanout):
    graph = star(1_000_000)
    ids = NeighborSampler(graph, [fanout]).sample(torch.tensor([0])).edge
    count = 1_000_000 if fanout < 0 else fanout
    assert ids.numel() == ids.unique().numel() == count
    assert 0 <= int(ids.min()) <= int(ids.max()) < 1_000_000


@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize(("leaves", "fanout"), [(5, 2), (7, 6), (50, 3), (200, 70), (1000, 1)])
def test_every_neighbour_is_as_likely(leaves, fanout, replace):
    graph = star(leaves)
    sampler = NeighborSampler(graph, [fanout], replace=replace, seed=11)
    batches = 40
    seeds = torch.zeros(500, dtype=torch.int64)
    counts = torch.zeros(leaves, dtype=torch.int64)
    for batch in range(batches):
        counts += torch.bincount(sampler.sample(seeds, batch=batch).edge, minlength=leaves)
    draws = batches * 500 * fanout
    # Draws without replacement vary less than the law assumes, so this errs on the lax side there.
    assert int(counts.sum()) == draws
    assert is_likely(counts.tolist(), [draws / leaves] * leaves)


def test_every_set_of_neighbours_is_as_likely():
    graph = star(6)
    sampler = NeighborSampler(graph, [3], seed=2)
    seeds = torch.zeros(20_000, dtype=torch.int64)
    ids = sampler.sample(seeds).edge.view(-1, 3).sort(1).values
    sets = Counter(map(tuple, ids.tolist()))
    assert len(sets) == math.comb(6, 3)
    assert is_likely(list(sets.values()), [1000.0] * 20)


def test_draws_of_neighbouring_entries_hops_and_batches_are_independent():
    graph = star(4)
    seeds = torch.zeros(20_000, dtype=torch.int64)
    sampler = NeighborSampler(graph, [1], replace=True, seed=1)
    first, second = sampler.sample(seeds, batch=0).edge, sampler.sample(seeds, batch=1).edge
    for left, right in ((first[::2], first[1::2]), (first, second)):
        pairs = torch.bincount(left * 4 + right, minlength=16)
        assert is_likely(pairs.tolist(), [left.numel() / 16] * 16)


def test_fanout_of_zero_and_by_edge_type():
    edges = {
        ("u", "likes", "i"): torch.tensor([[0, 1, 2], [0, 0, 0]]),
        ("i", "liked", "u"): torch.tensor([[0, 0], [0, 1]]),
    }
    graph = Graph.from_edge_index(edges, {"u": 3, "i": 1})
    sampler = NeighborSampler(graph, {("u", "likes", "i"): [2, 0], ("i", "liked", "u"): [0, 5]})
    out = sampler.sample({"i": torch.tensor([0])})
    assert out.num_sampled_edges == {
        ("u", "likes", "i"): [2, 0],
        ("i", "liked", "u"): [0, out.row["i", "liked", "u"].numel()],
    }
    assert out.num_sampled_nodes["u"] == [0, 2, 0]
    replay(out, edges, {"i": torch.tensor([0])}, 2, False)


@ANY
@given(drawn_graphs(), st.integers(1, 6), st.booleans(), st.booleans(), st.data())
def test_time_never_comes_from_the_future(
    drawn: Drawn, fanout: int, last: bool, of_nodes: bool, data: st.DataObject
):
    random = torch.Generator().manual_seed(data.draw(st.integers(0, 2**32)))
    draw_times = lambda count: torch.randint(-5, 20, (count,), generator=random)  # noqa: E731
    node_time = {kind: draw_times(count) for kind, count in drawn.num_nodes.items()}
    edge_time = {kind: draw_times(edges.shape[1]) for kind, edges in drawn.edges.items()}
    times = {"node_time": node_time} if of_nodes else {"edge_time": edge_time}
    if not drawn.is_hetero:
        times = {name: next(iter(value.values())) for name, value in times.items()}
    graph = Graph.from_edge_index(**drawn.arguments(), **times)
    seed_time = {kind: draw_times(ids.numel()) for kind, ids in drawn.seeds.items()}
    sampler = NeighborSampler(
        graph, [fanout, fanout], temporal_strategy="last" if last else "uniform"
    )
    out = sampler.sample(
        drawn.given_seeds(), seed_time=seed_time if drawn.is_hetero else seed_time["node"]
    )
    replay(out, drawn.edges, drawn.seeds, 2, True)
    now = torch.cat([seed_time[kind] for kind in drawn.num_nodes])
    out = as_hetero(out)
    for kind, edges in drawn.edges.items():
        time = node_time[kind[0]][edges[0]] if of_nodes else edge_time[kind]
        for col, ids in chosen(out, kind).items():
            until = now[out.batch[kind[2]][col]]
            assert bool((time[ids] <= until).all())
            past = [
                e for e in in_edges(edges, int(out.node[kind[2]][col]), time) if time[e] <= until
            ]
            assert len(ids) == min(fanout, len(past))
            if last:
                assert ids == past[-fanout:]


def test_seeds_bring_their_own_times():
    edges = torch.tensor([[1, 2, 3], [0, 0, 0]])
    graph = Graph.from_edge_index(edges, 4, node_time=torch.tensor([5, 5, 6, 4]))
    out = NeighborSampler(graph, [-1]).sample(torch.tensor([0]))
    assert out.node.tolist() == [0, 3, 1]
    assert out.batch.tolist() == [0, 0, 0]


def test_weights_are_the_law():
    weights = torch.tensor([1.0, 0.0, 3.0, 0.5, 10.0, 1e-3])
    edges = torch.stack([torch.arange(1, 7), torch.zeros(6, dtype=torch.int64)])
    graph = Graph.from_edge_index(edges, 7, edge_weight=weights)
    seeds = torch.zeros(50_000, dtype=torch.int64)
    for replace in (False, True):
        ids = NeighborSampler(graph, [1], replace=replace, seed=4).sample(seeds).edge
        counts = torch.bincount(ids, minlength=6)
        assert counts[1] == 0
        keep = weights > 0
        expected = weights[keep].double() / weights.sum().double() * 50_000
        assert is_likely(counts[keep].tolist(), (expected * 50_000 / expected.sum()).tolist())


def test_weights_without_replacement_are_successive_draws():
    weights = torch.tensor([4.0, 2.0, 1.0, 1.0])
    edges = torch.stack([torch.arange(1, 5), torch.zeros(4, dtype=torch.int64)])
    graph = Graph.from_edge_index(edges, 5, edge_weight=weights)
    seeds = torch.zeros(60_000, dtype=torch.int64)
    ids = NeighborSampler(graph, [2], seed=9).sample(seeds).edge.view(-1, 2)
    sets = Counter(map(tuple, ids.sort(1).values.tolist()))
    share = (weights / weights.sum()).tolist()
    pairs = [(a, b) for a in range(4) for b in range(a + 1, 4)]
    law = [share[a] * share[b] * (1 / (1 - share[a]) + 1 / (1 - share[b])) for a, b in pairs]
    assert is_likely([sets[pair] for pair in pairs], [p * 60_000 for p in law])


def test_weights_of_zero_come_with_all_only():
    weights = torch.tensor([0.0, 2.0, 0.0, 1.0])
    edges = torch.stack([torch.arange(1, 5), torch.zeros(4, dtype=torch.int64)])
    graph = Graph.from_edge_index(edges, 5, edge_weight=weights)
    for fanout in (2, 3, 100):
        ids = NeighborSampler(graph, [fanout]).sample(torch.tensor([0])).edge
        assert sorted(ids.tolist()) == [1, 3]
    assert NeighborSampler(graph, [-1]).sample(torch.tensor([0])).edge.tolist() == [0, 1, 2, 3]
    nothing = Graph.from_edge_index(edges, 5, edge_weight=torch.zeros(4))
    for replace in (False, True):
        out = NeighborSampler(nothing, [2], replace=replace).sample(torch.tensor([0]))
        assert out.edge.numel() == 0


def test_induced_subgraph_has_all_edges_between_its_nodes():
    edges = rmat(200, 3000, seed=8)
    graph = Graph.from_edge_index(edges, 200)
    out = NeighborSampler(graph, [3, 2], subgraph_type="induced").sample(torch.tensor([5, 9, 11]))
    inside = torch.isin(edges[0], out.node) & torch.isin(edges[1], out.node)
    assert sorted(out.edge.tolist()) == inside.nonzero().view(-1).tolist()
    assert torch.equal(out.node[out.row], edges[0][out.edge])
    assert torch.equal(out.node[out.col], edges[1][out.edge])


def test_bidirectional_subgraph_has_the_reverses_once():
    edges = rmat(100, 1000, seed=8)
    graph = Graph.from_edge_index(edges, 100)
    seeds = torch.tensor([5, 9, 11])
    one = NeighborSampler(graph, [3, 2]).sample(seeds)
    out = NeighborSampler(graph, [3, 2], subgraph_type="bidirectional").sample(seeds)
    forward = set(zip(one.row.tolist(), one.col.tolist(), strict=True))
    both = sorted(forward | {(b, a) for a, b in forward})
    assert list(zip(out.row.tolist(), out.col.tolist(), strict=True)) == both
    for row, col, edge in zip(out.row.tolist(), out.col.tolist(), out.edge.tolist(), strict=True):
        ends = (int(edges[0][edge]), int(edges[1][edge]))
        here = (int(out.node[row]), int(out.node[col]))
        assert ends in (here, here[::-1])


def test_without_edge_ids():
    graph = Graph.from_edge_index(rmat(50, 300, seed=8), 50)
    out = NeighborSampler(graph, [3], return_edge_ids=False).sample(torch.tensor([1, 2]))
    assert out.edge is None
    assert out.row.numel() == out.num_sampled_edges[0]


def test_a_sampler_can_be_sent_to_another_process():
    graph = Graph.from_edge_index(rmat(200, 3000, seed=8), 200)
    sampler = NeighborSampler(graph.unified(), [3, 2], seed=4)
    seeds = torch.arange(20)
    assert_equal(pickle.loads(pickle.dumps(sampler)).sample(seeds), sampler.sample(seeds))


def test_errors_name_what_is_wrong():
    graph = star(3)
    with pytest.raises(ValueError, match="hop 1 takes -2"):
        NeighborSampler(graph, [3, -2])
    with pytest.raises(ValueError, match="no edge type"):
        NeighborSampler(graph, {("a", "b", "c"): [1]})
    with pytest.raises(ValueError, match="subgraph_type"):
        NeighborSampler(graph, [1], subgraph_type="undirected")
    with pytest.raises(ValueError, match="no weights"):
        NeighborSampler(graph, [1], weighted=True)
    with pytest.raises(ValueError, match="no times"):
        NeighborSampler(graph, [1], temporal=True)
    with pytest.raises(ValueError, match="seed"):
        NeighborSampler(graph, [1], seed=-1)
    with pytest.raises(UnsupportedError, match="disjoint"):
        NeighborSampler(graph, [1], subgraph_type="induced", disjoint=True)
    sampler = NeighborSampler(graph, [1])
    for bad in (-1, 4):
        with pytest.raises(IndexError, match=rf"node {bad} at position 1 of 2 is not in \[0, 4\)"):
            sampler.sample(torch.tensor([0, bad]))
    with pytest.raises(IndexError, match="node 7 at position 1 of 4"):  # the first, not the least
        sampler.sample(torch.tensor([0, 7, -1, -5]))
    with pytest.raises(TypeError, match="int32 or int64"):
        sampler.sample(torch.tensor([True, False, False, True]))
    with pytest.raises(TypeError, match="must be a tensor"):
        sampler.sample({"node": torch.tensor([0])})
    with pytest.raises(ValueError, match="one dimension"):
        sampler.sample(torch.tensor([[0]]))
    both = Graph.from_edge_index(
        torch.tensor([[0], [1]]), edge_weight=torch.ones(1), edge_time=torch.tensor([3])
    )
    with pytest.raises(UnsupportedError, match="weights and times"):
        NeighborSampler(both, [1])
    with pytest.raises(ValueError, match="no times of their own"):
        NeighborSampler(both, [1], weighted=False).sample(torch.tensor([1]))
