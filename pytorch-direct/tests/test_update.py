# SPDX-License-Identifier: Apache-2.0
"""Rows changed by id: the GPU's kernel run on the host against the CPU's, and both against sums."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pytorch_direct import _native

DTYPES = {torch.float64: "float64", torch.float32: "float32", torch.float16: "float16",
          torch.bfloat16: "bfloat16", torch.int8: "int8", torch.uint8: "uint8",
          torch.int16: "int16", torch.int32: "int32", torch.int64: "int64"}  # fmt: skip


def change(table, ids, rows, rule, state, *, run):
    """Run a change with ids in any order; returns nothing, changes `table` and `state`."""
    by_id, order = torch.sort(ids, stable=True)
    request = _native.Change()
    request.table, request.rows, request.stride = table.data_ptr(), len(table), table.stride(0)
    request.width, request.count = rows.shape[1], len(ids)
    request.ids, request.order, request.given = (one.data_ptr() for one in (by_id, order, rows))
    request.first, request.second = (one.data_ptr() for one in state)
    request.rate, request.epsilon = 0.1, 1e-3
    request.first_decay, request.second_decay = 0.1, 0.01
    request.number, request.rule = DTYPES[table.dtype], rule
    run(request)


@settings(deadline=None, max_examples=60)
@given(
    st.sampled_from(list(DTYPES)),
    st.sampled_from(["add", "sgd", "adagrad", "adam"]),
    st.integers(1, 40),
    st.integers(1, 300),
    st.integers(1, 120),
    st.sampled_from([32, 64, 512]),
)
def test_kernel_and_cpu_agree_to_the_last_bit(dtype, rule, nodes, width, count, threads):
    if rule != "add" and not dtype.is_floating_point:
        rule = "add"
    generator = torch.Generator().manual_seed(width)
    # Some ids are out of range on either side: they change nothing.
    ids = torch.randint(-2, nodes + 2, (count,), generator=generator)
    rows = (torch.randn(count, width, generator=generator) * 3).to(dtype)
    # A column of another tensor beside the rows must stay as it is.
    base = (torch.randn(nodes, width + 3, generator=generator) * 3).to(dtype)
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    tables, states = [], []
    for threads_of_cpu in (None, 1, 3):
        table = base.clone()
        state = [torch.ones(nodes, width, dtype=wide), torch.ones(nodes, width, dtype=wide)]
        change(
            table[:, 1 : width + 1], ids, rows, rule, state,
            run=lambda c, n=threads_of_cpu: _native.update_cpu(c, n) if n
            else _native.emulate_update(c, threads),
        )  # fmt: skip
        tables.append(table)
        states.append(state)
    for table, state in zip(tables, states, strict=True):
        assert torch.equal(table.view(torch.uint8), tables[0].view(torch.uint8))
        assert all(torch.equal(a, b) for a, b in zip(state, states[0], strict=True))
    assert torch.equal(tables[0][:, 0], base[:, 0])
    assert torch.equal(tables[0][:, width + 1 :], base[:, width + 1 :])
    untouched = torch.ones(nodes, dtype=torch.bool)
    untouched[ids[(ids >= 0) & (ids < nodes)]] = False
    assert torch.equal(tables[0][untouched], base[untouched])
    if rule == "add":
        sums = base[:, 1 : width + 1].to(torch.float64 if dtype.is_floating_point else dtype)
        good = (ids >= 0) & (ids < nodes)
        sums = sums.index_add(0, ids[good], rows[good].to(sums.dtype))
        if dtype.is_floating_point:
            torch.testing.assert_close(
                tables[0][:, 1 : width + 1].double(), sums, rtol=1e-2, atol=1e-2 * count
            )
        else:
            assert torch.equal(tables[0][:, 1 : width + 1], sums)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_narrow_numbers_are_rounded_once(dtype):
    table = torch.full((1, 1), 256.0).to(dtype)
    rows = torch.full((64, 1), 0.25).to(dtype)
    state = [torch.zeros(1, 1)] * 2
    change(table, torch.zeros(64, dtype=torch.int64), rows, "add", state,
           run=lambda c: _native.update_cpu(c, 1))  # fmt: skip
    assert table.item() == 272  # 64 additions, each rounded, would leave it at 256 in bfloat16
