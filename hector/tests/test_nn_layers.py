# SPDX-License-Identifier: Apache-2.0
"""hector.nn against the definitions written row by row, on any order and subset of names."""

import math
from types import SimpleNamespace

import pytest
import torch
from relational_layers import graph
from torch.nn import functional

import hector

TYPES = ("paper", "author", "venue")
RELATIONS = (
    ("author", "writes", "paper"), ("paper", "cites", "paper"), ("paper", "in", "venue"),
    ("author", "knows", "author"),
)  # fmt: skip
WIDTHS = {"paper": 6, "author": 4, "venue": 5}
COUNTS = {"paper": 7, "author": 5, "venue": 3}


class Hetero(dict):
    """As much of a HeteroData as Graph.from_pyg reads."""

    def __init__(self, types, relations, edges, counts=COUNTS):
        super().__init__({name: SimpleNamespace(num_nodes=counts[name]) for name in types})
        self.node_types, self.edge_types = list(types), list(relations)
        for relation in relations:
            self[relation] = SimpleNamespace(edge_index=edges[relation])


def edges(empty=()):
    torch.manual_seed(0)
    return {
        r: torch.stack(
            [torch.randint(0, COUNTS[end], (0 if r in empty else 9,)) for end in (r[0], r[2])]
        )
        for r in RELATIONS
    }


def features(dtype=torch.float64):
    torch.manual_seed(1)
    return {name: torch.randn(COUNTS[name], WIDTHS[name], dtype=dtype) for name in TYPES}


def randomise(layer):
    torch.manual_seed(2)
    layer.double()
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(torch.randn(parameter.shape) / 2)
    return layer


def same_with_gradients(layer, found, expected):
    torch.testing.assert_close(found, expected)
    parameters = list(layer.parameters())
    a, b = (
        torch.autograd.grad(out.square().sum(), parameters, allow_unused=True, retain_graph=True)
        for out in (found, expected)
    )
    for parameter, x, y in zip(parameters, a, b, strict=True):
        zero = torch.zeros_like(parameter)
        torch.testing.assert_close(zero if x is None else x, zero if y is None else y)


def neighbours(index, i):
    return index[0, index[1] == i]


def hgt_rows(layer, x, edges, types, relations):
    """Hu et al., node by node."""
    heads, d = layer.heads, layer.out_channels // layer.heads
    number = {name: layer.node_types.index(name) for name in types}

    def project(name, row):
        t = number[name]
        wide = functional.pad(row, (0, layer.kqv.shape[1] - len(row)))
        return (wide @ layer.kqv[t] + layer.kqv_bias[t]).view(3, heads, d)

    rows = {}
    for name in types:
        t, made = number[name], []
        for i in range(COUNTS[name]):
            query, scores, values = project(name, x[name][i])[1], [], []
            for relation in relations:
                if relation[2] != name:
                    continue
                r = layer.relations.index(relation)
                for j in neighbours(edges[relation], i):
                    key, _, value = project(relation[0], x[relation[0]][j])
                    key = torch.einsum("hk,hkn->hn", key, layer.k_rel[r])
                    scores.append((key * query).sum(-1) * layer.p_rel[r] / math.sqrt(d))
                    values.append(torch.einsum("hk,hkn->hn", value, layer.v_rel[r]))
            total = torch.zeros(heads, d, dtype=torch.float64)
            if scores:
                share = torch.softmax(torch.stack(scores), 0)
                total = (share[..., None] * torch.stack(values)).sum(0)
            out = functional.gelu(total.flatten()) @ layer.out[t] + layer.out_bias[t]
            if WIDTHS[name] == layer.out_channels:
                a = torch.sigmoid(layer.skip[t])
                out = a * out + (1 - a) * x[name][i]
            made.append(out)
        rows[name] = torch.stack(made)
    return rows


ORDERS = {
    "as it is": (TYPES, RELATIONS),
    "reversed": (TYPES[::-1], RELATIONS[::-1]),
    "a part": (TYPES[:2], (RELATIONS[3], RELATIONS[0])),
}


