# SPDX-License-Identifier: Apache-2.0
"""Triton kernels, interpreted on the CPU: inputs as users have them, hard and drawn graphs."""

import itertools

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from relational_layers import LAYERS, graph, inputs, maker
from test_compiled import graphs, strided
from test_hard_graphs import GRAPHS
from triton_interpreter import require_interpreter

import hector

require_interpreter()

from test_triton_layers import check, small  # noqa: E402
from test_triton_layers import pytestmark as pytestmark  # noqa: E402

CASES = [
    "no nodes", "no edges, one node", "one self-loop on one node", "self-loops only",
    "the same edge by every relation", "one type of nodes only", "sources are never destinations",
    "relations of every small size", "edges by descending relation",
]  # fmt: skip


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", ["rgat", "typed"])
def test_hard_graph(name, case):
    g = GRAPHS[case]()
    check(name, "auto", g, small(name, g, 5, 3))


def test_a_thousand_relations():
    g = graph(50, 300, 1000)
    g = hector.Graph(g.edge_index, g.edge_type, 50, 1000, g.node_type, sampled=True)
    check("rgat", "auto", g, small("rgat", g, 3, 4))


@pytest.mark.parametrize("name", LAYERS)
def test_memory_with_gaps(name):
    g = graph(30, 200)
    turned = torch.stack([g.src, g.dst, g.rel], 1)
    apart = hector.Graph(
        turned[:, :2].mT, turned[:, 2], 30, 4, torch.stack([g.node_type] * 2, 1)[:, 0]
    )
    assert not apart.edge_type.is_contiguous()
    check(name, "auto", apart, tuple(strided(t) for t in small(name, g, 5, 6)))


@pytest.mark.parametrize("name", ["rgcn", "rgat"])
def test_every_subset_of_gradients(name):
    g = graph(20, 70)
    count = len(small(name, g, 3, 4))
    for wanted in itertools.product((False, True), repeat=count):
        tensors = small(name, g, 3, 4, grad=False)
        for tensor, want in zip(tensors, wanted, strict=True):
            tensor.requires_grad_(want)
        check(name, "auto", g, tensors)


@settings(deadline=None, max_examples=20, suppress_health_check=[HealthCheck.too_slow])
@given(
    g=graphs(),
    name=st.sampled_from(sorted(LAYERS)),
    widths=st.tuples(st.sampled_from([1, 2, 7]), st.sampled_from([1, 3, 8])),
    once=st.booleans(),
)
def test_any_graph(g, name, widths, once):
    g = hector.Graph(
        g.edge_index, g.edge_type, g.num_nodes, g.num_relations, g.node_type, sampled=once
    )
    check(name, "auto", g, small(name, g, *widths))


def test_bad_input_runs_no_kernel(monkeypatch):
    g = graph()
    layer = hector.compile(LAYERS["rgcn"], emitter="triton")
    x, *rest = inputs("rgcn", g, maker(torch.float32, grad=False), 4, 3)
    layer(g, x, *rest)

    def run(*args, **kwargs):
        raise AssertionError("a program ran")

    monkeypatch.setattr("hector.emit.triton.launching.Launch.__call__", run)
    for bad, error in (
        (x[:12], ValueError), (torch.cat([x, x]), ValueError), (x.double(), TypeError),
        (x.long(), TypeError), (x.to("meta"), ValueError), (x.to_sparse(), ValueError),
    ):  # fmt: skip
        with pytest.raises(error):
            layer(g, bad, *rest)
    for index, kinds, error in (
        (g.edge_index + 13, g.rel, IndexError), (g.edge_index, g.rel - 1, IndexError),
        (g.edge_index.float(), g.rel, TypeError), (g.edge_index.to("meta"), g.rel, ValueError),
        (g.edge_index[:, 1:], g.rel, ValueError),
    ):  # fmt: skip
        with pytest.raises(error):
            layer(hector.Graph(index, kinds, 13, 4), x, *rest)
