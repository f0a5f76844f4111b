# SPDX-License-Identifier: Apache-2.0
"""Graph: what it accepts, refuses, derives and takes from PyG's data objects."""

import copy
import gc
import pickle
from types import SimpleNamespace

import pytest
import torch

import hector
from hector.handles import plan_of

INDEX = torch.tensor([[0, 1, 2, 2], [1, 2, 0, 1]])
TYPES = torch.tensor([0, 1, 1, 0])


def test_names_and_counts():
    g = hector.Graph(INDEX, TYPES, 3, 4, torch.tensor([1, 0, 1]))
    assert (g.num_nodes, g.num_edges, g.num_relations, g.num_node_types) == (3, 4, 4, 2)
    assert torch.equal(g.src, INDEX[0])
    assert torch.equal(g.dst, INDEX[1])
    assert torch.equal(g.rel, TYPES)
    assert g.src_type.tolist() == [1, 0, 1, 1]
    assert g.dst_type.tolist() == [0, 1, 1, 0]
    assert hector.Graph(INDEX, TYPES, 3).num_relations == 2
    assert hector.Graph(INDEX[:, :0], TYPES[:0], 0).num_relations == 0


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        ({"edge_index": INDEX.float()}, TypeError, "must be int32 or int64"),
        ({"edge_type": TYPES.short()}, TypeError, "must be int32 or int64"),
        ({"edge_index": [[0], [1]]}, TypeError, "must be a tensor, not list"),
        ({"edge_index": INDEX[0]}, ValueError, "2 dimension"),
        ({"edge_index": INDEX.T}, ValueError, r"\(2, E\) and edge_type \(E,\)"),
        ({"edge_type": TYPES[:3]}, ValueError, r"\(2, E\) and edge_type \(E,\)"),
        ({"edge_index": INDEX + 1}, IndexError, "edge_index holds 3, but there are 3 nodes"),
        ({"edge_index": INDEX - 1}, IndexError, "edge_index holds -1"),
        ({"edge_type": TYPES + 1}, IndexError, "edge_type holds 2, but there are 2 relations"),
        ({"edge_type": TYPES - 1}, IndexError, "edge_type holds -1"),
        ({"num_nodes": -1}, ValueError, "must not be negative"),
        ({"num_nodes": 3.0}, TypeError, "must be an int"),
        ({"node_type": torch.tensor([0, 1])}, ValueError, "2 rows for 3 nodes"),
        ({"node_type": torch.tensor([0, -1, 1])}, IndexError, "node_type holds -1"),
        ({"node_type": torch.zeros(3)}, TypeError, "node_type must be int32 or int64"),
        ({"edge_type": TYPES.to("meta")}, ValueError, "edge_type on meta"),
        ({"edge_index": INDEX.to_sparse()}, TypeError, "must be dense, not torch.sparse_coo"),
        (
            {"edge_index": INDEX.to("meta"), "edge_type": TYPES.to("meta")},
            TypeError,
            "needs ids that have values",
        ),
    ],
)
def test_bad_input(change, error, text):
    arguments = {"edge_index": INDEX, "edge_type": TYPES, "num_nodes": 3, "num_relations": 2}
    with pytest.raises(error, match=text):
        hector.Graph(**(arguments | change))


def test_ids_that_are_too_large_for_int32_sums():
    g = hector.Graph(INDEX.int(), TYPES.int() * 0 + 2**31 - 2, 3, 2**31 - 1)
    assert g.plan().counts.dst_pair == 3


def test_missing_node_types():
    with pytest.raises(ValueError, match="no node types"):
        _ = hector.Graph(INDEX, TYPES, 3).node_type


def test_changed_ids_are_noticed():
    index = INDEX.clone()
    g = hector.Graph(index, TYPES, 3)
    g.plan()
    index[0, 0] = 2
    with pytest.raises(ValueError, match="changed in place"):
        g.plan()


@pytest.mark.parametrize("clone", [copy.deepcopy, lambda g: pickle.loads(pickle.dumps(g))])
def test_copies_have_a_plan_of_their_own(clone):
    g = hector.Graph(INDEX, TYPES, 3)
    made = clone(g)
    handle, number = made.handle, int(g.handle)
    assert int(handle) != number
    del g
    gc.collect()
    assert plan_of(handle) is made.plan()
    assert torch.equal(made.plan().edge_order, hector.Graph(INDEX, TYPES, 3).plan().edge_order)
    made.edge_type.add_(0)
    with pytest.raises(ValueError, match="changed in place"):
        made.plan()


def test_node_types_without_nodes():
    kinds = torch.zeros(3, dtype=torch.long)
    assert hector.Graph(INDEX, TYPES, 3, node_type=kinds, num_node_types=4).num_node_types == 4
    with pytest.raises(IndexError, match="there are 1 node types"):
        hector.Graph(INDEX, TYPES, 3, node_type=kinds + 1, num_node_types=1)
    with pytest.raises(TypeError, match="num_node_types must be an int"):
        hector.Graph(INDEX, TYPES, 3, node_type=kinds, num_node_types=1.5)


class Hetero(dict):
    node_types = ("paper", "author", "venue")
    edge_types = (("author", "writes", "paper"), ("paper", "in", "venue"))


def hetero(venue=0):
    return Hetero(
        {
            "paper": SimpleNamespace(num_nodes=3),
            "author": SimpleNamespace(num_nodes=2),
            "venue": SimpleNamespace(num_nodes=1),
            Hetero.edge_types[0]: SimpleNamespace(edge_index=torch.tensor([[0, 1, 1], [0, 2, 1]])),
            Hetero.edge_types[1]: SimpleNamespace(edge_index=torch.tensor([[2], [venue]])),
        }
    )


def test_from_pyg():
    g = hector.Graph.from_pyg(hetero())
    assert g.num_nodes == 6
    assert g.src.tolist() == [3, 4, 4, 2]
    assert g.dst.tolist() == [0, 2, 1, 5]
    assert g.rel.tolist() == [0, 0, 0, 1]
    assert g.node_type.tolist() == [0, 0, 0, 1, 1, 2]
    assert g.relation_names == Hetero.edge_types
    assert g.node_type_names == Hetero.node_types


def test_from_pyg_checks_each_type_by_itself():
    # Node 1 of the venues would be a valid number of the whole graph's nodes.
    with pytest.raises(IndexError, match="there are 1 nodes 'venue'"):
        hector.Graph.from_pyg(hetero(venue=1))


def test_from_pyg_without_types():
    with pytest.raises(ValueError, match="no node type"):
        hector.Graph.from_pyg(SimpleNamespace(node_types=[], edge_types=[]))


def test_from_real_pyg_data():
    data_module = pytest.importorskip("torch_geometric.data")
    data = data_module.HeteroData()
    data["a"].x, data["b"].x = torch.randn(2, 3), torch.randn(3, 3)
    data["a", "to", "b"].edge_index = torch.tensor([[0, 1], [2, 0]])
    g = hector.Graph.from_pyg(data)
    assert g.dst.tolist() == [4, 2]
