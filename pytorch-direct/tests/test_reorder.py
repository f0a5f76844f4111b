# SPDX-License-Identifier: Apache-2.0
"""Tables laid out by heat."""

from __future__ import annotations

import pytest
import torch

from pytorch_direct import UnifiedTensor, gather, reorder_rows, rmat, unified
from pytorch_direct.layout import ReorderedTable, row_heat

REGION = 64 << 10


def regions(ids: torch.Tensor, row_bytes: int) -> int:
    return int((ids * row_bytes // REGION).unique().numel())


def power_law_batches(rows: int, batches: int, count: int) -> list[torch.Tensor]:
    """Ids with the ranks of Zipf's law, scattered over the table as crawled graphs are."""
    generator = torch.Generator().manual_seed(0)
    weights = torch.arange(1, rows + 1) ** -1.3
    place = torch.randperm(rows, generator=generator)
    return [
        place[torch.multinomial(weights, count, replacement=True, generator=generator)]
        for _ in range(batches)
    ]


def test_a_batch_touches_fewer_regions_on_a_power_law_trace():
    rows, row_bytes = 1 << 19, 256  # 2,048 regions
    seen = power_law_batches(rows, 32, 4096)
    table = torch.arange(rows, dtype=torch.float32)[:, None].expand(rows, 4).contiguous()
    hot = reorder_rows(table, seen)
    # Batches that were not in the trace.
    for batch in power_law_batches(rows, 36, 4096)[32:]:
        new = hot.ids(batch)
        assert torch.equal(gather(hot.table, new), table[batch])
        assert regions(new, row_bytes) < 0.5 * regions(batch, row_bytes)


def test_rows_and_maps_agree():
    table = unified(torch.randn(100, 3))
    heat = torch.randint(0, 5, (100,))
    hot = reorder_rows(table, heat)
    assert type(hot.table) is UnifiedTensor
    assert (heat[hot.old_of_new].diff() <= 0).all()
    ids = torch.randint(0, 100, (4, 6), dtype=torch.int32)
    assert hot.ids(ids).dtype == torch.int32
    assert torch.equal(hot.table[hot.ids(ids)], table[ids])
    assert torch.equal(hot.original_ids(hot.ids(ids)), ids)
    equal = reorder_rows(table, torch.zeros(100))
    assert torch.equal(equal.old_of_new, torch.arange(100))
    out = torch.empty(100, 3)
    assert reorder_rows(table, heat, out=out).table.data_ptr() == out.data_ptr()
    assert torch.equal(out, hot.table)


def test_heat_of_a_graph_is_how_often_a_node_is_a_source():
    edges = rmat(num_nodes=500, num_edges=3000, seed=0)
    heat = row_heat(edges, 500)
    assert torch.equal(heat, torch.bincount(edges[0], minlength=500))
    table = torch.randn(500, 2)
    hot = reorder_rows(table, edges)
    assert torch.equal(hot.old_of_new, reorder_rows(table, heat).old_of_new)
    # The graph in new ids is the same graph.
    new = hot.ids(edges)
    assert torch.equal(hot.table[new[0]], table[edges[0]])


def test_what_does_not_fit():
    table = torch.zeros(10, 2)
    with pytest.raises(ValueError, match="one number for each of 10 rows"):
        reorder_rows(table, torch.zeros(9))
    with pytest.raises(ValueError, match="NaN"):
        reorder_rows(table, torch.full((10,), float("nan")))
    with pytest.raises(IndexError, match="valid are 0 to 9"):
        reorder_rows(table, [torch.tensor([3, 10])])
    with pytest.raises(IndexError, match="id 10 at position 0"):
        reorder_rows(table, torch.zeros(10)).ids(torch.tensor([10]))


def test_new_ids_that_do_not_fit_are_refused():
    numbers = torch.tensor([2**31 + 5]).expand(2**31 + 10)  # of 8 bytes
    laid_out = ReorderedTable(None, numbers, numbers)
    assert laid_out.ids(torch.tensor([1])).tolist() == [2**31 + 5]
    for mapped in (laid_out.ids, laid_out.original_ids):
        with pytest.raises(TypeError, match="int32"):
            mapped(torch.tensor([1], dtype=torch.int32))


def test_heat_of_narrow_and_of_no_numbers():
    table = torch.arange(8.0).view(4, 2)
    heat = torch.tensor([0.0, 1, 0, 2]).to(torch.float8_e4m3fn)
    assert reorder_rows(table, heat).old_of_new.tolist() == [3, 1, 0, 2]
    with pytest.raises(TypeError, match="real"):
        reorder_rows(table, torch.zeros(4, dtype=torch.complex64))
