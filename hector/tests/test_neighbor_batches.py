# SPDX-License-Identifier: Apache-2.0
"""Batches of PyG's loaders as input of hector.nn, against PyG's layers, where PyG is installed."""

import pytest
import torch

import hector

pytest.importorskip("torch_geometric")
from pyg_loaders import loader
from test_against_pyg import WIDTHS, hetero, randomise, same
from torch_geometric.data import Data, HeteroData
from torch_geometric.nn import HeteroConv, HGTConv, RGATConv, RGCNConv, SAGEConv


def hetero_batches(**options):
    """Batches of three sizes: 9, 9, .. 3 seeds."""
    return list(loader(hetero(**options), [4, 3], 9, ("paper", None)))


def homogeneous():
    torch.manual_seed(1)
    edge_type = torch.randint(0, 4, (300,))
    edge_type[7] = 4  # in few batches: the last relation has one edge
    return Data(
        x=torch.randn(60, 6), edge_index=torch.randint(0, 60, (2, 300)), edge_type=edge_type
    )


def gradients(out, layer, *leaves):
    loss = sum(torch.tanh(value).sum() for value in out)
    wanted = [*leaves, *layer.parameters()]
    found = torch.autograd.grad(loss, wanted, allow_unused=True)
    return [torch.zeros_like(w) if d is None else d for w, d in zip(wanted, found, strict=True)]


def leaves(batch):
    return {name: x.clone().requires_grad_() for name, x in batch.x_dict.items()}


LAYERS = {
    "hgt": lambda data: (hector.nn.HGTConv, HGTConv(WIDTHS, 8, data.metadata(), heads=2)),
    "sage": lambda data: (
        hector.nn.HeteroSAGEConv,
        HeteroConv(
            {r: SAGEConv((WIDTHS[r[0]], WIDTHS[r[2]]), 8) for r in data.edge_types}, aggr="sum"
        ),
    ),
}


@pytest.mark.parametrize("empty", [(), [("paper", "in", "venue"), ("author", "knows", "author")]])
@pytest.mark.parametrize("name", LAYERS)
def test_layers_by_node_type(name, empty):
    kind, conv = LAYERS[name](hetero())
    layer = kind.from_pyg(randomise(conv))
    batches = hetero_batches(empty=empty)
    assert len({batch.num_nodes for batch in batches}) > 1
    for batch in batches:
        ours, theirs = leaves(batch), leaves(batch)
        found, expected = layer(batch, ours), conv(theirs, batch.edge_index_dict)
        # PyG leaves out a type that no edge of the batch leads to; here the metadata says.
        assert set(expected) <= set(found)
        for key in expected:
            same(found[key], expected[key])
        kept = [key for key in found if key in expected]
        inputs = [
            gradients([out[key] for key in kept], layer, *x.values())[: len(x)]
            for out, x, layer in ((found, ours, layer), (expected, theirs, conv))
        ]
        for a, b in zip(*inputs, strict=True):
            same(a, b)


@pytest.mark.parametrize("kind", [RGCNConv, RGATConv])
def test_layers_of_one_node_type(kind):
    conv = randomise(kind(6, 4, 5))
    layer = getattr(hector.nn, kind.__name__).from_pyg(conv)
    shown = set()
    for batch in loader(homogeneous(), [3, 2], 13):
        shown.add(int(batch.edge_type.max()))
        ours, theirs = (batch.x.clone().requires_grad_() for _ in range(2))
        found = layer(batch, ours)
        expected = conv(theirs, batch.edge_index, batch.edge_type)
        same(found, expected)
        same(gradients([found], layer, ours)[0], gradients([expected], conv, theirs)[0])
    assert min(shown) < 4


def test_a_graph_serves_several_layers():
    data = hetero()
    convs = [randomise(HGTConv(width, 8, data.metadata(), heads=2)) for width in (WIDTHS, 8)]
    layers = [hector.nn.HGTConv.from_pyg(conv) for conv in convs]
    for batch in hetero_batches():
        g = hector.Graph.from_pyg(batch)
        found, expected = batch.x_dict, batch.x_dict
        for layer, conv in zip(layers, convs, strict=True):
            found, expected = layer(g, found), conv(expected, batch.edge_index_dict)
        same(found["paper"][: batch["paper"].batch_size], expected["paper"][
            : batch["paper"].batch_size
        ])  # fmt: skip


