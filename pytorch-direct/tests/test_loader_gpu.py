# SPDX-License-Identifier: Apache-2.0
"""Loaders on a GPU: batches equal to the CPU's, memory handed over in stream order, clean ends."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest
import torch

from datapath_core import UnsupportedError
from pytorch_direct import (
    Graph,
    LinkNeighborLoader,
    NegativeSampling,
    NeighborLoader,
    check,
    optim,
    rmat,
    unified,
)
from pytorch_direct.memory.registration import Registration

pytestmark = pytest.mark.gpu

NODES, EDGES = 20_000, 200_000


@pytest.fixture(autouse=True)
def no_error_is_left_behind(cuda):
    check()
    yield
    check()
    torch.cuda.synchronize()


@pytest.fixture(scope="module")
def edges() -> torch.Tensor:
    return rmat(NODES, EDGES, seed=1)


@pytest.fixture(scope="module")
def graph(edges) -> Graph:
    return Graph.from_edge_index(edges, NODES)


@pytest.fixture(scope="module")
def features() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(NODES, 33, generator=generator)
    return {
        "x": x,
        "half": x.bfloat16(),
        "y": torch.randint(0, 9, (NODES,), generator=generator),
        "mask": x[:, 0] > 0,
        "nothing": torch.empty(NODES, 0),
        "strided": torch.randn(NODES, 8, generator=generator)[:, 1::2],
        "wide": torch.randn(NODES, 3, 5, dtype=torch.float64, generator=generator),
        "edge_attr": torch.randn(EDGES, 4, generator=generator),
        "constant": torch.tensor([1.0, 2.0, 3.0]),
    }


def assert_batches_equal(ours, theirs):
    assert set(ours.keys()) == set(theirs.keys())
    for name, value in theirs.items():
        if isinstance(value, torch.Tensor):
            assert torch.equal(ours[name].cpu(), value), name
        else:
            assert ours[name] == value, name


@pytest.mark.parametrize("where", [None, "cpu", "cuda"])
@pytest.mark.parametrize("depth", [0, 1, 2, 5])
def test_equal_to_the_cpu(cuda, graph, features, where, depth):
    options = {"batch_size": 700, "shuffle": True, "seed": 3}
    host = NeighborLoader((features, graph), [5, -1, 2], device="cpu", **options)
    loader = NeighborLoader(
        (features, graph), [5, -1, 2], graph_device=where, depth=depth, **options
    )
    assert loader.device == cuda
    for _ in range(2):
        for ours, theirs in zip(loader, host, strict=True):
            assert ours.x.device == cuda
            assert_batches_equal(ours, theirs)


@pytest.mark.parametrize("subgraph_type", ["bidirectional", "induced"])
def test_other_subgraphs_are_equal(cuda, graph, features, subgraph_type):
    options = {"batch_size": 300, "subgraph_type": subgraph_type, "seed": 3}
    seeds = torch.arange(0, NODES, 17)
    host = NeighborLoader((features, graph), [3, 3], seeds, device="cpu", **options)
    loader = NeighborLoader((features, graph), [3, 3], seeds.to(cuda), sm_share=0.02, **options)
    for ours, theirs in zip(loader, host, strict=True):
        assert_batches_equal(ours, theirs)


@pytest.mark.parametrize("mode", [None, "binary", "triplet"])
def test_links_are_equal(cuda, graph, edges, features, mode):
    options = {"batch_size": 500, "shuffle": True, "seed": 9}
    if mode is not None:
        options["neg_sampling"] = NegativeSampling(mode, 2)
    links = edges[:, :3000]
    host = LinkNeighborLoader((features, graph), [4, 4], links, device="cpu", **options)
    loader = LinkNeighborLoader((features, graph), [4, 4], links.to(cuda), **options)
    for ours, theirs in zip(loader, host, strict=True):
        assert_batches_equal(ours, theirs)


def test_temporal_types_are_equal(cuda):
    generator = torch.Generator().manual_seed(5)
    sizes = {"a": 500, "b": 700}
    lists = {
        (s, "to", d): torch.stack(
            [torch.randint(0, sizes[e], (4000,), generator=generator) for e in (s, d)]
        )
        for s, d in (("a", "b"), ("b", "a"), ("b", "b"))
    }
    times = {kind: torch.randint(0, 50, (n,), generator=generator) for kind, n in sizes.items()}
    graph = Graph.from_edge_index(lists, sizes, node_time=times)
    features = {
        "a": {"x": torch.randn(500, 3, generator=generator)},
        ("b", "to", "b"): {"edge_attr": torch.randn(4000, 2, generator=generator)},
    }
    options = {"batch_size": 64, "shuffle": True, "seed": 2}
    host = NeighborLoader((features, graph), [4, 4], "b", device="cpu", **options)
    loader = NeighborLoader((features, graph), [4, 4], "b", **options)
    for ours, theirs in zip(loader, host, strict=True):
        assert ours.node_types == theirs.node_types
        assert ours.edge_types == theirs.edge_types
        for kind in (*ours.node_types, *ours.edge_types):
            assert_batches_equal(ours[kind], theirs[kind])


def test_memory_is_handed_over_in_stream_order(cuda, graph, features, monkeypatch):
    """Kernels that read batches are held up, while memory of dropped batches is used again."""
    monkeypatch.setattr(
        torch.Tensor, "record_stream", lambda *_: pytest.fail("record_stream was called")
    )
    x = features["x"].to(cuda)
    seeds = torch.randint(0, NODES, (40_000,))
    loader = NeighborLoader(
        ({"x": features["x"]}, graph), [10, 5], seeds, batch_size=500, graph_device="cpu"
    )
    streams = [torch.cuda.current_stream(), torch.cuda.Stream()]
    wrong = torch.zeros(2, dtype=torch.int64, device=cuda)
    kept = []
    for stream in streams:
        iterator = iter(loader)
        with torch.cuda.stream(stream):
            for index, batch in enumerate(iterator):
                torch.cuda._sleep(3_000_000)
                wrong[0] += (batch.x != x[batch.n_id]).sum()
                wrong[1] += (batch.edge_index >= batch.n_id.numel()).sum()
                if index % 16 == 5:
                    kept.append((batch, batch.x.clone()))
        stream.synchronize()
    assert wrong.tolist() == [0, 0]
    for batch, copy in kept:
        assert torch.equal(batch.x, copy)
        assert torch.equal(batch.x, x[batch.n_id])


def test_the_caller_does_not_wait_for_its_stream(cuda, graph, features):
    loader = NeighborLoader(({"x": features["x"]}, graph), [5, 5], batch_size=200, depth=3)
    iterator = iter(loader)
    for _ in range(4):
        next(iterator)
    torch.cuda.synchronize()
    torch.cuda._sleep(2_000_000_000)
    next(iterator)
    assert not torch.cuda.current_stream().query()
    iterator.close()


def test_memory_does_not_pile_up(cuda, graph, features):
    loader = NeighborLoader(({"x": features["x"]}, graph), [10, 10], batch_size=500)
    reserved = []
    for _ in range(4):
        for batch in loader:
            batch.x.sum()
        torch.cuda.synchronize()
        reserved.append(torch.cuda.memory_reserved())
    assert reserved[-1] <= reserved[0] * 1.5


def test_embeddings_get_gradients(cuda, graph):
    table = unified(torch.randn(NODES, 8)).requires_grad_()
    before = table.detach().clone()
    optimizer = optim.SparseSGD([table], lr=1.0)
    loader = NeighborLoader(({"x": table}, graph), [3], torch.arange(1000), batch_size=500)
    touched = torch.zeros(NODES, dtype=torch.bool)
    for batch in loader:
        assert batch.x.requires_grad
        assert torch.equal(batch.x.detach().cpu(), table.detach()[batch.n_id.cpu()])
        batch.x.sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        touched[batch.n_id.cpu()] = True
    check()
    torch.cuda.synchronize()
    changed = (table.detach() != before).any(dim=1)
    assert torch.equal(changed, touched)


def test_attributes_and_graph_on_the_gpu(cuda, graph, features):
    there = {name: value.to(cuda) for name, value in features.items()}
    options = {"batch_size": 900, "seed": 1}
    host = NeighborLoader((features, graph), [4, 4], device="cpu", **options)
    loader = NeighborLoader((there, graph.to(cuda)), [4, 4], **options)
    for ours, theirs in zip(loader, host, strict=True):
        assert_batches_equal(ours, theirs)
    with pytest.raises(UnsupportedError, match="the graph is on cuda"):
        NeighborLoader(graph.to(cuda), [4], device="cpu")


def test_memory_that_cannot_be_pinned_is_staged(cuda, graph, monkeypatch, caplog):
    def refuse(self: Registration, device: int) -> int:
        raise UnsupportedError("no more memory may be locked")

    x = torch.randn(NODES, 5)
    with monkeypatch.context() as patch:
        patch.setattr(Registration, "device_address", refuse)
        loader = NeighborLoader(({"x": x}, graph), [4], batch_size=900, graph_device="cuda")
        batches = list(loader)
    assert "is gathered by the CPU and copied: no more memory may be locked" in caplog.text
    for batch in batches:
        assert batch.x.device == cuda
        assert torch.equal(batch.x.cpu(), x[batch.n_id.cpu()])


def test_changes_on_the_gpu_are_seen_by_the_next_epoch(cuda, graph):
    x = unified(torch.zeros(NODES, 4))
    loader = NeighborLoader(({"x": x}, graph), [2], batch_size=1000)
    for epoch in range(3):
        for batch in loader:
            assert (batch.x == epoch).all()
        x += torch.ones((), device=cuda)


def test_two_loaders_and_nested_iterators(cuda, graph, features):
    first = NeighborLoader((features, graph), [4], batch_size=4000, seed=1)
    second = NeighborLoader((features, graph), [4], batch_size=5000, seed=2)
    assert first.graph is second.graph
    host = NeighborLoader((features, graph), [4], batch_size=5000, seed=2, device="cpu")
    for _ in first:
        for ours, theirs in zip(second, host, strict=True):
            assert_batches_equal(ours, theirs)


def test_a_forked_child_loads_on_the_cpu(cuda, graph):
    torch.zeros(1, device=cuda)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            torch.set_num_threads(1)
            loader = NeighborLoader(graph, [2], torch.arange(100), batch_size=10, threads=1)
            with pytest.raises(UnsupportedError, match="a forked process cannot use CUDA"):
                NeighborLoader(graph, [2], device="cuda")
            code = 0 if loader.device.type == "cpu" and len(list(loader)) == 10 else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.multigpu
def test_a_gpu_that_is_not_current(cuda, graph, features):
    if torch.cuda.device_count() < 2:
        pytest.skip("one GPU")
    options = {"batch_size": 2000, "shuffle": True, "seed": 3}
    host = NeighborLoader((features, graph), [4, 4], device="cpu", **options)
    loaders = [
        NeighborLoader((features, graph), [4, 4], device=device, graph_device=where, **options)
        for device, where in ((1, "cpu"), (1, 1), (0, "cpu"))
    ]
    there = {name: value.to("cuda:1") for name, value in features.items()}
    assert NeighborLoader((there, graph), [2]).device == torch.device("cuda:1")
    for theirs, *batches in zip(host, *loaders, strict=True):
        assert [batch.x.device.index for batch in batches] == [1, 1, 0]
        for batch in batches:
            assert_batches_equal(batch, theirs)


@pytest.mark.parametrize(
    "body",
    [
        "for batch in loader: break",
        "iterator = iter(loader); next(iterator)",
        "iterator = iter(loader); next(iterator); kept = [next(iterator)]",
        "next(iter(loader)); raise SystemExit(0)",
        "for batch in loader:\n    torch.cuda._sleep(100_000_000)",
    ],
)
def test_processes_end(cuda, body):
    code = textwrap.dedent("""
        import torch
        from pytorch_direct import Graph, NeighborLoader, rmat
        graph = Graph.from_edge_index(rmat(5000, 50000, seed=1), 5000)
        loader = NeighborLoader(({"x": torch.randn(5000, 64)}, graph), [5, 5], batch_size=100)
    """)
    done = subprocess.run(
        [sys.executable, "-c", code + body], capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
