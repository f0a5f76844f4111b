# SPDX-License-Identifier: Apache-2.0
"""The eager semantic functions against their definitions, element by element."""

import pytest
import torch
from relational_layers import graph

import hector


def test_linear():
    x, w = torch.randn(7, 3), torch.randn(7, 3, 4)
    expected = torch.stack([x[i] @ w[i] for i in range(7)])
    torch.testing.assert_close(hector.linear(x, w), expected)
    heads = torch.randn(7, 2, 3, 4)
    expected = torch.stack([torch.stack([x[i] @ m for m in heads[i]]) for i in range(7)])
    torch.testing.assert_close(hector.linear(x, heads), expected)
    several = torch.randn(7, 5, 3)
    expected = torch.stack([several[i] @ w[i] for i in range(7)])
    torch.testing.assert_close(hector.linear(several, w), expected)
    torch.testing.assert_close(hector.linear(x, w[0]), x @ w[0])


@pytest.mark.parametrize(
    ("x", "w"), [((7, 3), (6, 3, 4)), ((7, 3), (7, 4, 4)), ((7,), (7, 3, 4)), ((7, 3), (7,))]
)
def test_linear_refuses(x, w):
    with pytest.raises(ValueError, match="linear"):
        hector.linear(torch.zeros(x), torch.zeros(w))


def groups(g, by):
    for node in range(g.num_nodes):
        if by == "dst":
            yield node, g.dst == node
        else:
            for relation in range(g.num_relations):
                yield node, (g.dst == node) & (g.rel == relation)


@pytest.mark.parametrize("by", ["dst", "dst_rel"])
def test_edge_softmax(by):
    g = graph()
    score = torch.randn(60, 2) * 300  # exp of these overflows
    expected = torch.zeros_like(score)
    for _, chosen in groups(g, by):
        expected[chosen] = torch.softmax(score[chosen], 0)
    torch.testing.assert_close(hector.edge_softmax(score, g, by=by), expected)


@pytest.mark.parametrize("reduce", ["sum", "mean", "mean_rel", "max"])
def test_aggregate(reduce):
    g = graph()
    message = torch.randn(60, 3) - 5  # a maximum below the 0 of empty nodes
    expected = torch.zeros(13, 3)
    by = "dst_rel" if reduce == "mean_rel" else "dst"
    for node, chosen in groups(g, by):
        rows = message[chosen]
        if len(rows):
            done = {"sum": rows.sum(0), "max": rows.amax(0)}.get(reduce, rows.mean(0))
            expected[node] += done
    assert (expected == 0).all(1).any()
    torch.testing.assert_close(
        hector.aggregate(message, g, reduce=reduce), expected, rtol=1e-5, atol=1e-5
    )


def test_bad_arguments():
    g = graph()
    with pytest.raises(ValueError, match="must have 60 rows"):
        hector.aggregate(torch.zeros(13, 2), g)
    with pytest.raises(ValueError, match="must have 60 rows"):
        hector.edge_softmax(torch.zeros(()), g)
    with pytest.raises(ValueError, match="reduce='min'"):
        hector.aggregate(torch.zeros(60), g, reduce="min")
    with pytest.raises(ValueError, match="by='rel'"):
        hector.edge_softmax(torch.zeros(60), g, by="rel")


def test_dropout():
    x = torch.ones(100, 100)
    a, b = hector.dropout(x, 0.25, 7), hector.dropout(x, 0.25, 7)
    assert torch.equal(a, b)
    assert not torch.equal(a, hector.dropout(x, 0.25, 8))
    assert a.unique().tolist() == pytest.approx([0.0, 4 / 3])
    assert abs((a == 0).float().mean().item() - 0.25) < 0.03
    with pytest.raises(ValueError, match=r"in \[0, 1\)"):
        hector.dropout(x, 1.0, 7)
