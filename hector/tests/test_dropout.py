# SPDX-License-Identifier: Apache-2.0
"""Dropout with a seed: the eager function's masks, in every order of edges, without new traces."""

import pytest
import torch
from relational_layers import graph, maker, outputs_and_gradients

import hector
from hector.masks import keep_scales


def layer(g, x, W, seed, other=9):
    message = hector.dropout(hector.linear(x[g.src], W[g.rel]), 0.5, seed)
    return hector.aggregate(message, g) + hector.dropout(x, 0.25, other).sum(-1, keepdim=True)


def tensors(g):
    make = maker(torch.float64)
    return make(g.num_nodes, 4), make(g.num_relations, 4, 3)


@pytest.mark.parametrize("forms", ["auto", "per_edge", "aggregate_first", "compact"])
def test_a_new_seed_needs_no_new_trace(forms):
    compiled, g = hector.compile(layer, forms=forms), graph()
    x, W = tensors(g)
    results = []
    for seed in (0, 1, -5, 1 << 40, torch.tensor(1)):
        expected = outputs_and_gradients(lambda g, x, W, seed=seed: layer(g, x, W, seed), g, (x, W))
        found = outputs_and_gradients(lambda g, x, W, s=seed: compiled(g, x, W, s), g, (x, W))
        for a, b in zip(found, expected, strict=True):
            torch.testing.assert_close(a, b)
        results.append(found[0])
    assert len(compiled._traces) == 2  # one for ints, one for tensors
    assert torch.equal(results[1], results[4])
    assert not torch.equal(results[0], results[1])


def test_seeds_derived_from_an_integer():
    def two(g, x, step):
        return hector.dropout(x, 0.5, 2 * step)[g.src] + hector.dropout(x, 0.5, 1 + step * 2)[g.dst]

    compiled, g, x = hector.compile(two), graph(), torch.randn(13, 6)
    for step in range(4):
        assert torch.equal(compiled(g, x, step), two(g, x, step))
    assert len(compiled._traces) == 1


def test_arithmetic_on_a_seed_tensor_is_refused():
    compiled = hector.compile(lambda g, x, s: hector.dropout(x[g.src], 0.5, s + 1))
    with pytest.raises(RuntimeError, match=r"not simply a seed of .*; compute the seed before"):
        compiled(graph(), torch.randn(13, 6), torch.tensor(3))


def test_other_uses_of_an_integer_fix_it():
    def scaled(g, x, n, heads):
        return hector.aggregate(x[g.src].view(-1, heads, 2) * n, g)[:, : heads - 1] + n

    compiled, g = hector.compile(scaled), graph()
    x = torch.randn(13, 6)
    for n in (2, 3, 2):
        torch.testing.assert_close(compiled(g, x, n, 3), scaled(g, x, n, 3))
    assert len(compiled._traces) == 2


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_shares_and_independence(p):
    rows = torch.arange(2000)
    kept = keep_scales(rows, 50, p, 7, torch.float64) > 0
    assert abs(kept.double().mean() - (1 - p)) < 0.005
    columns, seeds = kept.double().mean(0), keep_scales(rows, 50, p, 8, torch.float64) > 0
    assert (columns - (1 - p)).abs().max() < 0.06
    both = (kept & seeds).double().mean()
    assert abs(both - (1 - p) ** 2) < 0.01
    neighbours = (kept[1:] & kept[:-1]).double().mean()
    assert abs(neighbours - (1 - p) ** 2) < 0.01


def test_masks_depend_on_place_and_seed_only():
    rows = torch.randperm(500) + (1 << 33)
    whole = keep_scales(torch.arange(500) + (1 << 33), 300, 0.3, 5, torch.float32)
    assert torch.equal(keep_scales(rows, 300, 0.3, 5, torch.float32), whole[rows - (1 << 33)])
    low = keep_scales(torch.arange(500), 300, 0.3, 5, torch.float32)
    assert not torch.equal(low, whole)


def test_wrong_arguments():
    x = torch.ones(3, 2)
    with pytest.raises(ValueError, match=r"p=1.0 must be in \[0, 1\)"):
        hector.dropout(x, 1.0, 0)
    for seed in (1.5, torch.ones(()), torch.ones(2, dtype=torch.long), True):
        with pytest.raises(TypeError, match="seed must be an int"):
            hector.dropout(x, 0.5, seed)
