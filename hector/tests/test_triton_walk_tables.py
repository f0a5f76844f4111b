# SPDX-License-Identifier: Apache-2.0
"""Tables of kernels that walk and multiply, against what they mean, on random graphs."""

import pytest
import torch
from relational_layers import graph

from hector.emit.triton import tables, walk_tables

MAPS = ["edge.src_pair", "edge.dst_pair"]


@pytest.fixture(scope="module", params=[0, 1])
def plan(request):
    return graph(40, 600, 3, seed=request.param).plan()


def lengths(plan, name):
    bounds = plan.segments(name).bounds
    return bounds[1:] - bounds[:-1]


@pytest.mark.parametrize("split", [4, 1000])
@pytest.mark.parametrize("name", MAPS)
def test_targets_stand_by_type_and_length(plan, name, split):
    kind = name.split(".")[1] + ".rel"
    order = walk_tables.by_length(plan, name, kind, split).long()
    assert torch.equal(order.sort().values, torch.arange(order.shape[0]))
    kinds = plan.index(kind)[order]
    counts = lengths(plan, name)[order]
    counts = torch.where(counts > split, 0, counts)
    assert bool((kinds[1:] >= kinds[:-1]).all())
    same = kinds[1:] == kinds[:-1]
    assert bool((counts[1:][same] <= counts[:-1][same]).all())


@pytest.mark.parametrize("name", MAPS)
def test_pieces_of_hubs_cover_their_rows_once(plan, name):
    split = 5
    found, counts = walk_tables.hubs(plan, name, split), lengths(plan, name)
    cut = torch.nonzero(counts > split)[:, 0]
    assert found.count == cut.shape[0] > 0
    bounds = walk_tables.bounds(plan, name)
    for number, target in enumerate(cut.tolist()):
        assert int(found.number[target]) == number
        slots = range(int(found.first[number]), int(found.last[number]))
        places = [p for s in slots for p in range(int(found.begin[s]), int(found.end[s]))]
        assert places == list(range(int(bounds[target]), int(bounds[target + 1])))
        assert all(int(found.target[s]) == target for s in slots)
        assert all(int(found.end[s]) - int(found.begin[s]) <= split for s in slots)
    assert int((found.number >= 0).sum()) == found.count


def test_no_hubs_where_no_target_is_long(plan):
    found = walk_tables.hubs(plan, "edge.dst_pair", 1000)
    assert (found.count, found.slots) == (0, 0)
    assert bool((found.number == -1).all())


@pytest.mark.parametrize("second", ["edge.dst", *MAPS])
@pytest.mark.parametrize("first", ["edge.dst", *MAPS])
def test_places_of_one_order_in_another(plan, first, second):
    rows = torch.arange(plan.counts.edge)
    before, after = (tables.order(plan, name) for name in (first, second))
    before, after = (rows if order is None else order.long() for order in (before, after))
    assert torch.equal(before[tables.placed(plan, first, second).long()], after)


@pytest.mark.parametrize("name", ["edge.rel", None])
@pytest.mark.parametrize("aim", [1, 10, 384])
def test_chunks_are_as_many_as_are_aimed_at(name, aim, monkeypatch):
    plan = graph(40, 600, 3).plan()  # plans keep what was derived
    monkeypatch.setattr(tables, "_CHUNKS", aim)
    step, most, rows = 8, 16, plan.counts.edge
    found = tables.chunks(plan, name, "edge", step, most)
    lengths = (found.end - found.begin).long()
    assert int(lengths.sum()) == rows
    longest = step * min(max(round(rows / (aim * step)), 1), most)
    assert int(lengths.max()) <= longest
    assert longest % step == 0
    types = 1 if name is None else plan.counts.relation
    assert found.count <= types + rows // longest
