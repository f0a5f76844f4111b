# SPDX-License-Identifier: Apache-2.0
"""hector.nn against PyG's layers with the same weights, where PyG is installed."""

import pytest
import torch
from relational_layers import graph

import hector

pyg = pytest.importorskip("torch_geometric")
from torch_geometric.data import Data, HeteroData  # noqa: E402
from torch_geometric.nn import HeteroConv, HGTConv, RGATConv, RGCNConv, SAGEConv  # noqa: E402

WIDTHS = {"paper": 6, "author": 4, "venue": 5}


def hetero(reverse=False, empty=()):
    torch.manual_seed(0)
    sizes = {"paper": 30, "author": 20, "venue": 5}
    data = HeteroData()
    for name, count in sizes.items():
        data[name].x = torch.randn(count, WIDTHS[name])
    relations = [
        ("author", "writes", "paper"), ("paper", "cites", "paper"), ("paper", "in", "venue"),
        ("paper", "written", "author"), ("author", "knows", "author"),
    ]  # fmt: skip
    made = {
        r: torch.stack(
            [torch.randint(0, sizes[end], (0 if r in empty else 60,)) for end in (r[0], r[2])]
        )
        for r in relations
    }
    for r in relations[::-1] if reverse else relations:
        data[r].edge_index = made[r]
    return data


def randomise(layer):
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(torch.randn(parameter.shape) / 2)
    return layer


def same(found, expected):
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


def same_input_gradients(run, reference, x):
    for name in x if isinstance(x, dict) else [None]:
        leaf = (x if name is None else x[name]).clone().requires_grad_()
        given = leaf if name is None else {**x, name: leaf}
        grads = [
            torch.autograd.grad(torch.tanh(f(given)).sum(), leaf, allow_unused=True)[0]
            for f in (run, reference)
        ]
        same(*(torch.zeros_like(leaf) if grad is None else grad for grad in grads))


@pytest.mark.parametrize("options", [{}, {"num_bases": 3}, {"num_blocks": 2}, {"aggr": "add"},
                                     {"root_weight": False, "bias": False}], ids=str)  # fmt: skip
def test_rgcn(options):
    conv = randomise(RGCNConv(6, 4, 4, **options))
    g, x = graph(), torch.randn(13, 6)
    layer = hector.nn.RGCNConv.from_pyg(conv)

    def reference(x):
        return conv(x, g.edge_index, g.edge_type)

    same(layer(g, x), reference(x))
    same_input_gradients(lambda x: layer(g, x), reference, x)


@pytest.mark.parametrize(
    "options",
    [
        {}, {"heads": 3}, {"heads": 2, "concat": False}, {"num_bases": 2}, {"num_blocks": 2},
        {"attention_mechanism": "within-relation", "heads": 2},
        {"attention_mode": "multiplicative-self-attention", "heads": 2, "dim": 3},
        {"heads": 2, "edge_dim": 3}, {"bias": False},
    ],
    ids=str,
)  # fmt: skip
def test_rgat(options):
    conv = randomise(RGATConv(6, 4, 4, **options))
    g, x = graph(), torch.randn(13, 6)
    edge = torch.randn(60, 3) if "edge_dim" in options else None
    layer = hector.nn.RGATConv.from_pyg(conv)

    def reference(x):
        return conv(x, g.edge_index, g.edge_type, edge)

    same(layer(g, x, edge), reference(x))
    same_input_gradients(lambda x: layer(g, x, edge), reference, x)


@pytest.mark.parametrize("mod", ["additive", "scaled", "f-additive", "f-scaled"])
def test_rgat_mods_are_refused(mod):
    with pytest.raises(RuntimeError, match=f"mod='{mod}'"):
        hector.nn.RGATConv.from_pyg(RGATConv(6, 4, 4, mod=mod))


