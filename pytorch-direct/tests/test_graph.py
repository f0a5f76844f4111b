# SPDX-License-Identifier: Apache-2.0
"""Graphs: compressing, taking what is compressed, PyG's objects, sizes past 2^31, errors."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from sampling_reference import EDGE, Drawn, assert_same, drawn_graphs, emulated, in_edges

from pytorch_direct import Graph, NeighborSampler, UnifiedTensor, rmat


@settings(max_examples=50, deadline=None)
@given(drawn_graphs())
def test_neighbourhoods_are_the_edges_into_a_node_in_order(drawn: Drawn):
    graph = Graph.from_edge_index(**drawn.arguments())
    assert graph.num_nodes == drawn.num_nodes
    for kind, edges in drawn.edges.items():
        relation = graph.relations[kind]
        for node in range(drawn.num_nodes[kind[2]]):
            begin, end = relation.indptr[node : node + 2].tolist()
            ids = relation.edge_ids[begin:end].tolist()
            assert ids == in_edges(edges, node)
            assert relation.indices[begin:end].tolist() == edges[0][ids].tolist()


@pytest.mark.parametrize("threads", [1, 2, 3, 7])
def test_threads_do_not_matter(threads):
    edges = rmat(1000, 20_000, seed=4)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        relation = Graph.from_edge_index(edges, 1000).relations[EDGE]
    finally:
        torch.set_num_threads(before)
    order = torch.argsort(edges[1], stable=True)
    assert torch.equal(relation.edge_ids, order)
    assert torch.equal(relation.indices.long(), edges[0][order])


def test_sizes_are_found_or_given():
    edges = torch.tensor([[0, 4], [1, 2]])
    assert Graph.from_edge_index(edges).num_nodes == {"node": 5}
    assert Graph.from_edge_index(edges, 9).num_nodes == {"node": 9}
    assert Graph.from_edge_index(edges.numpy()).num_nodes == {"node": 5}
    hetero = Graph.from_edge_index({("a", "to", "b"): edges})
    assert hetero.num_nodes == {"a": 5, "b": 3}
    assert hetero.is_hetero
    assert hetero.edge_types == (("a", "to", "b"),)
    assert Graph.from_edge_index(torch.empty((2, 0), dtype=torch.int64)).num_nodes == {"node": 0}


@pytest.mark.parametrize("ids", [torch.int32, torch.int64])
def test_compressed_arrays_are_not_copied(ids):
    indptr, indices = torch.tensor([0, 2, 2, 3]), torch.tensor([1, 2, 0], dtype=ids)
    graph = Graph.from_csc(indptr, indices)
    relation = graph.relations[EDGE]
    assert relation.indptr.data_ptr() == indptr.data_ptr()
    assert relation.indices.data_ptr() == indices.data_ptr()
    assert relation.edge_ids is None
    array = np.array([1, 2, 0], dtype=np.int32)
    graph = Graph.from_csc(indptr.numpy(), array)
    assert graph.relations[EDGE].indices.data_ptr() == array.ctypes.data
    out = NeighborSampler(graph, [-1]).sample(torch.tensor([2, 0]))
    assert out.node.tolist() == [2, 0, 1]
    assert out.row.tolist() == [1, 2, 0]
    assert out.edge.tolist() == [2, 0, 1]


def test_read_only_memory_maps_are_taken_as_they_are(tmp_path, recwarn):
    np.save(tmp_path / "indices.npy", np.array([1, 2, 0], dtype=np.int32))
    indices = np.load(tmp_path / "indices.npy", mmap_mode="r")
    graph = Graph.from_csc(torch.tensor([0, 2, 2, 3]), indices)
    assert graph.relations[EDGE].indices.data_ptr() == indices.ctypes.data
    assert NeighborSampler(graph, [-1]).sample(torch.tensor([2])).node.tolist() == [2, 0]
    assert not recwarn.list


def test_unified_shares_the_memory():
    graph = Graph.from_edge_index(rmat(100, 900, seed=1), 100)
    shared = graph.unified()
    assert shared.is_unified
    assert not graph.is_unified
    assert isinstance(shared.relations[EDGE].indices, UnifiedTensor)
    assert shared.relations[EDGE].indices.data_ptr() == graph.relations[EDGE].indices.data_ptr()
    assert shared.unified().relations[EDGE].indices is shared.relations[EDGE].indices
    seeds = torch.arange(10)
    first = NeighborSampler(graph, [3, 3]).sample(seeds)
    assert torch.equal(NeighborSampler(shared, [3, 3]).sample(seeds).edge, first.edge)
    assert not shared.to("cpu").is_unified
    assert graph.to("cpu") is graph


def test_more_than_2_31_edges(tmp_path):
    count = 2**31 + 1000
    # Holes of a sparse file are zeros that take no room.
    path = tmp_path / "indices"
    with path.open("wb") as file:
        file.truncate(4 * count)
    indices = np.memmap(path, dtype=np.int32, mode="r+", shape=(count,))
    indices[-6:] = [5, 6, 7, 8, 9, 3]
    indptr = torch.tensor([0, count - 6, *[count - 6] * 8, count])
    graph = Graph.from_csc(indptr, indices, check=False)
    assert graph.num_edges == {EDGE: count}
    out = NeighborSampler(graph, [-1]).sample(torch.tensor([9]))
    assert out.edge.tolist() == list(range(count - 6, count))
    assert out.node.tolist() == [9, 5, 6, 7, 8, 3]
    assert out.row.tolist() == [1, 2, 3, 4, 0, 5]
    sampler = NeighborSampler(graph, [100], seed=3)
    hub = sampler.sample(torch.tensor([0, 9]))
    assert hub.edge[:100].unique().numel() == 100
    assert int(hub.edge[:100].max()) > 2**30
    assert_same(emulated(sampler, torch.tensor([0, 9])), hub, graph)


def test_errors_name_what_is_wrong():
    edges = torch.tensor([[0, 4], [1, 2]])
    with pytest.raises(
        ValueError, match=r"edge_index\[0\]: node 4 at position 1 is not in \[0, 3\)"
    ):
        Graph.from_edge_index(edges, 3)
    with pytest.raises(ValueError, match="node -4"):
        Graph.from_edge_index(-edges, 3)
    with pytest.raises(ValueError, match=r"\[2, edges\]"):
        Graph.from_edge_index(edges.view(-1))
    with pytest.raises(TypeError, match="int32 or int64"):
        Graph.from_edge_index(edges.float(), 5)
    with pytest.raises(TypeError, match="numpy array"):
        Graph.from_edge_index([[0], [1]], 5)
    with pytest.raises(ValueError, match=r"edge_weight must have shape \[2\]"):
        Graph.from_edge_index(edges, edge_weight=torch.ones(3))
    for bad in (-1.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="weight 1 is"):
            Graph.from_edge_index(edges, edge_weight=torch.tensor([1.0, bad]))
    with pytest.raises(TypeError, match="whole numbers"):
        Graph.from_edge_index(edges, edge_time=torch.ones(2))
    with pytest.raises(ValueError, match="not both"):
        Graph.from_edge_index(edges, edge_time=torch.ones(2).long(), node_time=torch.ones(5).long())
    with pytest.raises(TypeError, match="edge type is a tuple"):
        Graph.from_edge_index({"likes": edges})
    with pytest.raises(TypeError, match="must be a dict"):
        Graph.from_edge_index({("a", "b", "c"): edges}, edge_weight=torch.ones(2))
    with pytest.raises(ValueError, match="no edge type"):
        Graph.from_edge_index(
            {("a", "b", "c"): edges}, edge_weight={("a", "b", "d"): torch.ones(2)}
        )


@pytest.mark.parametrize(
    ("indptr", "indices", "text"),
    [
        ([0, 2, 1, 3], [0, 0, 0], r"indptr\[2\] is 1"),
        ([1, 2, 3], [0, 0, 0], r"indptr\[0\] is 1"),
        ([0, 2, 2], [0, 0, 0], r"end with the number of edges \(3\)"),
        ([0, 2, 3], [0, 2, 0], r"node 2 at position 1"),
        ([0, 2, 3], [0, -7, 0], r"node -7 at position 1"),
    ],
)
def test_bad_compressed_arrays(indptr, indices, text):
    with pytest.raises(ValueError, match=text):
        Graph.from_csc(torch.tensor(indptr), torch.tensor(indices))


def test_bad_compressed_types_and_times():
    indptr, indices = torch.tensor([0, 2, 4]), torch.tensor([0, 1, 0, 1])
    with pytest.raises(TypeError, match="indptr must have dtype int64"):
        Graph.from_csc(indptr.int(), indices)
    with pytest.raises(ValueError, match="2 destinations, but there are 3 nodes"):
        Graph.from_csc(indptr, indices, 3)
    Graph.from_csc(indptr, indices, edge_time=torch.tensor([5, 6, 1, 1]))
    with pytest.raises(ValueError, match="edge 3 is earlier"):
        Graph.from_csc(indptr, indices, edge_time=torch.tensor([5, 6, 2, 1]))
    Graph.from_csc(indptr, indices, node_time=torch.tensor([1, 2]))
    with pytest.raises(ValueError, match="edge 1 is earlier"):
        Graph.from_csc(indptr, indices, node_time=torch.tensor([2, 1]))


def test_pyg_objects():
    data_module = pytest.importorskip("torch_geometric.data")
    edges = rmat(40, 300, seed=6)
    data = data_module.Data(edge_index=edges, num_nodes=40, w=torch.rand(300), t=torch.arange(40))
    graph = Graph.from_pyg(data, weight_attr="w")
    assert graph.has_weights
    assert torch.equal(graph.relations[EDGE].edge_ids, torch.argsort(edges[1], stable=True))
    assert Graph.from_pyg(data, time_attr="t").node_time["node"].tolist() == list(range(40))
    with pytest.raises(ValueError, match="time_attr='missing'"):
        Graph.from_pyg(data, time_attr="missing")
    hetero = data_module.HeteroData()
    hetero["u"].num_nodes, hetero["i"].num_nodes = 40, 50
    hetero["u", "likes", "i"].edge_index = edges
    hetero["u", "likes", "i"].t = torch.arange(300)
    graph = Graph.from_pyg(hetero, time_attr="t")
    assert graph.num_nodes == {"u": 40, "i": 50}
    assert graph.relations["u", "likes", "i"].edge_time is not None
    with pytest.raises(TypeError, match="Data or HeteroData"):
        Graph.from_pyg(edges)
