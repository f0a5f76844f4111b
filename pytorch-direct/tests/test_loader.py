# SPDX-License-Identifier: Apache-2.0
"""Batches of ``NeighborLoader`` without PyG: what is in them, and what they are a function of."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sampling_reference import Drawn, drawn_graphs

from pytorch_direct import (
    Batch,
    Graph,
    HeteroBatch,
    NeighborLoader,
    NeighborSampler,
    optim,
    rmat,
    unified,
)

NODES, EDGES = 500, 4000


@pytest.fixture(scope="module")
def edges() -> torch.Tensor:
    return rmat(NODES, EDGES, seed=1)


@pytest.fixture(scope="module")
def graph(edges) -> Graph:
    return Graph.from_edge_index(edges, NODES)


def tensors(batch) -> dict:
    return {
        name: value.clone() if isinstance(value, torch.Tensor) else value
        for name, value in batch.items()
    }


def assert_same(ours, theirs):
    assert set(ours.keys()) == set(theirs.keys())
    for name, value in theirs.items():
        if isinstance(value, torch.Tensor):
            assert torch.equal(ours[name], value), name
        else:
            assert ours[name] == value, name


def test_batches_hold_what_was_sampled(edges, graph):
    x = torch.randn(NODES, 7)
    features = {"x": x, "y": torch.arange(NODES), "edge_attr": torch.arange(EDGES) * 2}
    seeds = torch.randperm(NODES)[:103]
    loader = NeighborLoader((features, graph), [4, 3], seeds, batch_size=20, device="cpu")
    assert len(loader) == 6
    assert len(loader.dataset) == 103
    batches = list(loader)
    assert [batch.batch_size for batch in batches] == [20] * 5 + [3]
    for index, batch in enumerate(batches):
        assert type(batch) is Batch
        mine = torch.arange(index * 20, index * 20 + batch.batch_size)
        assert torch.equal(batch.input_id, mine)
        assert torch.equal(batch.n_id[: batch.batch_size], seeds[mine])
        assert torch.equal(batch.x, x[batch.n_id])
        assert torch.equal(batch.y, batch.n_id)
        assert torch.equal(batch.edge_attr, batch.e_id * 2)
        assert torch.equal(edges[:, batch.e_id], batch.n_id[batch.edge_index])
        assert batch.n_id.unique().numel() == batch.num_nodes
        assert sum(batch.num_sampled_nodes) == batch.num_nodes
        assert sum(batch.num_sampled_edges) == batch.num_edges == batch.e_id.numel()
        assert batch.edge_index[1].bincount().max() <= 4
        assert batch.batch is None
        assert batch.seed_time is None


@settings(max_examples=60, deadline=None)
@given(drawn_graphs(), st.lists(st.sampled_from([-1, 0, 1, 3]), max_size=3), st.integers(0, 3))
def test_every_graph(drawn: Drawn, fanouts: list[int], depth: int):
    graph = Graph.from_edge_index(**drawn.arguments())
    kind = next(iter(drawn.seeds))
    features = {
        name: {"x": torch.randn(count, 2), "empty": torch.empty(count, 0)}
        for name, count in drawn.num_nodes.items()
    }
    seeds = (kind, drawn.seeds[kind])
    if not drawn.is_hetero:
        features, seeds = features[kind], seeds[1]
    loader = NeighborLoader(
        (features, graph), fanouts, seeds, batch_size=3, depth=depth, seed=5, device="cpu"
    )
    for number, batch in enumerate(loader):
        ids = drawn.seeds[kind][number * 3 : number * 3 + 3]
        expected = NeighborSampler(graph, fanouts, seed=5).sample(
            {kind: ids} if drawn.is_hetero else ids, batch=number
        )
        if not drawn.is_hetero:
            assert torch.equal(batch.n_id, expected.node)
            assert torch.equal(batch.edge_index, torch.stack([expected.row, expected.col]))
            continue
        for name, nodes in expected.node.items():
            assert torch.equal(batch[name].n_id, nodes)
            assert torch.equal(batch[name].x, features[name]["x"][nodes])
            assert batch[name].empty.shape == (nodes.numel(), 0)
        for name, row in expected.row.items():
            assert torch.equal(batch[name].edge_index, torch.stack([row, expected.col[name]]))
            assert torch.equal(batch[name].e_id, expected.edge[name])


def test_types_have_stores_of_their_own():
    lists = {
        ("u", "likes", "i"): torch.tensor([[0, 1, 2, 2], [0, 0, 1, 2]]),
        ("i", "liked", "u"): torch.tensor([[0, 1], [1, 0]]),
    }
    graph = Graph.from_edge_index(lists, {"u": 3, "i": 4})
    features = {
        "i": {"x": torch.arange(4.0).view(4, 1), "note": "kept", "weights": torch.ones(9)},
        ("u", "likes", "i"): {"edge_attr": torch.arange(4.0)},
    }
    loader = NeighborLoader((features, graph), [-1, -1], ("i", torch.tensor([0, 3])), batch_size=2)
    (batch,) = loader
    assert type(batch) is HeteroBatch
    assert set(batch.node_types) == {"u", "i"}
    assert set(batch.edge_types) == set(lists)
    assert batch["i"].batch_size == 2
    assert list(batch.x_dict) == ["i"]
    assert torch.equal(batch["i"].x.view(-1), batch["i"].n_id.float())
    assert batch["i"].note == "kept"
    assert torch.equal(batch["i"].weights, torch.ones(9))
    kind = ("u", "likes", "i")
    assert torch.equal(batch[kind].edge_attr, batch[kind].e_id.float())
    assert set(batch.edge_index_dict) == set(lists)
    assert "x" not in batch["u"]
    assert batch["u"].x is None
    with pytest.raises(AttributeError, match="colour"):
        _ = batch["u"].colour
    with pytest.raises(AttributeError, match="colour_dict"):
        _ = batch.colour_dict
    whole = NeighborLoader((features, graph), [1], "u", batch_size=2)
    assert [part["u"].batch_size for part in whole] == [2, 1]


@pytest.mark.parametrize("depth", [0, 1, 3, 50])
@pytest.mark.parametrize("threads", [1, 3])
def test_neither_depth_nor_threads_change_a_batch(graph, depth, threads):
    options = {"batch_size": 32, "shuffle": True, "seed": 11, "device": "cpu"}
    features = {"x": torch.arange(NODES)}
    plain = NeighborLoader((features, graph), [5, 5], depth=0, threads=2, **options)
    loader = NeighborLoader((features, graph), [5, 5], depth=depth, threads=threads, **options)
    for _ in range(2):
        for ours, theirs in zip(loader, plain, strict=True):
            assert_same(ours, theirs)


def test_epochs_and_seeds_differ_and_repeat(graph):
    def epoch(loader) -> list[dict]:
        return [tensors(batch) for batch in loader]

    def make(seed: int) -> NeighborLoader:
        return NeighborLoader(graph, [3], batch_size=100, shuffle=True, seed=seed, device="cpu")

    loader = make(1)
    first, second = epoch(loader), epoch(loader)
    assert loader.epoch == 2
    ids = [torch.cat([batch["input_id"] for batch in run]) for run in (first, second)]
    assert not torch.equal(*ids)
    for run in ids:
        assert torch.equal(run.sort().values, torch.arange(NODES))
    loader.set_epoch(0)
    again = epoch(loader)
    fresh = epoch(make(1))
    other = epoch(make(2))
    for mine, theirs, new in zip(again, first, fresh, strict=True):
        assert_same(mine, theirs)
        assert_same(new, theirs)
    assert not torch.equal(other[0]["n_id"], first[0]["n_id"])
    # Neighbours change with the epoch too where seeds stay as they are.
    still = NeighborLoader(graph, [3], batch_size=100, seed=1, device="cpu")
    runs = [epoch(still) for _ in range(2)]
    assert torch.equal(runs[0][0]["input_id"], runs[1][0]["input_id"])
    assert not torch.equal(runs[0][0]["e_id"], runs[1][0]["e_id"])


def test_the_seed_is_drawn_from_a_generator(graph):
    def drawn(**options) -> int:
        return NeighborLoader(graph, [1], device="cpu", **options).seed

    torch.manual_seed(3)
    first = drawn()
    torch.manual_seed(3)
    assert drawn() == first
    assert drawn() != first
    same = [drawn(generator=torch.Generator().manual_seed(4)) for _ in range(2)]
    assert same[0] == same[1]


def test_calling_a_loader_gives_one_batch(graph):
    loader = NeighborLoader(graph, [2], torch.arange(100, 200), device="cpu", seed=1)
    batch = loader([3, 5])
    assert batch.n_id[:2].tolist() == [103, 105]
    assert_same(loader(torch.tensor([3, 5])), batch)
    with pytest.raises(IndexError, match="position 100"):
        loader([100])


@pytest.mark.parametrize("disjoint", [False, True])
def test_disjoint_and_temporal(edges, disjoint):
    time = torch.randint(0, 100, (NODES,), generator=torch.Generator().manual_seed(1))
    graph = Graph.from_edge_index(edges, NODES, node_time=time)
    features = {"batch": torch.zeros(NODES)}
    seeds = torch.arange(0, NODES, 7)
    given = torch.full_like(seeds, 40) if disjoint else None
    loader = NeighborLoader(
        (features, graph),
        [5, 5],
        seeds,
        given,
        batch_size=10,
        temporal_strategy="last",
        device="cpu",
    )
    for batch in loader:
        assert batch.batch.shape == batch.n_id.shape
        assert torch.equal(batch.batch[: batch.batch_size], torch.arange(batch.batch_size))
        limit = time[batch.n_id[: batch.batch_size]] if given is None else batch.seed_time
        later = time[batch.n_id] > limit[batch.batch]
        assert not later[batch.batch_size :].any()


def test_weights_are_used(edges):
    weight = (torch.arange(EDGES) % 3 == 0).float()
    graph = Graph.from_edge_index(edges, NODES, edge_weight=weight)
    for batch in NeighborLoader(graph, [4], batch_size=50, device="cpu"):
        assert (weight[batch.e_id] > 0).all()


@pytest.mark.parametrize("kind", ["ids", "list", "array", "int32", "mask", "unified"])
def test_seeds_come_in_many_forms(graph, kind):
    wanted = [5, 3, 77]
    given = {
        "ids": torch.tensor(wanted),
        "list": wanted,
        "array": np.array(wanted),
        "int32": torch.tensor(wanted, dtype=torch.int32),
        "mask": torch.zeros(NODES, dtype=torch.bool).index_fill(0, torch.tensor(wanted), True),
        "unified": unified(torch.tensor(wanted)),
    }[kind]
    (batch,) = NeighborLoader(graph, [2], given, batch_size=5, device="cpu")
    if kind == "mask":
        assert batch.n_id[:3].tolist() == sorted(wanted)
        assert batch.input_id.tolist() == sorted(wanted)
    else:
        assert batch.n_id[:3].tolist() == wanted
        assert batch.input_id.tolist() == [0, 1, 2]


def test_duplicate_seeds_stay(graph):
    (batch,) = NeighborLoader(graph, [2], [7, 7, 3], batch_size=3, device="cpu")
    assert batch.n_id[:3].tolist() == [7, 7, 3]
    assert batch.batch_size == 3


def test_no_seeds_and_isolated_nodes():
    graph = Graph.from_edge_index(torch.empty(2, 0, dtype=torch.int64), 4)
    loader = NeighborLoader(graph, [3, 3], [], device="cpu", batch_size=8, shuffle=True)
    assert len(loader) == 0
    assert list(loader) == []
    (batch,) = NeighborLoader(
        ({"x": torch.eye(4)}, graph), [3, 3], [2, 1], batch_size=8, device="cpu"
    )
    assert torch.equal(batch.x, torch.eye(4)[[2, 1]])
    assert batch.edge_index.shape == (2, 0)
    assert batch.num_sampled_nodes == [2, 0, 0]
    nothing = Graph.from_edge_index(torch.empty(2, 0, dtype=torch.int64), 0)
    assert list(NeighborLoader(({"x": torch.empty(0, 3)}, nothing), [2], device="cpu")) == []


def test_attributes_of_every_dtype(dtype, graph):
    source = torch.randint(0, 2, (NODES, 3 * dtype.itemsize), dtype=torch.uint8).view(dtype)
    loader = NeighborLoader(({"x": source}, graph), [2], batch_size=100, device="cpu")
    for batch in loader:
        assert batch.x.dtype == dtype
        assert torch.equal(batch.x.view(torch.uint8), source.view(torch.uint8)[batch.n_id])


def test_attributes_in_many_forms(graph, tmp_path):
    base = torch.randn(NODES, 9)
    np.save(tmp_path / "mapped.npy", base.numpy())
    features = {
        "unified": unified(base.clone()),
        "strided": base[:, ::2],
        "array": base.numpy(),
        "mapped": np.load(tmp_path / "mapped.npy", mmap_mode="r"),
        "sparse": base.relu().to_sparse(),
        "flat": base[:, 0],
        "scalar": torch.tensor(3.0),
        "other": torch.ones(17),
        "name": "a graph",
    }
    for batch in NeighborLoader((features, graph), [2], batch_size=100, device="cpu"):
        ids = batch.n_id
        for name in ("unified", "array", "mapped"):
            assert type(batch[name]) is torch.Tensor
            assert torch.equal(batch[name], base[ids])
        assert torch.equal(batch.strided, base[ids][:, ::2])
        assert torch.equal(batch.sparse.to_dense(), base.relu()[ids])
        assert torch.equal(batch.flat, base[ids, 0])
        assert batch.scalar is features["scalar"]
        assert batch.other is features["other"]
        assert batch.name == "a graph"


def test_as_many_edges_as_nodes_are_told_apart_by_name():
    graph = Graph.from_edge_index(torch.tensor([[0, 1, 2], [1, 2, 0]]), 3)
    features = {"x": torch.arange(3), "edge_attr": torch.arange(3) + 10}
    (batch,) = NeighborLoader((features, graph), [1], [1], device="cpu")
    assert torch.equal(batch.x, batch.n_id)
    assert torch.equal(batch.edge_attr, batch.e_id + 10)


def test_without_edge_ids_attributes_of_edges_are_left_out(graph):
    features = {"x": torch.arange(NODES), "edge_attr": torch.arange(EDGES)}
    loader = NeighborLoader((features, graph), [2], [1], return_edge_ids=False, device="cpu")
    (batch,) = loader
    assert "e_id" not in batch
    assert batch.edge_attr is None
    assert torch.equal(batch.x, batch.n_id)


def test_changes_between_epochs_are_seen(graph):
    features = {"x": torch.zeros(NODES, 2)}
    loader = NeighborLoader((features, graph), [2], batch_size=100, device="cpu")
    for batch in loader:
        assert (batch.x == 0).all()
    features["x"] += 1
    for batch in loader:
        assert (batch.x == 1).all()
    features["x"] = torch.full((NODES, 4), 7.0)
    features["new"] = torch.arange(NODES)
    for batch in loader:
        assert batch.x.shape[1] == 4
        assert (batch.x == 7).all()
        assert torch.equal(batch.new, batch.n_id)


def test_other_memory_behind_an_attribute_is_seen(graph):
    x = torch.zeros(NODES, 2)
    loader = NeighborLoader(({"x": x}, graph), [2], batch_size=100, device="cpu")
    list(loader)
    x.data = torch.ones(NODES, 3)
    for batch in loader:
        assert (batch.x == torch.ones(3)).all()
    x.requires_grad_()
    for batch in loader:
        assert batch.x.requires_grad


def test_rows_that_require_gradients_are_never_stale(graph):
    weight = torch.zeros(NODES, 2, requires_grad=True)
    loader = NeighborLoader(({"x": weight}, graph), [2], batch_size=10, depth=4, device="cpu")
    for step, batch in enumerate(loader):
        assert torch.equal(batch.x.detach(), weight.detach()[batch.n_id])
        assert (batch.x == step).all()
        weight.grad = None
        batch.x.sum().backward()
        assert weight.grad.to_dense().sum() == 2 * batch.num_nodes
        with torch.no_grad():
            weight += 1


def test_embeddings_are_trained(graph):
    table = unified(torch.randn(NODES, 3)).requires_grad_()
    before = table.detach().clone()
    optimizer = optim.SparseSGD([table], lr=1.0)
    loader = NeighborLoader(({"x": table}, graph), [3], range(100), batch_size=30, device="cpu")
    times = torch.zeros(NODES)
    for batch in loader:
        optimizer.zero_grad()
        assert torch.equal(batch.x.detach(), table.detach()[batch.n_id])
        (batch.x * 2).sum().backward()
        optimizer.step()
        times[batch.n_id] += 1
    torch.testing.assert_close(table.detach(), before - 2 * times[:, None])


def test_transforms(graph):
    def tenfold(output):
        output.node = output.node.clone()
        return output

    seen = []

    def transform(batch):
        seen.append(torch.is_grad_enabled())
        return batch.n_id.numel(), torch.rand(())

    loader = NeighborLoader(
        graph, [2], batch_size=100, device="cpu", transform=transform, depth=2,
        transform_sampler_output=tenfold,
    )  # fmt: skip
    torch.manual_seed(0)
    expected = [torch.rand(()) for _ in range(5)]
    torch.manual_seed(0)
    for (count, drawn), own in zip(loader, expected, strict=True):
        assert count >= 100
        assert drawn == own
    assert seen == [True] * 5


def test_loaders_share_a_sampler(graph):
    sampler = NeighborSampler(graph, [2, 2], seed=8)
    loader = NeighborLoader(graph, None, batch_size=50, neighbor_sampler=sampler, device="cpu")
    assert loader.graph is graph
    assert loader.neighbor_sampler is sampler
    for number, batch in enumerate(loader):
        seeds = torch.arange(number * 50, number * 50 + 50)
        assert torch.equal(batch.n_id, sampler.sample(seeds, batch=number).node)


def test_another_default_device_changes_nothing(graph):
    expected = [tensors(b) for b in NeighborLoader(graph, [2], batch_size=99, seed=1, device="cpu")]
    for depth in (0, 2):
        with torch.device("meta"):
            loader = NeighborLoader(graph, [2], batch_size=99, seed=1, device="cpu", depth=depth)
            for ours, theirs in zip(loader, expected, strict=True):
                assert_same(ours, theirs)


def test_batches_describe_themselves_and_move(graph):
    (batch,) = NeighborLoader(({"x": torch.eye(NODES)}, graph), [1], [1], device="cpu")
    assert "n_id=[" in repr(batch)
    assert batch.to("cpu") is batch
    moved = batch.to("meta")
    assert moved.x.device.type == "meta"
    del batch.x
    assert batch.x is None
