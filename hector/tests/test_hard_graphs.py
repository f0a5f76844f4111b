# SPDX-License-Identifier: Apache-2.0
"""Graphs that break relational layers elsewhere: every layer equals eager, bit for bit twice."""

import pytest
import torch
from relational_layers import LAYERS, inputs, maker
from test_compiled import check

import hector


def made(src, dst, rel, nodes, relations, types=None, dtype=torch.int64):
    types = [i % 3 for i in range(nodes)] if types is None else types
    index = torch.tensor([src, dst], dtype=dtype).reshape(2, len(src))
    kinds = torch.tensor(types, dtype=dtype)
    return hector.Graph(index, torch.tensor(rel, dtype=dtype), nodes, relations, kinds, 3)


def without(*empty, relations=4):
    """Every relation that is not named has edges among seven nodes; the last node has none."""
    used = [r for r in range(relations) if r not in empty]
    count = 24 if used else 0
    generator = torch.Generator().manual_seed(0)
    src, dst = torch.randint(0, 6, (2, count), generator=generator).tolist()
    return made(src, dst, [used[i % len(used)] for i in range(count)], 7, relations)


def staircase():
    """Relations of 1, 2, .. 17 edges."""
    rel = [r for r in range(17) for _ in range(r + 1)]
    count = len(rel)
    return made([i * 7 % 11 for i in range(count)], [i * 5 % 11 for i in range(count)], rel, 11, 17)


GRAPHS = {
    "first relation empty": lambda: without(0),
    "middle relations empty": lambda: without(1, 2),
    "last relation empty": lambda: without(3),
    "no edges": lambda: without(0, 1, 2, 3),
    "no edges, one node": lambda: made([], [], [], 1, 1),
    "no nodes": lambda: made([], [], [], 0, 2),
    "one edge": lambda: made([2], [0], [1], 3, 3),
    "one self-loop on one node": lambda: made([0], [0], [0], 1, 1),
    "self-loops only": lambda: made(range(5), range(5), [0, 1, 0, 1, 2], 5, 3),
    "one edge many times": lambda: made([1] * 9, [2] * 9, [1] * 9, 4, 2),
    "the same edge by every relation": lambda: made([1] * 6, [2] * 6, range(6), 4, 6),
    "a star inwards": lambda: made(range(1, 9), [0] * 8, [i % 2 for i in range(8)], 9, 2),
    "a star outwards": lambda: made([0] * 8, range(1, 9), [i % 2 for i in range(8)], 9, 2),
    "one type of nodes only": lambda: made([0, 1, 2], [1, 2, 0], [0, 1, 1], 3, 2, [1, 1, 1]),
    "sources are never destinations": lambda: made([0, 1, 0], [2, 3, 3], [0, 1, 1], 4, 2),
    "relations of every small size": staircase,
    "small integers": lambda: made([2, 0], [0, 1], [1, 0], 3, 2, dtype=torch.int32),
    "edges by descending relation": lambda: made([0, 1, 2], [1, 0, 2], [2, 1, 0], 3, 3),
}


@pytest.mark.parametrize("case", GRAPHS)
@pytest.mark.parametrize("name", LAYERS)
def test_equals_eager(name, case):
    g = GRAPHS[case]()
    for widths in ((1, 1), (5, 3)):
        check(name, "auto", g, inputs(name, g, maker(torch.float64), *widths))


@pytest.mark.parametrize("case", GRAPHS)
def test_order_of_edges_changes_nothing_but_rounding(case):
    g = GRAPHS[case]()
    order = torch.randperm(g.num_edges, generator=torch.Generator().manual_seed(1))
    shuffled = hector.Graph(
        g.edge_index[:, order], g.edge_type[order], g.num_nodes, g.num_relations,
    )  # fmt: skip
    layer = hector.compile(LAYERS["rgat"])
    tensors = inputs("rgat", g, maker(torch.float64), 4, 3)
    torch.testing.assert_close(layer(shuffled, *tensors), layer(g, *tensors))


@pytest.mark.parametrize("forms", ["per_edge", "compact", "aggregate_first", "fold"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_large_scores_do_not_overflow(dtype, forms):
    g = without(3)
    layer = hector.compile(
        lambda g, x, s: hector.aggregate(hector.edge_softmax(s, g)[:, None] * x[g.src], g),
        forms=forms,
    )
    x, scores = torch.ones(7, 2, dtype=dtype), torch.linspace(-3e4, 3e4, 24).to(dtype)
    out = layer(g, x, scores)
    reached = torch.zeros(7, dtype=torch.bool)
    reached[g.dst] = True
    torch.testing.assert_close(out[reached], torch.ones_like(out[reached]))
    assert not out[~reached].any()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_many_small_terms_are_summed_in_single_precision(dtype):
    count = 4000
    g = hector.Graph(
        torch.zeros(2, count, dtype=torch.long), torch.zeros(count, dtype=torch.long), 1
    )
    layer = hector.compile(lambda g, e: hector.aggregate(e, g))
    out = layer(g, torch.full((count, 1), 0.25, dtype=dtype))
    torch.testing.assert_close(out.float(), torch.full((1, 1), 1000.0), rtol=0.01, atol=0)


@pytest.mark.parametrize("name", LAYERS)
def test_half_precision(name):
    g = without(1)
    make = maker(torch.float64, grad=False)
    tensors = tuple((t / 3).half().requires_grad_() for t in inputs(name, g, make, 4, 4))
    exact = [t.detach().double() for t in tensors]
    layer = hector.compile(LAYERS[name])
    found, expected = layer(g, *tensors), LAYERS[name](g, *exact)
    found = found if isinstance(found, tuple) else (found,)
    expected = expected if isinstance(expected, tuple) else (expected,)
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a.double(), b, rtol=1e-2, atol=1e-2)
    sum(a.float().sum() for a in found).backward()
    assert all(t.grad.dtype is torch.float16 and t.grad.isfinite().all() for t in tensors)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", LAYERS)
def test_autocast(name, dtype):
    g = without(1)
    make = maker(torch.float64, grad=False)
    tensors = tuple((t / 3).float().requires_grad_() for t in inputs(name, g, make, 4, 4))
    layer = hector.compile(LAYERS[name])
    with torch.autocast("cpu", dtype):
        cast = layer(g, *tensors)
        plain = layer(g, *(t.detach().double() for t in tensors))
    by_hand = layer(g, *(t.to(dtype) for t in tensors))
    full = layer(g, *tensors)
    results = [r if isinstance(r, tuple) else (r,) for r in (cast, plain, by_hand, full)]
    for low, double, same, exact in zip(*results, strict=True):
        assert low.dtype is dtype
        assert double.dtype is torch.float64
        assert torch.equal(low, same)
        assert exact.dtype is torch.float32
        torch.testing.assert_close(low.float(), exact, rtol=6e-2, atol=6e-2)
    sum(low.float().sum() for low in results[0]).backward()
    assert all(t.grad.dtype is torch.float32 for t in tensors)