@pytest.mark.parametrize("empty", [(), RELATIONS[:1], RELATIONS[1:2], RELATIONS[3:], RELATIONS])
@pytest.mark.parametrize("order", ORDERS)
def test_hgt_in_any_order(order, empty):
    types, relations = ORDERS[order]
    layer = randomise(hector.nn.HGTConv(WIDTHS, 6, (TYPES, RELATIONS), heads=3))
    data, x = edges(empty), features()
    g = hector.Graph.from_pyg(Hetero(types, relations, data))
    out = layer(g, x)
    expected = hgt_rows(layer, x, data, types, relations)
    assert set(out) == set(types) & {relation[2] for relation in RELATIONS}
    same_with_gradients(
        layer, torch.cat([out[n] for n in out]), torch.cat([expected[n] for n in out])
    )


def sage_rows(layer, x, edges, types, relations):
    rows = {}
    for name in types:
        total = torch.zeros(COUNTS[name], layer.out_channels, dtype=torch.float64)
        leading = [relation for relation in relations if relation[2] == name]
        for relation in leading:
            r = layer.relations.index(relation)
            width = WIDTHS[relation[0]]
            for i in range(COUNTS[name]):
                near = x[relation[0]][neighbours(edges[relation], i)]
                sums = near.sum(0) / (max(len(near), 1) if layer.aggr == "mean" else 1)
                total[i] = total[i] + sums @ layer.lin_l[r, :width]
            if layer.bias is not None:
                total = total + layer.bias[r]
            if layer.lin_r is not None:
                total = total + x[name] @ layer.lin_r[r, : WIDTHS[name]]
        if layer.relation_aggr == "mean":
            total = total / max(len(leading), 1)
        rows[name] = total
    return rows


