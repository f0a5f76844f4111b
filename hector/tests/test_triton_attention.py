# SPDX-License-Identifier: Apache-2.0
"""Attention layers and their gradients in Triton kernels, interpreted, equal the eager text."""

import math

import pytest
import torch
from relational_layers import graph, maker, outputs_and_gradients
from triton_interpreter import require_interpreter

import hector
from hector.forms import Forms

require_interpreter()

# NumPy's, for lanes whose results are thrown away.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::RuntimeWarning")
WIDTH = 8


def rgat(g, x, w, query, key, bias):
    z_src, z_dst = hector.linear(x[g.src], w[g.rel]), hector.linear(x[g.dst], w[g.rel])
    score = (z_dst @ query).squeeze(-1) + (z_src @ key).squeeze(-1)
    share = hector.edge_softmax(torch.nn.functional.leaky_relu(score, 0.2), g)
    return hector.aggregate(share[:, None] * z_src, g) + bias


def dropped(g, x, w, key, edge):
    """Two heads; shares are dropped and weighted after the softmax."""
    z = hector.linear(x[g.src], w[g.rel]).reshape(-1, 2, WIDTH // 2)
    share = hector.edge_softmax(torch.tanh((z * key[g.rel]).sum(-1)), g)
    share = hector.dropout(share, 0.3, 5) * edge[:, None]
    return hector.aggregate(share[:, :, None] * z, g, reduce="mean").flatten(1)


def hgt(g, x, kqv, attend, message, prior, out, skip):
    projected = hector.linear(x, kqv[g.node_type]).reshape(x.shape[0], 3, WIDTH)
    keys, queries, values = projected.unbind(1)
    folded = attend * (prior / math.sqrt(WIDTH))[:, None, None]
    score = (hector.linear(keys[g.src], folded[g.rel]) * queries[g.dst]).sum(-1)
    share = hector.edge_softmax(score, g)
    summed = hector.aggregate(share[:, None] * hector.linear(values[g.src], message[g.rel]), g)
    new = hector.linear(torch.nn.functional.gelu(summed), out[g.node_type])
    kept = torch.sigmoid(skip)[g.node_type][:, None]
    return kept * new + (1 - kept) * x


def tensors(name, g, dtype=torch.float32):
    nodes, edges, relations, types, d = (
        g.num_nodes, g.num_edges, g.num_relations, g.num_node_types, WIDTH,
    )  # fmt: skip
    shapes = {
        "rgat": [(nodes, d), (relations, d, d), (d, 1), (d, 1), (d,)],
        "dropped": [(nodes, d), (relations, d, d), (relations, 2, d // 2), (edges,)],
        "hgt": [
            (nodes, d), (types, d, 3 * d), (relations, d, d), (relations, d, d), (relations,),
            (types, d, d), (types,),
        ],
    }[name]  # fmt: skip
    make = maker(dtype, grad=False)
    return [(make(*s) / s[-1] ** 0.5).detach().requires_grad_() for s in shapes]


LAYERS = {"rgat": rgat, "dropped": dropped, "hgt": hgt}
FORMS = ("auto", Forms(), Forms(compact_src=True), Forms(True, False, True, True))


def hubs():
    """A graph with a node that most edges leave and one that most edges reach."""
    generator = torch.Generator().manual_seed(1)
    index = torch.randint(0, 20, (2, 150), generator=generator)
    index[0, :90], index[1, 60:] = 3, 4
    return hector.Graph(
        index, torch.randint(0, 2, (150,), generator=generator), 20, 3,
        torch.randint(0, 3, (20,), generator=generator),
    )  # fmt: skip


@pytest.mark.parametrize("forms", FORMS, ids=str)
@pytest.mark.parametrize("shape", ["plain", "hubs"])
@pytest.mark.parametrize("name", LAYERS)
def test_outputs_and_gradients(name, shape, forms):
    g = hubs() if shape == "hubs" else graph(20, 90)
    args = tensors(name, g)
    doubles = [t.detach().double().requires_grad_() for t in args]
    compiled = hector.compile(LAYERS[name], forms=forms, emitter="triton")
    expected = outputs_and_gradients(LAYERS[name], g, doubles)
    found = outputs_and_gradients(compiled, g, args)
    for a, b in zip(found, expected, strict=True):
        scale = max(float(b.detach().abs().max()), 1.0)
        torch.testing.assert_close(a, b.float(), rtol=1e-4, atol=1e-5 * scale)
    again = outputs_and_gradients(compiled, g, args)
    assert all(torch.equal(a, b) for a, b in zip(found, again, strict=True))


def shared(g, x, w):
    """Sums of what all edges of a node share: lanes beyond a node's edges must not count."""
    counted = hector.aggregate(x[g.dst], g)
    return counted + hector.aggregate(x[g.dst] * w[g.src], g)


@pytest.mark.parametrize("shape", ["plain", "hubs"])
def test_what_a_target_shares_counts_once_an_edge(shape):
    g = hubs() if shape == "hubs" else graph(20, 90)
    make = maker(torch.float32)
    args = (make(g.num_nodes, WIDTH), make(g.num_nodes, WIDTH))
    compiled = hector.compile(shared, emitter="triton")
    expected = outputs_and_gradients(shared, g, args)
    for a, b in zip(outputs_and_gradients(compiled, g, args), expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)
