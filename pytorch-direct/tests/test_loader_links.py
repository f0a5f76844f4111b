# SPDX-License-Identifier: Apache-2.0
"""Batches of ``LinkNeighborLoader`` without PyG."""

from __future__ import annotations

import pytest
import torch
from scipy import stats

from pytorch_direct import Graph, LinkNeighborLoader, NegativeSampling, rmat

NODES, EDGES = 300, 2500


@pytest.fixture(scope="module")
def edges() -> torch.Tensor:
    return rmat(NODES, EDGES, seed=2)


@pytest.fixture(scope="module")
def graph(edges) -> Graph:
    return Graph.from_edge_index(edges, NODES)


@pytest.fixture
def x() -> torch.Tensor:
    return torch.randn(NODES, 3)


@pytest.mark.parametrize("disjoint", [False, True])
def test_positives_are_the_links(edges, graph, x, disjoint):
    loader = LinkNeighborLoader(
        ({"x": x}, graph), [3, 2], batch_size=40, disjoint=disjoint, device="cpu"
    )
    assert len(loader) == 63
    for index, batch in enumerate(loader):
        mine = torch.arange(index * 40, min(index * 40 + 40, EDGES))
        assert torch.equal(batch.input_id, mine)
        assert torch.equal(batch.n_id[batch.edge_label_index], edges[:, mine])
        assert torch.equal(edges[:, batch.e_id], batch.n_id[batch.edge_index])
        assert torch.equal(batch.x, x[batch.n_id])
        assert "edge_label" not in batch
        if disjoint:
            ends = batch.batch[batch.edge_label_index]
            assert torch.equal(ends[0], torch.arange(mine.numel()))
            assert torch.equal(ends[0], ends[1])


@pytest.mark.parametrize("amount", [1, 2.5])
@pytest.mark.parametrize("labels", [None, "from 0", "from 1", "real"])
def test_binary_negatives(edges, graph, amount, labels):
    links = edges[:, :100]
    given = {
        None: None,
        "from 0": torch.arange(100) % 3,
        "from 1": torch.arange(100) % 3 + 1,
        "real": torch.rand(100) + 0.5,
    }[labels]
    loader = LinkNeighborLoader(
        graph, [2], links, given, batch_size=30, shuffle=True, device="cpu",
        neg_sampling=NegativeSampling("binary", amount),
    )  # fmt: skip
    for batch in loader:
        links_here = batch.input_id.numel()
        ends = batch.n_id[batch.edge_label_index]
        assert torch.equal(ends[:, :links_here], links[:, batch.input_id])
        assert ends.shape[1] - links_here == -int(-links_here * amount // 1)
        assert (batch.edge_label[links_here:] == 0).all()
        positive = batch.edge_label[:links_here]
        if given is None:
            assert (positive == 1).all()
        else:
            raised = given + 1 if labels == "from 0" else given
            assert torch.equal(positive, raised[batch.input_id])


@pytest.mark.parametrize("amount", [1, 3])
def test_triplets(edges, graph, x, amount):
    loader = LinkNeighborLoader(
        ({"x": x, "edge_label_index": torch.ones(2, 7)}, graph), [2], batch_size=25, device="cpu",
        neg_sampling=NegativeSampling("triplet", amount),
    )  # fmt: skip
    for batch in loader:
        mine = edges[:, batch.input_id]
        assert torch.equal(batch.n_id[batch.src_index], mine[0])
        assert torch.equal(batch.n_id[batch.dst_pos_index], mine[1])
        shape = (mine.shape[1],) if amount == 1 else (mine.shape[1], amount)
        assert batch.dst_neg_index.shape == shape
        assert batch.dst_neg_index.max() < batch.num_nodes
        assert "edge_label_index" not in batch


def test_negatives_are_uniform_and_differ_by_epoch(graph):
    loader = LinkNeighborLoader(
        graph, [0], torch.zeros(2, 3000, dtype=torch.int64), batch_size=500, seed=2,
        neg_sampling="binary", device="cpu",
    )  # fmt: skip
    drawn = []
    for _ in range(4):
        ends = [b.n_id[b.edge_label_index[:, b.input_id.numel() :]] for b in loader]
        drawn.append(torch.cat(ends, dim=1))
    assert not torch.equal(drawn[0], drawn[1])
    for end in range(2):
        counts = torch.cat([part[end] for part in drawn]).bincount(minlength=NODES)
        assert stats.chisquare(counts).pvalue > 1e-6


@pytest.mark.parametrize("mode", [None, "binary", "triplet"])
def test_types(mode):
    generator = torch.Generator().manual_seed(4)
    sizes = {"u": 40, "i": 60}
    kind, back = ("u", "likes", "i"), ("i", "liked", "u")
    likes = torch.stack([torch.randint(0, n, (200,), generator=generator) for n in (40, 60)])
    graph = Graph.from_edge_index({kind: likes, back: likes.flip(0)}, sizes)
    features = {name: {"x": torch.randn(n, 2)} for name, n in sizes.items()}
    loader = LinkNeighborLoader(
        (features, graph), [2, 2], kind, batch_size=16, neg_sampling=mode, device="cpu"
    )
    for batch in loader:
        for name in sizes:
            assert torch.equal(batch[name].x, features[name]["x"][batch[name].n_id])
        mine = batch[kind].input_id
        if mode == "triplet":
            ends = torch.stack(
                [
                    batch["u"].n_id[batch["u"].src_index],
                    batch["i"].n_id[batch["i"].dst_pos_index],
                ]
            )
            assert batch["i"].dst_neg_index.shape == mine.shape
        else:
            index = batch[kind].edge_label_index[:, : mine.numel()]
            ends = torch.stack([batch["u"].n_id[index[0]], batch["i"].n_id[index[1]]])
        assert torch.equal(ends, likes[:, mine])


def test_links_with_times_see_the_past(edges):
    time = torch.randint(0, 100, (NODES,), generator=torch.Generator().manual_seed(1))
    graph = Graph.from_edge_index(edges, NODES, node_time=time)
    links = edges[:, :200]
    when = time[links].max(dim=0).values
    loader = LinkNeighborLoader(graph, [4, 4], links, None, when, batch_size=20, device="cpu")
    for batch in loader:
        assert torch.equal(batch.edge_label_time, when[batch.input_id])
        assert (time[batch.n_id] <= batch.edge_label_time[batch.batch]).all()
    with pytest.raises(ValueError, match="go together"):
        LinkNeighborLoader(graph, [4], links, device="cpu")


def test_all_edges_of_a_unified_graph(edges, graph):
    loader = LinkNeighborLoader(graph.unified(), [1], batch_size=EDGES, device="cpu")
    (batch,) = loader
    assert torch.equal(batch.n_id[batch.edge_label_index], edges)


def test_no_links(graph):
    for mode in (None, "binary", "triplet"):
        loader = LinkNeighborLoader(
            graph, [2], torch.empty(2, 0, dtype=torch.int64), neg_sampling=mode, device="cpu"
        )
        assert list(loader) == []
