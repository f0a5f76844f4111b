# SPDX-License-Identifier: Apache-2.0
"""Results and gradients are memory of their own: what changes one in place changes no other."""

import pytest
import torch
from relational_layers import graph

import hector

SAME = {
    "a row and a view": lambda g, x, y: x * 1 + y.flatten(1),
    "two views": lambda g, x, y: x.reshape(-1, 2, 3) + y,
    "rows of edges": lambda g, x, y: (x + y.flatten(1))[g.src],
    "turned": lambda g, x, y: (x.view(-1, 2, 3) + y.transpose(1, 2).reshape(-1, 2, 3))[g.src],
    "sums": lambda g, x, y: hector.aggregate((x + y.view(-1, 6))[g.src], g),
    "halves": lambda g, x, y: torch.cat([x, y.flatten(1)], 1)[g.src] * 2,
}


def alone(tensors):
    """Whether no element is in two of the tensors."""
    for i, tensor in enumerate(tensors):
        others = [other.clone() for j, other in enumerate(tensors) if j != i]
        tensor.add_(1)
        now = [other for j, other in enumerate(tensors) if j != i]
        if not all(torch.equal(a, b) for a, b in zip(now, others, strict=True)):
            return False
    return True


@pytest.mark.parametrize("forms", ["per_edge", "compact", "aggregate_first"])
@pytest.mark.parametrize("case", SAME)
def test_gradients(case, forms):
    g = graph()
    x, y = torch.randn(13, 6, requires_grad=True), torch.randn(13, 2, 3, requires_grad=True)
    out = hector.compile(SAME[case], forms=forms)(g, x, y)
    seed = torch.randn_like(out)
    out.backward(seed)
    expected = torch.autograd.grad(SAME[case](g, x, y), (x, y), seed.clone())
    torch.testing.assert_close((x.grad, y.grad), expected)
    assert alone([x.grad, y.grad, seed])


def test_outputs_that_are_views_of_one_value():
    def layer(g, x, W):
        whole = hector.aggregate((x @ W)[g.src], g)
        wide = torch.cat([whole, x], 1)
        views = whole.view(-1, 2, 3), whole.view(-1, 2, 3).transpose(1, 2)
        return whole, *views, wide, wide[:, :7], wide[:, 5:], x

    g, x, W = graph(), torch.randn(13, 6), torch.randn(6, 6)
    found = hector.compile(layer)(g, x, W)
    torch.testing.assert_close(found, layer(g, x, W))
    assert alone([*found, x])
