# SPDX-License-Identifier: Apache-2.0
"""The plan's maps, orders and counts, against their definitions."""

import itertools

import pytest
import torch
from relational_layers import graph

import hector
from hector.ir.types import MAPS

NO_NODES = hector.Graph(torch.zeros(2, 0, dtype=torch.long), torch.zeros(0, dtype=torch.long), 0)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("sizes", [(13, 60, 4), (1, 1, 1), (5, 0, 3), (4, 9, 100)])
def test_maps_follow_their_definitions(sizes, dtype):
    g = graph(*sizes, dtype=dtype)
    plan = g.plan()
    order = plan.edge_order
    for name, ids in {
        "edge.src": g.src, "edge.dst": g.dst, "edge.rel": g.rel,
        "edge.src_type": g.src_type, "edge.dst_type": g.dst_type,
    }.items():  # fmt: skip
        assert torch.equal(plan.index(name), ids.long()[order]), name
    for side, end in (("src_pair", "edge.src"), ("dst_pair", "edge.dst")):
        inverse = plan.index(f"edge.{side}")
        assert torch.equal(plan.index(f"{side}.node")[inverse], plan.index(end))
        assert torch.equal(plan.index(f"{side}.rel")[inverse], plan.index("edge.rel"))
        assert torch.equal(
            plan.index(f"{side}.type"), g.node_type.long()[plan.index(f"{side}.node")]
        )
        pairs = set(zip(g.rel.tolist(), getattr(g, side[:3]).tolist(), strict=True))
        assert plan.counts.rows(MAPS[f"edge.{side}"].target) == len(pairs)
    assert torch.equal(order[plan.edge_position], torch.arange(g.num_edges))


def test_segments_group_every_row_once_in_a_fixed_order():
    plan = graph().plan()
    for name, through in MAPS.items():
        index, segments = plan.index(name), plan.segments(name)
        rows = plan.counts.rows(through.source)
        order = torch.arange(rows) if segments.order is None else segments.order
        assert sorted(order.tolist()) == list(range(rows))
        bounds = segments.bounds.tolist()
        assert bounds == plan.host_bounds(name)
        assert len(bounds) == plan.counts.rows(through.target) + 1
        for target, (start, stop) in enumerate(itertools.pairwise(bounds)):
            members = order[start:stop]
            assert (index[members] == target).all()
            assert members.tolist() == sorted(members.tolist())
    assert plan.segments("edge.dst").order is None
    assert plan.segments("src_pair.rel").order is None


def test_inverse_count():
    g = hector.Graph(torch.tensor([[0, 1, 2], [1, 1, 0]]), torch.tensor([0, 0, 0]), 4)
    found = g.plan().inverse_count("edge.dst", torch.float32)
    assert found.tolist() == [1.0, 0.5, 1.0, 1.0]


def test_everything_is_built_once():
    g = graph()
    plan = g.plan()
    assert g.plan() is plan
    assert plan.segments("edge.src") is plan.segments("edge.src")
    assert plan.grouped_index("edge.dst", "edge.src") is plan.grouped_index("edge.dst", "edge.src")


def test_no_nodes():
    assert NO_NODES.plan().counts.edge == 0
    x = torch.zeros(0, 3)
    layer = hector.compile(lambda g, x: hector.aggregate(x[g.src], g, reduce="mean"))
    assert layer(NO_NODES, x).shape == (0, 3)


def test_node_types_are_asked_for():
    plain = hector.Graph(torch.zeros(2, 1, dtype=torch.long), torch.zeros(1, dtype=torch.long), 2)
    with pytest.raises(ValueError, match="pass node_type="):
        plain.plan().index("edge.src_type")
