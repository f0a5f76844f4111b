# SPDX-License-Identifier: Apache-2.0
"""Links as seeds: negatives, their law, and where PyG's metadata says they are."""

from __future__ import annotations

import pytest
import torch
from sampling_reference import EDGE
from scipy import stats

from pytorch_direct import Graph, NegativeSampling, NeighborSampler, rmat


@pytest.fixture
def graph() -> Graph:
    return Graph.from_edge_index(rmat(100, 1000, seed=1), 100)


LINKS = torch.tensor([[3, 4, 3, 9], [4, 5, 90, 3]])


def test_links_without_negatives(graph):
    out = NeighborSampler(graph, [2]).sample_links(LINKS, edge_label=torch.arange(4))
    _, where, label, time = out.metadata
    assert torch.equal(out.node[where], LINKS)
    assert label.tolist() == [0, 1, 2, 3]
    assert time is None
    assert out.num_sampled_nodes[0] == LINKS.unique().numel()
    assert out.node[: out.num_sampled_nodes[0]].tolist() == LINKS.unique().tolist()


@pytest.mark.parametrize("amount", [1, 2, 1.5, 0.3])
def test_binary_negatives(graph, amount):
    negatives = NegativeSampling("binary", amount)
    out = NeighborSampler(graph, [2], seed=5).sample_links(LINKS, neg_sampling=negatives, batch=2)
    input_id, where, label, _ = out.metadata
    count = negatives.count(4)
    assert input_id is None
    assert where.shape == (2, 4 + count)
    assert torch.equal(out.node[where[:, :4]], LINKS)
    assert label.tolist() == [1.0] * 4 + [0.0] * count
    again = NeighborSampler(graph, [2], seed=5).sample_links(LINKS, neg_sampling=negatives, batch=2)
    assert torch.equal(again.metadata[1], where)
    assert torch.equal(again.node, out.node)


def test_triplets(graph):
    out = NeighborSampler(graph, [2]).sample_links(
        LINKS, neg_sampling=NegativeSampling("triplet", 3), input_id=torch.arange(4)
    )
    input_id, src, positive, negative, _ = out.metadata
    assert input_id.tolist() == [0, 1, 2, 3]
    assert torch.equal(out.node[src], LINKS[0])
    assert torch.equal(out.node[positive], LINKS[1])
    assert negative.shape == (4, 3)
    one = NeighborSampler(graph, [2]).sample_links(LINKS, neg_sampling=NegativeSampling("triplet"))
    assert one.metadata[3].shape == (4,)


@pytest.mark.parametrize("amount", [1, 2])
def test_disjoint_triplets_share_the_number_of_their_link(graph, amount):
    out = NeighborSampler(graph, [2], disjoint=True).sample_links(
        LINKS, neg_sampling=NegativeSampling("triplet", amount)
    )
    _, src, positive, negative, _ = out.metadata
    assert torch.equal(out.node[src], LINKS[0])
    assert torch.equal(out.node[positive], LINKS[1])
    assert out.batch[src].tolist() == out.batch[positive].tolist() == [0, 1, 2, 3]
    for of in out.batch[negative].view(4, -1).t():
        assert of.tolist() == [0, 1, 2, 3]
    assert int(out.batch.max()) == 3


@pytest.mark.parametrize("amount", [1, 0.4, 1.6])
def test_disjoint_links_share_the_number_of_their_link(graph, amount):
    negatives = NegativeSampling("binary", amount)
    out = NeighborSampler(graph, [2], disjoint=True).sample_links(LINKS, neg_sampling=negatives)
    where = out.metadata[1]
    numbers = torch.arange(4 + negatives.count(4)) % 4
    for end in where:
        assert torch.equal(out.batch[end], numbers)