def test_batches_are_known_as_samples_and_whole_data_is_not():
    assert all(hector.Graph.from_pyg(batch).sampled for batch in hetero_batches())
    assert not hector.Graph.from_pyg(hetero()).sampled
    assert hector.Graph.from_pyg(hetero(), sampled=True).sampled
    (batch, *_) = loader(homogeneous(), [3], 13)
    g = hector.Graph.from_pyg(batch, num_relations=5)
    assert g.sampled
    assert g.num_relations == 5
    assert not hector.Graph.from_pyg(homogeneous()).sampled


def test_batches_share_one_program():
    from hector.nn.hgt import _hgt

    layer = hector.nn.HGTConv(WIDTHS, 6, hetero().metadata())
    before = len(_hgt._built)
    for batch in hetero_batches():
        layer(batch, batch.x_dict)
    assert len(_hgt._built) == before + 1


def test_batches_are_prefetched():
    data = hetero()
    layer = hector.nn.HGTConv(WIDTHS, 6, data.metadata())
    seen = 0
    # One worker process samples, a thread builds graphs, this thread runs the layer.
    batches = loader(data, [4, 3], 9, ("paper", None), num_workers=1)
    for batch, g in hector.prefetch(batches):
        expected = layer(batch, batch.x_dict)
        for name, found in layer(g, batch.x_dict).items():
            assert torch.equal(found, expected[name])
        seen += batch["paper"].batch_size
    assert seen == 30


def test_data_without_a_node_of_a_type():
    data = HeteroData()
    data["paper"].x, data["author"].x = torch.randn(3, 6), torch.randn(0, 4)
    data["venue"].x = torch.randn(2, 5)
    full = hetero()
    for relation in full.edge_types:
        data[relation].edge_index = torch.zeros(2, 0, dtype=torch.long)
    data["paper", "cites", "paper"].edge_index = torch.tensor([[0, 1], [1, 1]])
    conv = randomise(HGTConv(WIDTHS, 8, full.metadata(), heads=2))
    found = hector.nn.HGTConv.from_pyg(conv)(data, data.x_dict)
    expected = conv(data.x_dict, data.edge_index_dict)
    for name in expected:
        same(found[name], expected[name])


def test_what_is_no_graph_is_refused():
    layer = hector.nn.RGCNConv(6, 4, 5)
    with pytest.raises(ValueError, match="no edge_index with an edge_type"):
        layer(Data(x=torch.zeros(3, 6)), torch.zeros(3, 6))
    with pytest.raises(ValueError, match="no edge_index"):
        layer(torch.zeros(3, 6), torch.zeros(3, 6))
    with pytest.raises(IndexError, match="edge_type holds 4, but there are 3 relations"):
        hector.nn.RGCNConv(6, 4, 3)(homogeneous(), homogeneous().x)
    with pytest.raises(ValueError, match="5 edge types, not 4"):
        hector.Graph.from_pyg(hetero(), num_relations=4)


@pytest.mark.gpu
@pytest.mark.parametrize("name", LAYERS)
def test_on_a_gpu(name):
    kind, conv = LAYERS[name](hetero())
    layer, conv = kind.from_pyg(randomise(conv)).cuda(), conv.cuda()
    batches = loader(hetero(), [4, 3], 9, ("paper", None), pin_memory=True)
    for batch, g in hector.prefetch(batches, device="cuda"):
        assert g.sampled
        assert g.device == batch["paper"].x.device == torch.device("cuda", 0)
        ours, theirs = leaves(batch), leaves(batch)
        found, expected = layer(g, ours), conv(theirs, batch.edge_index_dict)
        again = layer(batch, ours)
        kept = [key for key in found if key in expected]
        for key in kept:
            assert torch.equal(found[key], again[key])
            torch.testing.assert_close(found[key], expected[key], rtol=2e-3, atol=2e-3)
        inputs = [
            gradients([out[key] for key in kept], layer, *x.values())[: len(x)]
            for out, x, layer in ((found, ours, layer), (expected, theirs, conv))
        ]
        for a, b in zip(*inputs, strict=True):
            torch.testing.assert_close(a, b, rtol=5e-3, atol=5e-3)
