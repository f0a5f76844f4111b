# SPDX-License-Identifier: Apache-2.0
"""PyG's store interfaces and its loader over unified tensors."""

from __future__ import annotations

import importlib.util
import pickle

import numpy as np
import pytest
import torch

pytest.importorskip("torch_geometric")

from torch_geometric.data import Data
from torch_geometric.loader import NeighborLoader

from pytorch_direct import UnifiedTensor
from pytorch_direct.stores import HostGraphStore, UnifiedFeatureStore

HAS_SAMPLER = any(importlib.util.find_spec(name) for name in ("torch_sparse", "pyg_lib"))


def test_features_come_back_row_by_row():
    store = UnifiedFeatureStore()
    x = torch.randn(40, 6)
    store["paper", "x", None] = x
    store["author", "x", None] = np.ones((7, 2), dtype="f4")
    assert type(store.table("paper", "x")) is UnifiedTensor
    assert store.table("paper", "x").data_ptr() == x.data_ptr()
    ids = torch.tensor([3, 3, 39])
    assert torch.equal(store["paper", "x", ids], x[ids])
    assert torch.equal(store["paper", "x", slice(2, 5)], x[2:5])
    assert torch.equal(store["paper", "x", None], x)
    assert torch.equal(store["paper", "x", x[:, 0] > 0], x[x[:, 0] > 0])
    assert store.get_tensor_size(group_name="paper", attr_name="x") == (40, 6)
    found = {(attr.group_name, attr.attr_name) for attr in store.get_all_tensor_attrs()}
    assert found == {("paper", "x"), ("author", "x")}
    store["paper", "x", torch.tensor([0])] = torch.zeros(1, 6)
    assert (x[0] == 0).all()
    with pytest.raises(IndexError, match="id 40"):
        store["paper", "x", torch.tensor([40])]
    del store["author", "x", None]
    with pytest.raises(KeyError):
        store["author", "x", None]


def test_edges_come_back_as_they_were_put():
    store = HostGraphStore()
    edges = torch.tensor([[0, 1, 2], [1, 2, 0]])
    kind = ("paper", "cites", "paper")
    store[kind, "coo", False, (3, 3)] = (edges[0], edges[1])
    row, col = store[kind, "coo"]
    assert torch.equal(row, edges[0])
    assert torch.equal(col, edges[1])
    assert [attr.edge_type for attr in store.get_all_edge_attrs()] == [kind]
    assert store.remove_edge_index(edge_type=kind, layout="coo")
    with pytest.raises(KeyError):
        store[kind, "coo"]


@pytest.mark.skipif(not HAS_SAMPLER, reason="PyG samples with torch-sparse or pyg-lib")
@pytest.mark.parametrize("workers", [0, 2])
def test_neighbor_loader_reads_from_the_stores(workers):
    generator = torch.Generator().manual_seed(0)
    edges = torch.randint(0, 60, (2, 400), generator=generator)
    x = torch.randn(60, 5)
    features, graph = UnifiedFeatureStore(), HostGraphStore()
    features["node", "x", None] = x
    graph[("node", "to", "node"), "coo", False, (60, 60)] = (edges[0], edges[1])
    loader = NeighborLoader(
        (features, graph), num_neighbors=[-1, -1], batch_size=20,
        input_nodes=("node", torch.arange(60)), num_workers=workers,
    )  # fmt: skip
    peer = NeighborLoader(
        Data(x=x, edge_index=edges), num_neighbors=[-1, -1], batch_size=20,
        input_nodes=torch.arange(60),
    )  # fmt: skip
    for batch, other in zip(loader, peer, strict=True):
        assert torch.equal(batch["node"].x, x[batch["node"].n_id])
        assert torch.equal(batch["node"].n_id.sort().values, other.n_id.sort().values)


def test_rows_by_lists_and_ranges_come_where_rows_go():
    x = torch.randn(10, 4)
    for store in (UnifiedFeatureStore(), UnifiedFeatureStore("cpu")):
        store["paper", "x", None] = x
        assert store["paper", "x", []].shape == (0, 4)
        assert torch.equal(store["paper", "x", [2, 1]], x[[2, 1]])
        assert torch.equal(store["paper", "x", slice(2, 5)], x[2:5])


def test_a_store_that_was_saved_has_unified_tables_again():
    store = UnifiedFeatureStore()
    store["paper", "x", None] = torch.randn(3, 2)
    loaded = pickle.loads(pickle.dumps(store))
    assert isinstance(loaded.table("paper", "x"), UnifiedTensor)
    assert torch.equal(loaded["paper", "x", None], store["paper", "x", None])
