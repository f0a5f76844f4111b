# SPDX-License-Identifier: Apache-2.0
"""hector.nn.RGCNConv against the definition and against PyG's layer where it is installed."""

from types import SimpleNamespace

import pytest
import torch
from relational_layers import graph, rgcn

import hector


def by_definition(g, x, layer):
    """Row by row, as the paper writes it."""
    rows = []
    for node in range(g.num_nodes):
        total = x[node] @ layer.root + layer.bias
        for relation in range(g.num_relations):
            near = g.src[(g.dst == node) & (g.rel == relation)]
            if len(near):
                total = total + (x[near] @ layer.weight[relation]).mean(0)
        rows.append(total)
    return torch.stack(rows)


def test_mean_for_each_relation():
    torch.manual_seed(0)
    g, layer = graph(), hector.nn.RGCNConv(5, 6, 4).double()
    torch.nn.init.normal_(layer.bias)
    x = torch.randn(13, 5, dtype=torch.float64, requires_grad=True)
    out, expected = layer(g, x), by_definition(g, x, layer)
    torch.testing.assert_close(out, expected)
    parameters = [x, *layer.parameters()]
    found = torch.autograd.grad(out.square().sum(), parameters)
    for a, b in zip(found, torch.autograd.grad(expected.square().sum(), parameters), strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("root", [False, True])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("aggr", ["mean", "add", "sum"])
def test_options(root, bias, aggr):
    torch.manual_seed(0)
    g = graph()
    layer = hector.nn.RGCNConv(5, 6, 4, aggr=aggr, root_weight=root, bias=bias).double()
    x = torch.randn(13, 5, dtype=torch.float64)
    zero = torch.zeros((), dtype=torch.float64)
    matrix = layer.root if root else torch.zeros(5, 6, dtype=torch.float64)
    messages = hector.linear(x[g.src], layer.weight[g.rel])
    reduce = "mean_rel" if aggr == "mean" else "sum"
    expected = hector.aggregate(messages, g, reduce=reduce) + x @ matrix
    torch.testing.assert_close(layer(g, x), expected + (layer.bias if bias else zero))


def fake_pyg(**changes):
    layer = SimpleNamespace(
        weight=torch.randn(4, 5, 6), root=torch.randn(5, 6), bias=torch.randn(6),
        comp=None, aggr="mean", num_bases=None, num_blocks=None, in_channels=5, out_channels=6,
        num_relations=4,
    )  # fmt: skip
    for name, value in changes.items():
        setattr(layer, name, value)
    return layer


def test_from_pyg_copies_weights():
    source = fake_pyg()
    layer = hector.nn.RGCNConv.from_pyg(source)
    g, x = graph(), torch.randn(13, 5)
    expected = rgcn(g, x, source.weight, source.root, source.bias)
    torch.testing.assert_close(layer(g, x), expected, rtol=1e-4, atol=1e-5)
    source.weight.zero_()
    assert layer.weight.abs().sum() > 0
    assert set(layer.state_dict()) == {"weight", "root", "bias"}


@pytest.mark.parametrize(
    "changes",
    [{"aggr": "max"}, {"in_channels": (5, 7)}],
)
def test_from_pyg_refuses_what_it_would_get_wrong(changes):
    with pytest.raises(RuntimeError, match="from_pyg"):
        hector.nn.RGCNConv.from_pyg(fake_pyg(**changes))


def test_wrong_graph_and_arguments():
    layer = hector.nn.RGCNConv(5, 6, 3)
    with pytest.raises(ValueError, match="exactly 4"):
        layer(graph(), torch.randn(13, 5))
    with pytest.raises(ValueError, match="must be positive"):
        hector.nn.RGCNConv(0, 6, 3)
    with pytest.raises(ValueError, match="aggr='max' is none of"):
        hector.nn.RGCNConv(5, 6, 3, aggr="max")
