# SPDX-License-Identifier: Apache-2.0
"""The cost model counts what it says, and its choices follow the graph."""

import pytest
import torch
from relational_layers import LAYERS, graph, inputs, maker

import hector
from hector.compiler import rounded
from hector.cost import Machine, function_cost
from hector.forms import ALL_FORMS
from hector.ir import parse
from hector.plan import Counts

COUNTS = Counts(node=10, edge=100, src_pair=40, dst_pair=50, relation=4, node_type=2)
MACHINE = Machine("test", bandwidth=1e3, flops=1e4, operator=0.5, segment=0.25)


def cost(*lines: str, params: str):
    body = "\n".join(lines)
    text = f"func f({params}) {{\n{body}\nreturn %{len(lines) - 1}\n}}"
    return function_cost(parse(text), COUNTS, MACHINE)


def test_typed_product():
    found = cost(
        "%0 = linear(%x, %W) {rows = edge.src, type = edge.rel} : edge[5] f32",
        params="%x: node[8] f32, %W: relation[8, 5] f32",
    )
    rows, matrices, out = 100 * (8 * 4 + 8), 4 * 8 * 5 * 4, 100 * 5 * 4
    assert found.bytes == rows + matrices + out
    assert found.flops == 2 * 100 * 8 * 5
    assert found.seconds == pytest.approx(found.bytes / 1e3 + 0.5 + 4 * 0.25)


def test_weight_gradient_and_traversal():
    found = cost(
        "%0 = outer(%x, %y) {rows = src_pair.node, type = src_pair.rel} : relation[8, 5] f64",
        params="%x: node[8] f64, %y: src_pair[5] f64",
    )
    assert found.flops == 2 * 40 * 8 * 5
    assert found.bytes == 40 * (8 * 8 + 8) + 40 * 5 * 8 + 4 * 8 * 5 * 8
    found = cost(
        "%0 = gather_sum(%x, %s) {map = edge.dst, rows = edge.src_pair} : node[5] f32",
        params="%x: src_pair[5] f32, %s: edge[1] f32",
    )
    assert found.bytes == 100 * (5 * 4 + 8) + 100 * 4 + 10 * 5 * 4


def test_views_and_constants_are_free():
    found = cost(
        "%0 = const() {dtype = f32, value = 2.0} : weight[] f32",
        "%1 = reshape(%x) {shape = (4, 2)} : node[4, 2] f32",
        "%2 = mul(%1, %0) : node[4, 2] f32",
        params="%x: node[8] f32",
    )
    assert found.bytes == 2 * 10 * 8 * 4


def chosen(g, name="rgcn", grad=False):
    tensors = inputs(name, g, maker(torch.float32, grad=grad), 64, 64)
    return hector.compile(LAYERS[name]).explain(g, *tensors)


def star(towards: bool) -> hector.Graph:
    """4,000 edges of two relations from few sources, or to few destinations."""
    generator = torch.Generator().manual_seed(0)
    many = torch.randint(0, 2000, (4000,), generator=generator)
    few = torch.randint(0, 4, (4000,), generator=generator)
    ends = [many, few] if towards else [few, many]
    rel = torch.randint(0, 2, (4000,), generator=generator)
    return hector.Graph(torch.stack(ends), rel, 2000, 2)


def test_few_sources_are_compacted_and_few_destinations_aggregated_first():
    assert chosen(star(towards=False)).forms.compact_src
    assert not chosen(star(towards=False)).forms.aggregate_first
    assert chosen(star(towards=True)).forms.aggregate_first


def test_attention_vectors_are_folded_in_inference():
    assert chosen(graph(500, 4000, 5), "rgat").forms.fold


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("name", ["rgcn", "rgat"])
def test_the_choice_is_the_cheapest_of_all(name, grad):
    explained = chosen(graph(300, 3000, 5), name, grad)
    assert set(explained.predicted_seconds) == set(ALL_FORMS)
    assert explained.predicted_seconds[explained.forms] == min(explained.predicted_seconds.values())


def test_rounding_keeps_small_counts_and_is_near():
    for count in (0, 1, 15, 16, 17, 1000, 12345, 10**9):
        near = rounded(Counts(count, count, count, count, count, count)).edge
        assert abs(near - count) <= count / 8
        assert count >= 16 or near == count
