# SPDX-License-Identifier: Apache-2.0
"""scatter_add_ on the CPU."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pytorch_direct import scatter_add_, unified


@settings(deadline=None, max_examples=40)
@given(
    st.sampled_from([torch.float32, torch.float64, torch.int32, torch.int64, torch.bfloat16]),
    st.integers(1, 30),
    st.integers(0, 70),
    st.integers(0, 200),
    st.sampled_from([torch.int32, torch.int64]),
)
def test_adds_in_the_order_of_the_ids(dtype, nodes, width, count, id_dtype):
    generator = torch.Generator().manual_seed(count)
    ids = torch.randint(0, nodes, (count,), generator=generator, dtype=id_dtype)
    # Whole numbers, whose sums are exact in every dtype here.
    rows = torch.randint(-2, 3, (count, width), generator=generator).to(dtype)
    table = torch.zeros(nodes, width, dtype=dtype)
    expected = table.index_add(0, ids, rows)
    assert scatter_add_(table, ids, rows) is table
    assert torch.equal(table, expected)


def test_same_bits_whatever_the_threads():
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(0, 50, (20_000,), generator=generator)
    rows = torch.randn(20_000, 33, generator=generator)
    before = torch.get_num_threads()
    results = []
    try:
        for threads in (1, 2, 5):
            torch.set_num_threads(threads)
            results.append(scatter_add_(torch.zeros(50, 33), ids, rows))
    finally:
        torch.set_num_threads(before)
    expected = torch.zeros(50, 33)
    for i, row in zip(ids.tolist(), rows, strict=True):
        expected[i] += row
    assert all(torch.equal(result, expected) for result in results)


def test_takes_unified_and_strided_tables_and_counts_versions():
    table = torch.zeros(4, 6)
    version = table._version
    ids, rows = torch.tensor([1, 1]), torch.ones(2, 6)
    scatter_add_(unified(table), ids, rows)
    assert table[1].tolist() == [2.0] * 6
    assert table._version > version
    scatter_add_(table[:, ::2], ids, rows[:, :3])
    assert table[1].tolist() == [4.0, 2.0] * 3


def test_bad_ids_leave_the_table_alone():
    for dtype in (torch.float32, torch.float16):
        table = torch.zeros(3, 2, dtype=dtype)
        with pytest.raises(IndexError, match="id -1 at position 1 of 3"):
            scatter_add_(table, torch.tensor([0, -1, 7]), torch.ones(3, 2, dtype=dtype))
        assert (table == 0).all()


@pytest.mark.parametrize(
    ("ids", "rows", "error"),
    [
        (torch.tensor([0]), torch.ones(2, 2), ValueError),
        (torch.tensor([0]), torch.ones(1, 2, dtype=torch.float64), TypeError),
        (torch.tensor([[0]]), torch.ones(1, 2), ValueError),
        (torch.tensor([0.0]), torch.ones(1, 2), TypeError),
    ],
)
def test_arguments_that_do_not_fit(ids, rows, error):
    with pytest.raises(error):
        scatter_add_(torch.zeros(3, 2), ids, rows)


def test_rows_must_not_share_memory_with_the_table():
    table = torch.zeros(4, 2)
    with pytest.raises(ValueError, match="overlaps"):
        scatter_add_(table, torch.tensor([0, 1]), table[2:])


def test_gradients_flow_to_the_rows():
    rows = torch.ones(2, 3, requires_grad=True)
    scatter_add_(torch.zeros(4, 3), torch.tensor([1, 1]), rows).sum().backward()
    assert torch.equal(rows.grad, torch.ones(2, 3))
