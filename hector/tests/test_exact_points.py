# SPDX-License-Identifier: Apache-2.0
"""Gradients where a function has a kink, a tie or an infinite slope, and where none are wanted."""

import pytest
import torch
from relational_layers import graph, maker, outputs_and_gradients
from torch.nn import functional as F  # noqa: N812

import hector

POINTS = {
    "relu": lambda g, x, b: torch.relu(x)[g.src],
    "leaky relu": lambda g, x, b: F.leaky_relu(x, 0.3)[g.src],
    "prelu": lambda g, x, b: F.prelu(x[g.src], b) + F.prelu(x[g.dst], b[:1]),
    "elu": lambda g, x, b: F.elu(x, 0.3)[g.src] + F.selu(x)[g.src],
    "abs": lambda g, x, b: x.abs()[g.src],
    "clamp": lambda g, x, b: x.clamp(-1, 1)[g.src] + x.clamp(min=0)[g.dst] * x.clamp(1, -1)[g.src],
    "maximum": lambda g, x, b: torch.maximum(x[g.src], x[g.dst]) - torch.minimum(x, x * 0)[g.dst],
    "powers": lambda g, x, b: (x**0)[g.src] * b + (x**1)[g.src] + (x**2)[g.dst] + (x**3)[g.src],
    "amax": lambda g, x, b: x[g.src].amax(-1) + x.amin(1)[g.dst],
    "max of edges": lambda g, x, b: hector.aggregate(x[g.src], g, reduce="max"),
    "root of relu": lambda g, x, b: torch.sqrt(torch.relu(x))[g.src],
    "root of clamp": lambda g, x, b: torch.sqrt(x.clamp(-0.5, 9.5) - 0.5 * x.clamp(-1, -0.5))[
        g.src
    ],
    "root of a maximum": lambda g, x, b: torch.sqrt(torch.maximum(x, b * 0 - 0.5) + 0.5)[g.src],
    "logarithm of relu": lambda g, x, b: torch.log(torch.relu(x[g.src])).clamp(min=-5),
    "infinite numbers": lambda g, x, b: (
        torch.exp(x[g.src] - float("inf")) + torch.maximum(x[g.dst], b * 0 - float("inf"))
    ),
    "no number": lambda g, x, b: x[g.src] * float("nan") + b,
}


@pytest.mark.parametrize("forms", ["per_edge", hector.Forms(True, True, True, True)], ids=str)
@pytest.mark.parametrize("case", POINTS)
def test_whole_numbers(case, forms):
    g, make = graph(), maker(torch.float64)
    x = (make(13, 6).detach() * 1.5).round().requires_grad_()
    assert (x == 0).any()
    tensors = x, make(6)
    expected = outputs_and_gradients(POINTS[case], g, tensors)
    found = outputs_and_gradients(hector.compile(POINTS[case], forms=forms), g, tensors)
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, equal_nan=True)


def without(g, x, W):
    with torch.no_grad():
        weight = hector.edge_softmax((x[g.src] * x[g.dst]).sum(-1), g)
        kept, same = x * 2, x.clone()[:, :]
    return hector.aggregate(weight[:, None] * hector.linear((kept + x)[g.src], W[g.rel]), g) * same


@torch.no_grad()
def nothing(g, x, W):
    return hector.aggregate(hector.linear(x[g.src], W[g.rel]), g)


def outside(g, x, W):
    return without(g, x, W) + nothing(g, x, W), nothing(g, x, W)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_gradients_switched_off_inside(mode):
    g, make = graph(), maker(torch.float64)
    tensors = make(13, 4), make(4, 4, 4)
    compiled = hector.compile(outside)
    with mode():
        compiled(g, *tensors)  # The trace must not depend on whether the caller wants gradients.
    expected = outputs_and_gradients(outside, g, tensors)
    found = outputs_and_gradients(compiled, g, tensors)
    assert [a.requires_grad for a in found] == [b.requires_grad for b in expected]
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b)


ONE = {
    "rows first": lambda g, x, e, b: (hector.aggregate(x[g.src] * b + e * b, g) + b * x) * b,
    "weight first": lambda g, x, e, b: (hector.aggregate((e * b) * x[g.src], g) + (b * x)) * b,
    "before any index": lambda g, x, e, b: (x * b)[g.src] * (e - b) + torch.maximum(b, x)[g.dst],
    "joined with its result": lambda g, x, e, b: torch.cat([x, x * x, b * x, x * 2], 1)[g.src, :7],
    "results": lambda g, x, e, b: (x + b, e * b, hector.aggregate((x / 2 + b)[g.src] + e, g)),
}


@pytest.mark.parametrize("counts", [(1, 1), (1, 5), (5, 1), (1, 0), (5, 5)], ids=str)
@pytest.mark.parametrize("case", ONE)
def test_a_weight_of_one_row_on_graphs_of_one(case, counts):
    (nodes, edges), make = counts, maker(torch.float64)
    index = torch.zeros(2, edges, dtype=torch.long)
    g = hector.Graph(index, index[0], nodes, 1)
    tensors = make(nodes, 3), make(edges, 3), make(1, 3)
    expected = outputs_and_gradients(ONE[case], g, tensors)
    found = outputs_and_gradients(hector.compile(ONE[case]), g, tensors)
    for a, b in zip(found, expected, strict=True):
        assert a.shape == b.shape
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_slopes_too_large_for_the_dtype_meet_gradients_of_zero(dtype):
    # The slope of rsqrt(1e-5) is 1.6e7, which float16 does not hold.
    g, make = graph(), maker(torch.float32)
    x = torch.full((13, 4), 0.25, dtype=dtype).requires_grad_()
    weight = make(4).detach().to(dtype).requires_grad_()

    def layer(g, x, b):
        return F.layer_norm(x[g.src], (4,)) * b

    expected = outputs_and_gradients(layer, g, (x, weight))
    found = outputs_and_gradients(hector.compile(layer), g, (x, weight))
    for a, b in zip(found, expected, strict=True):
        assert a.isfinite().all()
        largest = float(b.detach().abs().max())
        torch.testing.assert_close(a, b, rtol=0, atol=8 * torch.finfo(dtype).eps * largest)
