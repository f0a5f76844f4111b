# SPDX-License-Identifier: Apache-2.0
"""Triton kernels, interpreted on the CPU, on graphs that break assumptions."""

import pytest
import torch
from relational_layers import LAYERS
from triton_interpreter import require_interpreter

import hector

require_interpreter()

from test_triton_layers import FORMS, check, small  # noqa: E402
from test_triton_layers import pytestmark as pytestmark  # noqa: E402


def build(src, dst, rel, nodes, relations, dtype=torch.int64):
    index = torch.tensor([src, dst], dtype=dtype).reshape(2, len(src))
    kinds = torch.arange(nodes) % 3
    if nodes:
        kinds[-1] = 2
    return hector.Graph(index, torch.tensor(rel, dtype=dtype), nodes, relations, kinds)


def hub(nodes, edges, into):
    """All edges at one node: in-edges of it, or out-edges."""
    others = [i % nodes for i in range(edges)]
    ends = ([3] * edges, others)
    src, dst = ends[::-1] if into else ends
    return build(src, dst, [i % 3 for i in range(edges)], nodes, 4)


GRAPHS = {
    "no edges": build([], [], [], 5, 3),
    "one edge": build([2], [0], [1], 4, 3),
    "one node": build([0, 0, 0], [0, 0, 0], [0, 2, 2], 1, 3),
    "first relation empty": build([0, 1, 2], [1, 2, 0], [1, 2, 1], 4, 3),
    "middle relation empty": build([0, 1, 2], [1, 2, 0], [0, 2, 2], 4, 3),
    "last relation empty": build([0, 1, 2], [1, 2, 0], [0, 1, 1], 4, 3),
    "all in one relation": build([0, 1, 2, 3] * 9, [1, 2, 0, 0] * 9, [1] * 36, 6, 3),
    "duplicates, 32-bit ids": build([1] * 7, [2] * 7, [0] * 7, 4, 2, torch.int32),
    "isolated nodes": build([7, 7, 3], [3, 7, 7], [0, 1, 0], 40, 2),
    "hub of in-edges": hub(9, 150, True),
    "hub of out-edges": hub(9, 150, False),
    "hundred relations": build(
        [i % 11 for i in range(90)], [i % 7 for i in range(90)], list(range(90)), 11, 100
    ),
}


@pytest.mark.parametrize("case", GRAPHS)
@pytest.mark.parametrize("name", LAYERS)
def test_graph(name, case):
    g = GRAPHS[case]
    check(name, "auto", g, small(name, g, 6, 5))


@pytest.mark.parametrize("forms", FORMS[2:4], ids=str)
@pytest.mark.parametrize("case", ["no edges", "hub of in-edges", "hub of out-edges"])
@pytest.mark.parametrize("name", ["rgcn", "rgat"])
def test_graph_in_other_forms(name, case, forms):
    g = GRAPHS[case]
    check(name, forms, g, small(name, g, 6, 5))