def test_hetero_links_have_seeds_of_two_types():
    edges = torch.stack([torch.randint(0, 20, (200,)), torch.randint(0, 30, (200,))])
    kind = ("u", "likes", "i")
    graph = Graph.from_edge_index(
        {kind: edges, ("i", "liked", "u"): edges.flip(0)}, {"u": 20, "i": 30}
    )
    links = edges[:, :5]
    for disjoint in (False, True):
        out = NeighborSampler(graph, [2, 2], disjoint=disjoint).sample_links(
            (kind, links), neg_sampling=NegativeSampling("binary", 1.4)
        )
        where = out.metadata[1]
        assert where.shape == (2, 12)
        assert torch.equal(out.node["u"][where[0, :5]], links[0])
        assert torch.equal(out.node["i"][where[1, :5]], links[1])
        if disjoint:
            for end, name in enumerate(("u", "i")):
                assert out.batch[name][where[end, :5]].tolist() == [0, 1, 2, 3, 4]
    with pytest.raises(TypeError, match="pair"):
        NeighborSampler(graph, [2]).sample_links(links)


def test_negatives_follow_their_weights(graph):
    weight = torch.zeros(100)
    weight[[2, 50, 99]] = torch.tensor([1.0, 2.0, 5.0])
    links = torch.zeros((2, 8000), dtype=torch.int64)
    out = NeighborSampler(graph, []).sample_links(
        links, neg_sampling=NegativeSampling("binary", 1, src_weight=weight)
    )
    drawn = torch.bincount(out.node[out.metadata[1][0, 8000:]], minlength=100)
    assert drawn.nonzero().view(-1).tolist() == [2, 50, 99]
    assert stats.chisquare(drawn[[2, 50, 99]].tolist(), [1000, 2000, 5000]).pvalue > 1e-6
    uniform = torch.bincount(out.node[out.metadata[1][1, 8000:]], minlength=100)
    assert stats.chisquare(uniform.tolist()).pvalue > 1e-6


def test_negatives_are_not_from_the_future():
    edges = rmat(100, 1000, seed=1)
    time = torch.arange(100)
    graph = Graph.from_edge_index(edges, 100, node_time=time)
    link_time = torch.tensor([0, 40, 99, 20])
    out = NeighborSampler(graph, [3]).sample_links(
        torch.zeros((2, 4), dtype=torch.int64),
        edge_label_time=link_time,
        neg_sampling=NegativeSampling("binary", 5),
    )
    where = out.metadata[1]
    assert where.shape == (2, 24)
    until = link_time.repeat(6)
    for end in where:
        assert bool((time[out.node[end]] <= until).all())
    assert torch.equal(out.metadata[3], until)
    # Each end's neighbours are from the past of its link too.
    assert bool((time[out.node] <= link_time[out.batch]).all())


def test_errors_name_what_is_wrong(graph):
    with pytest.raises(ValueError, match="amount must be above 0"):
        NegativeSampling("binary", 0)
    with pytest.raises(ValueError, match="whole"):
        NegativeSampling("triplet", 1.5)
    with pytest.raises(ValueError, match="'binary' or 'triplet'"):
        NegativeSampling("other")
    with pytest.raises(ValueError, match="no weight is above 0"):
        NegativeSampling("binary", 1, torch.zeros(3))
    sampler = NeighborSampler(graph, [1])
    with pytest.raises(IndexError, match=r"edge_label_index\[1\]: node 100 at position 0"):
        sampler.sample_links(torch.tensor([[0], [100]]))
    with pytest.raises(ValueError, match="3 weights, but there are 100 nodes"):
        sampler.sample_links(LINKS, neg_sampling=NegativeSampling("binary", 1, torch.ones(3)))
    with pytest.raises(ValueError, match="no labels"):
        sampler.sample_links(
            LINKS, edge_label=torch.ones(4), neg_sampling=NegativeSampling("triplet")
        )
    with pytest.raises(ValueError, match="not temporal"):
        sampler.sample_links(LINKS, edge_label_time=torch.ones(4).long())
    timed = NeighborSampler(
        Graph.from_edge_index(rmat(9, 9, seed=1), 9, edge_time=torch.arange(9)), [1]
    )
    with pytest.raises(ValueError, match="needs edge_label_time"):
        timed.sample_links(torch.tensor([[0], [1]]))
    assert EDGE in graph.relations
