# SPDX-License-Identifier: Apache-2.0
"""Kernels that build plans, interpreted on the CPU, give what PyTorch's operators give."""

import pytest
import torch
from relational_layers import graph
from test_sampled_graphs import GRAPHS, batch, sampled
from triton_interpreter import require_interpreter

import hector
from hector.emit.triton import tables
from hector.ir.types import MAPS
from hector.orders import stable_order
from hector.plan import Plan

require_interpreter()

from test_triton_layers import check, small  # noqa: E402
from test_triton_layers import pytestmark as pytestmark  # noqa: E402

from hector import plan_kernels  # noqa: E402

CASES = {**GRAPHS, "batch": lambda: batch(0), "one edge": lambda: graph(3, 1, 2)}


def same(found, expected):
    """Equal in value, up to the expected length."""
    assert found.dtype in (torch.int32, expected.dtype)
    assert torch.equal(found[: expected.shape[0]].long(), expected.long())


@pytest.mark.parametrize("case", [name for name in CASES if CASES[name]().num_edges])
def test_pairs(case):
    g = CASES[case]()
    plan = g.plan()
    answer = torch.zeros(3, dtype=torch.int64)
    made = plan_kernels.ends(
        g.src, g.dst, g.rel, plan.edge_order, g.num_nodes, g.num_relations, answer
    )
    for found, name in zip(made, ("edge.src", "edge.dst", "edge.rel"), strict=False):
        same(found, plan.index(name))
    by_source = stable_order(made[3], g.num_nodes * g.num_relations)
    by_relation = stable_order(made[2], g.num_relations)
    sides = plan_kernels.pairs(made, by_source, by_relation, answer[1:])
    assert answer.tolist() == [0, g.num_src_pairs - 1, g.num_dst_pairs - 1]
    for (pair, kind, node, starts), side in zip(sides, ("src_pair", "dst_pair"), strict=True):
        same(pair, plan.index(f"edge.{side}"))
        same(kind, plan.index(f"{side}.rel"))
        same(node, plan.index(f"{side}.node"))
        same(starts, plan.segments(f"edge.{side}").bounds)


@pytest.mark.parametrize("wrong", [("src", -1), ("src", 13), ("dst", 2**40), ("rel", 4)])
def test_ids_out_of_range_are_told(wrong):
    g = graph()
    ids = {"src": g.src.clone(), "dst": g.dst.clone(), "rel": g.rel.clone()}
    ids[wrong[0]][59] = wrong[1]
    bad = torch.zeros(1, dtype=torch.int64)
    plan_kernels.ends(*ids.values(), g.plan().edge_order, 13, 4, bad)
    assert bad.tolist() == [1]


@pytest.mark.parametrize("step", [1, 3, 64])
@pytest.mark.parametrize("case", CASES)
def test_tiles(case, step):
    plan = CASES[case]().plan()
    for name, through in MAPS.items():
        rows = plan.counts.rows(through.source)
        if rows and plan.counts.rows(through.target):
            expected = tables.type_tiles(plan, name, through.source.value, step)
            bounds = plan.segments(name).bounds
            count, kind, begin, end, first = plan_kernels.tiles(bounds, rows, step)
            assert count == expected.count
            same(first, expected.first)
            assert first.shape == expected.first.shape
            there = expected.begin < expected.end
            for ours, theirs in (
                (kind, expected.kind),
                (begin, expected.begin),
                (end, expected.end),
            ):
                same(ours[:count][there], theirs[there])
            assert torch.equal(begin[:count] < end[:count], there)


@pytest.mark.parametrize("split", [1, 2, 8, 300])
@pytest.mark.parametrize("case", CASES)
def test_pieces(case, split):
    plan = CASES[case]().plan()
    for name, through in MAPS.items():
        rows = plan.counts.rows(through.source)
        if plan.counts.rows(through.target):
            bounds = plan.segments(name).bounds
            sizes, expected = tables._bounded_pieces(bounds, rows, split)
            found_sizes, found = plan_kernels.pieces(bounds, rows, split)
            assert found_sizes == sizes
            for ours, theirs in zip(found, expected, strict=True):
                same(ours, theirs)


@pytest.fixture
def built_by_kernels(monkeypatch):
    monkeypatch.setattr(Plan, "kernels", lambda self: plan_kernels if self.sampled else None)


@pytest.mark.parametrize("case", ["random", "hub", "empty", "batch", "one edge"])
@pytest.mark.parametrize("name", ["rgcn", "rgat", "typed"])
def test_layers_run_on_such_plans(built_by_kernels, name, case):
    g = sampled(CASES[case]())
    assert not g.num_edges or g.plan().index("edge.src_pair").dtype is torch.int64
    assert not g.num_edges or g.plan().narrow_index("edge.src_pair").dtype is torch.int32
    check(name, "auto", g, small(name, g, 5, 6))


def test_bad_ids_raise_while_kernels_build(built_by_kernels):
    g = graph()
    for index, rel, text in (
        (g.edge_index + 1, g.rel, "edge_index holds 13, but there are 13 nodes"),
        (g.edge_index, g.rel + 2**33, "edge_type holds 8589934594"),
        (g.edge_index * 0 - 2**32, g.rel, "edge_index holds -4294967296"),
    ):
        with pytest.raises(IndexError, match=text):
            hector.Graph(index, rel, 13, 4, sampled=True)
    with pytest.raises(IndexError, match="node_type holds 7"):
        hector.Graph(g.edge_index, g.rel, 13, 4, g.node_type + 5, 3, sampled=True)


def test_non_contiguous_ids(built_by_kernels):
    g = graph()
    turned = torch.stack([g.src, g.dst, g.rel], 1)
    made = hector.Graph(turned[:, :2].mT, turned[:, 2], 13, 4, sampled=True)
    for name in ("edge.src", "edge.dst_pair", "src_pair.node"):
        assert torch.equal(made.plan().index(name), g.plan().index(name))