@pytest.mark.parametrize(
    "options",
    [
        {}, {"aggr": "sum"}, {"relation_aggr": "mean"}, {"root_weight": False}, {"bias": False},
        {"root_weight": False, "bias": False},
    ],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("order", ORDERS)
def test_sage_in_any_order(order, options):
    types, relations = ORDERS[order]
    layer = randomise(hector.nn.HeteroSAGEConv(WIDTHS, 8, (TYPES, RELATIONS), **options))
    data, x = edges(RELATIONS[1:2]), features()
    g = hector.Graph.from_pyg(Hetero(types, relations, data))
    out = layer(g, x)
    expected = sage_rows(layer, x, data, types, relations)
    assert set(out) == {relation[2] for relation in relations}
    for name in out:
        torch.testing.assert_close(out[name], expected[name])
    torch.cat(list(out.values())).square().sum().backward()
    assert all(p.grad.isfinite().all() for p in layer.parameters())


def rgat_rows(layer, g, x, edge_attr=None):
    """Busbridge et al., edge by edge, with dense matrices."""
    weight = layer.weight
    if layer.comp is not None:
        weight = torch.einsum("rb,bkn->rkn", layer.comp, weight)
    if weight.dim() == 4:
        weight = torch.stack([torch.block_diag(*blocks) for blocks in weight])
    z = torch.stack([x[j] @ weight[r] for j, r in zip(g.src, g.rel, strict=True)])
    y = torch.stack([x[i] @ weight[r] for i, r in zip(g.dst, g.rel, strict=True)])
    query, key = y @ layer.q, z @ layer.k
    edge = None if edge_attr is None else edge_attr @ layer.lin_edge @ layer.e
    if layer.attention_mode.startswith("additive"):
        score = functional.leaky_relu(query + key + (0 if edge is None else edge), 0.2)
    else:
        score = query * key * (1 if edge is None else edge)
    heads, dim = layer.heads, layer.dim
    out = torch.zeros(g.num_nodes, heads, dim, layer.out_channels, dtype=torch.float64)
    groups = g.dst if layer.attention_mechanism.startswith("across") else g.dst * 1000 + g.rel
    rows = []
    for i in range(g.num_nodes):
        total = out[i]
        for group in groups[g.dst == i].unique():
            at = groups == group
            share = torch.softmax(score[at], 0).view(-1, heads, dim, 1)
            total = total + (share * z[at].view(-1, heads, 1, layer.out_channels)).sum(0)
        rows.append(total)
    out = torch.stack(rows)
    out = out.flatten(1) if layer.concat else out.mean(1).flatten(1)
    return out if layer.bias is None else out + layer.bias


RGAT = [
    {},
    {"heads": 3},
    {"heads": 2, "concat": False},
    {"heads": 2, "num_bases": 3},
    {"heads": 2, "num_blocks": 2},
    {"attention_mechanism": "within-relation", "bias": False},
    {"attention_mode": "multiplicative-self-attention", "heads": 2, "dim": 3},
    {"attention_mode": "multiplicative-self-attention", "edge_dim": 2, "concat": False},
    {"heads": 2, "edge_dim": 3},
]


@pytest.mark.parametrize("options", RGAT, ids=str)
def test_rgat(options):
    g = graph()
    layer = randomise(hector.nn.RGATConv(6, 4, 4, **options))
    x = torch.randn(13, 6, dtype=torch.float64)
    edge = torch.randn(60, options["edge_dim"]).double() if "edge_dim" in options else None
    same_with_gradients(layer, layer(g, x, edge), rgat_rows(layer, g, x, edge))


def test_rgat_dropout():
    g, layer = graph(), randomise(hector.nn.RGATConv(6, 4, 4, dropout=0.5))
    x = torch.randn(13, 6, dtype=torch.float64)
    torch.manual_seed(5)
    first, second = layer(g, x), layer(g, x)
    torch.manual_seed(5)
    assert torch.equal(first, layer(g, x))
    assert not torch.equal(first, second)
    assert torch.equal(layer(g, x, seed=3), layer(g, x, seed=3))
    layer.eval()
    torch.testing.assert_close(layer(g, x), rgat_rows(layer, g, x))


@pytest.mark.parametrize("options", [{"num_bases": 3}, {"num_blocks": 2}], ids=str)
def test_rgcn_decompositions(options):
    g, layer = graph(), randomise(hector.nn.RGCNConv(6, 4, 4, **options))
    x = torch.randn(13, 6, dtype=torch.float64)
    if layer.comp is not None:
        weight = torch.einsum("rb,bkn->rkn", layer.comp, layer.weight)
    else:
        weight = torch.stack([torch.block_diag(*blocks) for blocks in layer.weight])
    messages = hector.linear(x[g.src], weight[g.rel])
    expected = hector.aggregate(messages, g, reduce="mean_rel") + x @ layer.root + layer.bias
    same_with_gradients(layer, layer(g, x), expected)


def test_tensors_in_and_out_without_names():
    kinds = torch.tensor([0, 2, 1, 1, 0, 2])
    g = hector.Graph(torch.tensor([[0, 1, 2], [3, 4, 5]]), torch.tensor([0, 3, 1]), 6, 4, kinds)
    for layer in (
        hector.nn.HGTConv(6, 6, (TYPES, RELATIONS), heads=2),
        hector.nn.HeteroSAGEConv(6, 6, (TYPES, RELATIONS)),
    ):
        assert layer(g, torch.randn(6, 6)).shape == (6, 6)
        assert str(layer)


def test_a_node_type_without_nodes():
    counts = {**COUNTS, "venue": 0}
    data = edges((RELATIONS[2],))
    g = hector.Graph.from_pyg(Hetero(TYPES, RELATIONS, data, counts))
    x = {name: torch.randn(counts[name], WIDTHS[name]) for name in TYPES}
    for layer in (
        hector.nn.HGTConv(WIDTHS, 6, (TYPES, RELATIONS)),
        hector.nn.HeteroSAGEConv(WIDTHS, 6, (TYPES, RELATIONS)),
    ):
        out = layer(g, x)
        assert out["venue"].shape == (0, 6)
        sum(value.sum() for value in out.values()).backward()


WRONG = {
    "heads": lambda: hector.nn.HGTConv(4, 6, (TYPES, RELATIONS), heads=4),
    "width": lambda: hector.nn.HGTConv({"paper": 3}, 6, (TYPES, RELATIONS)),
    "no width": lambda: hector.nn.HeteroSAGEConv({"paper": 3}, 6, (TYPES, RELATIONS)),
    "aggr": lambda: hector.nn.HeteroSAGEConv(3, 6, (TYPES, RELATIONS), aggr="max"),
    "mechanism": lambda: hector.nn.RGATConv(3, 4, 2, attention_mechanism="none"),
    "attention_mode": lambda: hector.nn.RGATConv(3, 4, 2, attention_mode="none"),
    "dim": lambda: hector.nn.RGATConv(3, 4, 2, dim=2),
    "dropout": lambda: hector.nn.RGATConv(3, 4, 2, dropout=1),
    "exclude": lambda: hector.nn.RGCNConv(4, 4, 2, num_bases=2, num_blocks=2),
    "divide": lambda: hector.nn.RGCNConv(4, 4, 2, num_blocks=3),
}


@pytest.mark.parametrize("word", WRONG)
def test_wrong_options(word):
    with pytest.raises(ValueError, match=word):
        WRONG[word]()


def test_wrong_graphs_and_features():
    layer = hector.nn.HGTConv(4, 6, (TYPES[:2], RELATIONS[:2]))
    g = hector.Graph.from_pyg(Hetero(TYPES, RELATIONS, edges()))
    with pytest.raises(ValueError, match="not in the layer's metadata"):
        layer(g, features())
    with pytest.raises(ValueError, match="has 4 relations without names; the layer knows 2"):
        layer(graph(), torch.randn(13, 4))
    whole = hector.nn.HeteroSAGEConv(WIDTHS, 6, (TYPES, RELATIONS))
    with pytest.raises(ValueError, match="no features for the node types"):
        whole(g, {"paper": torch.zeros(7, 6)})
    with pytest.raises(ValueError, match="features by node type need"):
        whole(graph(), {"paper": torch.zeros(7, 6)})
    for layers in (whole, hector.nn.HGTConv(WIDTHS, 6, (TYPES, RELATIONS))):
        for wrong in (torch.zeros(7, 4), torch.zeros(7, 8), torch.zeros(6, 6), torch.zeros(7)):
            with pytest.raises(ValueError, match=r"features of 'paper' are \(.*, not \(7, 6\)"):
                layers(g, features() | {"paper": wrong})
    sparse = Hetero(TYPES, RELATIONS, edges())
    del sparse[RELATIONS[1]].edge_index
    with pytest.raises(ValueError, match=r"cites.* has no edge_index"):
        hector.Graph.from_pyg(sparse)
    with pytest.raises(ValueError, match="edge_attr is needed"):
        hector.nn.RGATConv(4, 6, 4, edge_dim=2)(graph(), torch.randn(13, 4))


@pytest.mark.parametrize("make", [hector.nn.HGTConv, hector.nn.HeteroSAGEConv])
def test_layers_made_without_memory_are_whole_after_a_reset(make):
    plain = make(WIDTHS, 6, (TYPES, RELATIONS))
    with torch.device("meta"):
        layer = make(WIDTHS, 6, (TYPES, RELATIONS))
    layer.to_empty(device="cpu")
    for buffer in layer.buffers():
        buffer.fill_(float("nan"))
    layer.reset_parameters()
    layer.load_state_dict(plain.state_dict())
    g, x = Hetero(TYPES, RELATIONS, edges()), features(torch.float32)
    graph_of_it = hector.Graph.from_pyg(g)
    found, expected = layer(graph_of_it, x), plain(graph_of_it, x)
    assert found.keys() == expected.keys()
    for name in found:
        assert torch.equal(found[name], expected[name])