@pytest.mark.parametrize("out", [8, 6])
@pytest.mark.parametrize("heads", [1, 2])
@pytest.mark.parametrize("empty", [(), [("author", "writes", "paper")]])
def test_hgt(heads, out, empty):
    data = hetero(empty=empty)
    conv = randomise(HGTConv(WIDTHS, out, data.metadata(), heads=heads))
    layer, g = hector.nn.HGTConv.from_pyg(conv), hector.Graph.from_pyg(data)
    found, expected = layer(g, data.x_dict), conv(data.x_dict, data.edge_index_dict)
    assert set(found) == set(expected)
    for name in found:
        same(found[name], expected[name])
    same_input_gradients(
        lambda x: torch.cat([layer(g, x)[n] for n in found]),
        lambda x: torch.cat([conv(x, data.edge_index_dict)[n] for n in found]),
        data.x_dict,
    )


def test_hgt_with_another_order_of_relations():
    data, turned = hetero(), hetero(reverse=True)
    conv = randomise(HGTConv(WIDTHS, 8, data.metadata(), heads=2))
    layer = hector.nn.HGTConv.from_pyg(conv)
    expected = conv(data.x_dict, data.edge_index_dict)
    found = layer(hector.Graph.from_pyg(turned), turned.x_dict)
    for name in found:
        same(found[name], expected[name])


@pytest.mark.parametrize("aggr", ["sum", "mean"])
@pytest.mark.parametrize("options", [{}, {"aggr": "sum"}, {"root_weight": False}, {"bias": False}],
                         ids=str)  # fmt: skip
def test_hetero_sage(options, aggr):
    data = hetero(empty=[("paper", "in", "venue")])
    convs = {r: SAGEConv((WIDTHS[r[0]], WIDTHS[r[2]]), 8, **options) for r in data.edge_types}
    conv = randomise(HeteroConv(convs, aggr=aggr))
    layer, g = hector.nn.HeteroSAGEConv.from_pyg(conv), hector.Graph.from_pyg(data)
    found, expected = layer(g, data.x_dict), conv(data.x_dict, data.edge_index_dict)
    assert set(found) == set(expected)
    for name in found:
        same(found[name], expected[name])
    same_input_gradients(
        lambda x: torch.cat([layer(g, x)[n] for n in found]),
        lambda x: torch.cat([conv(x, data.edge_index_dict)[n] for n in found]),
        data.x_dict,
    )


@pytest.mark.parametrize(
    "convs",
    [
        [SAGEConv((4, 6), 8, aggr="max")], [SAGEConv((4, 6), 8, normalize=True)],
        [SAGEConv((4, 6), 8, project=True)],
        [SAGEConv((4, 6), 8), SAGEConv((6, 6), 8, aggr="sum")],
    ],
    ids=str,
)  # fmt: skip
def test_hetero_sage_refuses_what_it_would_get_wrong(convs):
    names = [("author", "writes", "paper"), ("paper", "cites", "paper")]
    with pytest.raises(RuntimeError, match=r"HeteroSAGEConv\.from_pyg"):
        hector.nn.HeteroSAGEConv.from_pyg(HeteroConv(dict(zip(names, convs, strict=False))))


def test_data_with_edge_types():
    g = graph()
    data = Data(edge_index=g.edge_index, edge_type=g.edge_type, num_nodes=13)
    made = hector.Graph.from_pyg(data)
    assert (made.num_nodes, made.num_edges) == (13, 60)
    with pytest.raises(ValueError, match="edge_type"):
        hector.Graph.from_pyg(Data(edge_index=g.edge_index, num_nodes=13))


@pytest.mark.parametrize("root", [True, False])
def test_hetero_sage_on_data_with_types_that_no_relation_touches(root):
    data = hetero(empty=[])
    convs = {("author", "writes", "paper"): SAGEConv((4, 6), 8, root_weight=root)}
    conv = randomise(HeteroConv(convs))
    layer = hector.nn.HeteroSAGEConv.from_pyg(conv)
    for relation in data.edge_types:
        if relation not in convs:
            del data[relation]
    assert "venue" in data.node_types
    expected = conv(data.x_dict, data.edge_index_dict)
    found = layer(data, data.x_dict)
    assert set(found) == set(expected) == {"paper"}
    same(found["paper"], expected["paper"])
    only_read = {name: x for name, x in data.x_dict.items() if name != "venue"}
    same(layer(data, only_read)["paper"], expected["paper"])
