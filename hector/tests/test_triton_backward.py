# SPDX-License-Identifier: Apache-2.0
"""What backward programs of the Triton emitter read and save on a large graph; runs no kernel."""

import pytest
import torch

import hector
from hector.compiler import Candidates
from hector.cost import GPU
from hector.emit.triton import TritonEmitter, cost
from hector.emit.triton.arrange import arrange
from hector.emit.triton.cost import group_bytes, runs, stored_values
from hector.emit.triton.expand import expand
from hector.emit.triton.groups import Family
from hector.ir import Space, parse
from hector.ir.types import MAPS
from hector.measure.layers import LAYERS
from hector.measure.shapes import Shape
from hector.passes import canonicalise, node_routes
from hector.plan import Counts

BIG = Counts(2_000_000, 20_000_000, 6_000_000, 6_000_000, 4, 4)
ROW = 64 * 4


@pytest.fixture(scope="module", params=LAYERS)
def made(request):
    """A layer's name and its programs for training on a large graph."""
    layer = LAYERS[request.param]
    g = layer.draw(Shape("small", 30, 200, 4, 4), "cpu")
    tensors = layer.inputs(g)
    call = hector.compile(layer.function)._match((g, *tensors), {})
    wrt = frozenset(item.name for item in call.trace.inputs)
    emitter = TritonEmitter(torch.device("cpu"))
    built = Candidates(call.trace.function, wrt, node_routes(BIG), emitter).build(BIG, None, GPU)
    return request.param, built


def walks_of_wide_rows(function):
    """For each kernel that walks over edges, the wide rows that it gathers for each."""
    _, groups = arrange(expand(function), BIG)
    found = []
    for group in groups:
        reads = {
            (op.operands[0], op.map())
            for op in group.ops
            if op.op == "gather" and op.map() != group.map and op.type.width >= 64
            and MAPS[op.map()].source is Space.EDGE
        }  # fmt: skip
        if group.map is not None and reads:
            found.append(len(reads))
    return sorted(found)


def test_nothing_of_edges_is_saved(made):
    _, built = made
    assert all(p.type.space is not Space.EDGE for p in built.lowered.backward.params)


def test_rows_of_edges_are_read_as_often_as_gradients_need(made):
    name, built = made
    most = {"RGCN": [1], "RGAT": [1], "HGT": [1, 2]}[name]
    assert walks_of_wide_rows(built.lowered.backward) == most


def test_bytes_of_backward_are_near_the_least(made):
    name, built = made
    expanded, groups = arrange(expand(built.lowered.backward), BIG)
    stored = stored_values(expanded, groups)
    moved = sum(sum(group_bytes(each, stored, BIG)) for each in runs(expanded, groups))
    e, u, n = BIG.edge, BIG.src_pair, BIG.node
    # Gradients of edges, of pairs (summed: written and read by two products; sources read, results
    # written and read), of nodes and of their products.
    least = {
        "RGCN": e + 6 * u + 5 * n,
        "RGAT": e + 7 * u + BIG.dst_pair + 6 * n,
        "HGT": 3 * e + 14 * u + 20 * n,
    }[name]
    assert moved <= 1.25 * least * ROW


def test_sums_go_into_products_without_memory_where_such_kernels_are_fast(made, monkeypatch):
    _, built = made
    monkeypatch.setitem(cost.SHARES, Family.WALK_PRODUCT, 0.8)
    expanded, groups = arrange(expand(built.lowered.backward), BIG)
    fused = [each for each in groups if each.family is Family.WALK_PRODUCT]
    assert any(
        {"linear", "outer"} <= {op.op for op in each.ops} and each.map == "edge.src_pair"
        for each in fused
    )
    stored = stored_values(expanded, groups)
    sums = {op for each in fused for op in each.ops if op.op == "segment_sum"}
    assert all(op.type.width == 1 for op in sums & stored)


def test_parts_are_stored_as_columns_of_the_whole():
    text = """func f(%x: node[4] f32, %y: node[4] f32, %w: weight[4, 4] f32) {
        %0 = linear(%x, %w) : node[4] f32
        %1 = pad(%0) {after = 4, axis = 0, before = 0} : node[8] f32
        %2 = exp(%y) : node[4] f32
        %3 = pad(%2) {after = 0, axis = 0, before = 4} : node[8] f32
        %4 = add(%1, %3) : node[8] f32
        %5 = relu(%4) : node[8] f32
        return %5
    }"""
    source = TritonEmitter(torch.device("cpu")).emit(canonicalise(parse(text)), BIG).source
    assert "pad" not in source
    assert "torch.cat" not in source
    assert source.count(".narrow(1, ") == 2
