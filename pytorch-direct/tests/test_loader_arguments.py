# SPDX-License-Identifier: Apache-2.0
"""What loaders take, take without effect, and refuse, with the texts that say so."""

from __future__ import annotations

import warnings

import pytest
import torch

from datapath_core import UnsupportedError
from pytorch_direct import Graph, LinkNeighborLoader, NegativeSampling, NeighborLoader, rmat
from pytorch_direct.loader import said

NODES = 100


@pytest.fixture(scope="module")
def graph() -> Graph:
    return Graph.from_edge_index(rmat(NODES, 600, seed=1), NODES)


@pytest.fixture(scope="module")
def typed() -> Graph:
    return Graph.from_edge_index(
        {("u", "to", "i"): torch.tensor([[0, 1], [2, 0]])}, {"u": 2, "i": 3}
    )


def test_workers_and_pinning_are_said_once(graph, monkeypatch):
    monkeypatch.setattr(said, "_said", set())
    given = {
        "num_workers": 4, "pin_memory": True, "persistent_workers": True, "prefetch_factor": 2,
        "is_sorted": True, "filter_per_worker": False,
    }  # fmt: skip
    with pytest.warns(UserWarning, match="num_workers= has no effect.*depth=") as heard:
        loader = NeighborLoader(graph, [2], device="cpu", batch_size=50, **given)
    assert len(heard) == 1
    assert heard[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = NeighborLoader(graph, [2], device="cpu", **given)
        NeighborLoader(graph, [2], device="cpu", num_workers=0, pin_memory=False)
    assert len(list(loader)) == 2
    assert len(again) == NODES


@pytest.mark.parametrize(
    ("given", "error", "text"),
    [
        ({"batch_siez": 3}, TypeError, "no argument 'batch_siez'"),
        ({"batch_size": 0}, ValueError, "at least 1"),
        ({"batch_size": None}, UnsupportedError, "batch_size=None"),
        ({"depth": -1}, ValueError, "depth"),
        ({"sm_share": 0.0}, ValueError, "sm_share must be in"),
        ({"seed": -1}, ValueError, "seed must be in"),
        ({"seed": 1, "generator": torch.Generator()}, ValueError, "not both"),
        ({"transform": 3}, TypeError, "transform must be callable"),
        ({"rank": 1}, ValueError, "go together"),
        ({"rank": 2, "world_size": 2}, ValueError, "rank must be in"),
        ({"shuffle": True, "sampler": [1]}, ValueError, "sampler= gives the order"),
        ({"batch_sampler": [[1]], "batch_size": 3}, ValueError, "leave batch_size"),
        ({"batch_sampler": [[1]], "rank": 0, "world_size": 2}, ValueError, "each rank"),
        ({"time_attr": "time"}, ValueError, "Graph has its weights and times"),
        ({"neighbor_sampler": object()}, UnsupportedError, "pytorch_direct.NeighborSampler"),
        ({"device": "meta"}, UnsupportedError, "CPU or CUDA"),
        ({"graph_device": "cuda:0"}, ValueError, "that a GPU samples"),
        ({"input_nodes": [NODES]}, IndexError, "node 100 at position 0"),
        ({"input_nodes": [3, NODES, -1]}, IndexError, "node 100 at position 1"),
        ({"input_nodes": [-1]}, IndexError, "node -1"),
        ({"input_nodes": [0.5]}, TypeError, "ids or be a mask"),
        ({"input_nodes": [[1, 2]]}, ValueError, "one dimension"),
        ({"input_nodes": [True, False]}, ValueError, "a mask of 2 for 100 nodes"),
        ({"input_nodes": "node"}, TypeError, "input_nodes"),
        ({"input_nodes": [1, 2], "input_id": [1]}, ValueError, "input_id has shape"),
        ({"input_time": [1] * NODES}, ValueError, "no times"),
        ({"replace": False, "subgraph_type": "all"}, ValueError, "subgraph_type"),
    ],
)
def test_refused(graph, given, error, text):
    with pytest.raises(error, match=text):
        NeighborLoader(graph, [2], **{"device": "cpu", **given})


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_no_gpu_is_said_or_done_without(graph):
    assert NeighborLoader(graph, [2]).device == torch.device("cpu")
    for device in ("cuda", 0, "cuda:3"):
        with pytest.raises(UnsupportedError, match="sees no GPU"):
            NeighborLoader(graph, [2], device=device)


@pytest.mark.parametrize("data", [3, "x", (1, 2), ({}, 3), ([], [], []), torch.ones(2)])
def test_other_data_is_refused(data):
    with pytest.raises(TypeError, match="a loader takes a torch_geometric Data"):
        NeighborLoader(data, [2])


@pytest.mark.parametrize(
    ("features", "error", "text"),
    [
        ({"node": {"x": 1}}, TypeError, "dict of tensors by name"),
        ({3: torch.ones(NODES)}, TypeError, "dict of tensors by name"),
        ({"x": ["a"] * NODES}, TypeError, "'x' of nodes 'node' is a list"),
    ],
)
def test_features_that_do_not_fit(graph, features, error, text):
    with pytest.raises(error, match=text):
        list(NeighborLoader((features, graph), [2], device="cpu"))


def test_types_are_named(typed):
    with pytest.raises(ValueError, match="there is no type 'user'"):
        NeighborLoader(({"user": {}}, typed), [2], "u", device="cpu")
    with pytest.raises(TypeError, match="must be a dict by name"):
        NeighborLoader(({"u": torch.ones(2)}, typed), [2], "u", device="cpu")
    with pytest.raises(ValueError, match="there is no node type 'user'"):
        NeighborLoader(typed, [2], "user", device="cpu")
    for given in (None, torch.ones(2), ("u", 1, 2)):
        with pytest.raises(TypeError, match="a node type or a pair"):
            NeighborLoader(typed, [2], given, device="cpu")


@pytest.mark.parametrize(
    ("given", "error", "text"),
    [
        ({"edge_label_index": torch.zeros(3, 2)}, ValueError, "shape .2, links."),
        ({"edge_label_index": torch.tensor([[0], [NODES]])}, IndexError, r"index\[1\]: node 100"),
        ({"edge_label": torch.ones(3)}, ValueError, "edge_label has shape"),
        (
            {"edge_label": torch.ones(600), "neg_sampling": "triplet"},
            ValueError,
            "triplets, which have no labels",
        ),
        ({"edge_label_time": torch.ones(600).long()}, ValueError, "go together"),
        ({"neg_sampling": 3}, TypeError, "neg_sampling must be"),
        ({"neg_sampling": "ternary"}, ValueError, "mode must be"),
        ({"input_id": [1]}, ValueError, "input_id has shape"),
    ],
)
def test_links_refused(graph, given, error, text):
    with pytest.raises(error, match=text):
        LinkNeighborLoader(graph, [2], device="cpu", **given)


def test_links_of_types_are_named(typed):
    for given in (None, torch.zeros(2, 1, dtype=torch.int64)):
        with pytest.raises(TypeError, match="an edge type or a pair"):
            LinkNeighborLoader(typed, [2], given, device="cpu")
    with pytest.raises(ValueError, match="no node type 'x'"):
        LinkNeighborLoader(typed, [2], ("u", "to", "x"), device="cpu")
    with pytest.raises(ValueError, match="names 0 edge types"):
        LinkNeighborLoader(typed, [2], ("u", "u"), device="cpu")
    with pytest.raises(ValueError, match="is no edge type of the graph"):
        LinkNeighborLoader(typed, [2], ("u", "other", "i"), device="cpu")
    for given in (("u", "to", "i"), ("u", "i"), [("u", "to", "i"), None]):
        (batch,) = LinkNeighborLoader(typed, [2], given, device="cpu", batch_size=2)
        assert batch["u", "to", "i"].edge_label_index.shape == (2, 2)


@pytest.mark.parametrize(
    "given",
    ["binary", {"mode": "binary", "amount": 1}, ("binary", 1), NegativeSampling("binary", 1)],
)
def test_negatives_in_many_forms(graph, given):
    loader = LinkNeighborLoader(graph, [2], batch_size=100, neg_sampling=given, device="cpu")
    assert next(iter(loader)).edge_label.tolist() == [1.0] * 100 + [0.0] * 100
    older = LinkNeighborLoader(graph, [2], batch_size=100, neg_sampling_ratio=1.0, device="cpu")
    assert next(iter(older)).edge_label.tolist() == [1.0] * 100 + [0.0] * 100


def test_set_epoch_has_bounds(graph):
    loader = NeighborLoader(graph, [2], device="cpu")
    for epoch in (-1, 2**23):
        with pytest.raises(ValueError, match="epoch must be in"):
            loader.set_epoch(epoch)


def test_a_loader_describes_itself(graph):
    text = repr(NeighborLoader(graph, [2], batch_size=30, device="cpu"))
    assert text == f"NeighborLoader({graph}, batches=4, device=cpu)"
