# SPDX-License-Identifier: Apache-2.0
"""gather on the CPU against index_select, and the GPU kernel's index arithmetic against both."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pytorch_direct import _native, gather, unified


def random_bytes(shape: tuple[int, ...], dtype: torch.dtype, seed: int = 0) -> torch.Tensor:
    """Any bit pattern, NaN payloads and negative zeros too."""
    generator = torch.Generator().manual_seed(seed)
    bytes_ = dtype.itemsize
    high = 2 if dtype == torch.bool else 256
    raw = torch.randint(0, high, (*shape, bytes_), dtype=torch.uint8, generator=generator)
    return raw.view(dtype).view(shape)


def as_bytes(tensor: torch.Tensor) -> torch.Tensor:
    packed = torch.empty(tensor.shape, dtype=tensor.dtype).copy_(tensor.detach())
    return packed.view(-1).view(torch.uint8)


def expected_rows(table: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    """index_select over the raw bytes, since torch lacks the operator for some dtypes."""
    rows = as_bytes(table).view(table.shape[0], -1)
    raw = rows.index_select(0, ids.reshape(-1).long())
    return raw.view(-1).view(table.dtype).view(*ids.shape, *table.shape[1:])


@st.composite
def tables_and_ids(draw: st.DrawFn) -> tuple[torch.Tensor, torch.Tensor]:
    """A table of odd width, alignment and strides, and ids of either type in any order."""
    dtype = draw(st.sampled_from([torch.uint8, torch.int16, torch.float32, torch.int64,
                                  torch.complex128]))  # fmt: skip
    rows = draw(st.integers(1, 40))
    width = draw(st.integers(1, max(1, 4100 // dtype.itemsize)))
    offset = draw(st.integers(0, 17))
    gap = draw(st.sampled_from([0, 0, 1, 5, 64]))
    pitch = width + gap
    base = random_bytes((offset + rows * pitch,), dtype, draw(st.integers(0, 99)))
    kind = draw(st.sampled_from(["rows", "rows", "rows", "every other", "transposed", "cube"]))
    table = torch.as_strided(base, (rows, width), (pitch, 1), offset)
    if kind == "every other":
        table = table[:, ::2]
    elif kind == "transposed":
        table = torch.as_strided(base, (width, rows), (1, pitch), offset)
    elif kind == "cube" and width % 6 == 0:
        table = table.unflatten(1, (2, 3, width // 6)).transpose(1, 3)
    count = draw(st.integers(0, 90))
    id_dtype = draw(st.sampled_from([torch.int32, torch.int64]))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 99)))
    ids = torch.randint(0, table.shape[0], (count,), dtype=id_dtype, generator=generator)
    if draw(st.booleans()):
        ids = ids.sort(descending=True).values
    return table, ids


@settings(deadline=None, max_examples=150)
@given(tables_and_ids())
def test_equal_to_index_select_for_any_width_offset_and_stride(case):
    table, ids = case
    result = gather(table, ids)
    assert result.is_contiguous()
    assert torch.equal(as_bytes(result), as_bytes(expected_rows(table, ids)))


@settings(deadline=None, max_examples=250)
@given(tables_and_ids(), st.sampled_from([32, 96, 512]), st.integers(0, 15), st.booleans())
def test_kernel_reads_and_writes_each_byte_of_each_row(case, threads, shift, permuted):
    table, ids = case
    bytes_ = table.element_size()
    row_bytes = table[0].numel() * bytes_
    count = ids.numel()
    guard = 64
    # An output at any alignment that its dtype allows, between guards.
    start = guard + shift * bytes_
    out = torch.full((start + count * row_bytes + guard,), 0x5A, dtype=torch.uint8)
    positions = torch.randperm(count).to(torch.int32) if permuted else None
    emulate(table, ids, out[start:], threads=threads, positions=positions)
    rows = expected_rows(table, ids)
    if positions is not None:
        rows = rows[torch.argsort(positions)]
    assert torch.equal(out[start : start + count * row_bytes], as_bytes(rows))
    assert (out[:start] == 0x5A).all()
    assert (out[start + count * row_bytes :] == 0x5A).all()


def emulate(table, ids, out, *, threads=96, positions=None, wrap=False, kind=None, merge=False):
    bytes_ = table.element_size()
    return _native.emulate_gather(
        table.data_ptr(), table.shape[0], table.stride(0) * bytes_, table.shape[1:],
        [step * bytes_ for step in table.stride()[1:]], bytes_, ids.data_ptr(),
        kind or str(ids.dtype).removeprefix("torch."), ids.numel(), wrap, merge,
        0 if positions is None else positions.data_ptr(), out.data_ptr(), threads,
    )  # fmt: skip


@pytest.mark.parametrize("width", [*range(1, 140), 412, 602, 1000, 1024, 2048, 3076, 4096, 4100])
@pytest.mark.parametrize("offset", [0, 1, 4, 16, 128])
def test_kernel_covers_every_width_and_reads_nothing_outside_the_rows(width, offset):
    # Rows of a table with poisoned surroundings: a byte read from outside would show in the result.
    rows, ids = 9, torch.tensor([8, 0, 3, 3, 7])
    base = random_bytes((512 + rows * width,), torch.uint8)
    begin = (-base.data_ptr()) % 256 + offset
    table = base[begin : begin + rows * width].view(rows, width)
    out = torch.zeros(ids.numel() * width, dtype=torch.uint8)
    form, unit, bad = emulate(table, ids, out)
    assert torch.equal(out.view(-1, width), table[ids])
    assert bad == -1
    assert width % unit == 0
    # What crosses lines at odd places goes line by line.
    assert form == ("line" if width > 128 and (width % 128 or offset % 128) else form)


def test_kernel_fills_bad_rows_with_ones_and_names_the_first():
    for width in (1, 4, 100, 128, 412, 4096):
        table = random_bytes((5, width), torch.uint8)
        ids = torch.tensor([0, 5, -1, 4, 2**40])
        out = torch.zeros((5, width), dtype=torch.uint8)
        _, _, bad = emulate(table, ids, out)
        assert bad == 1
        assert (out[[1, 2, 4]] == 0xFF).all()
        assert torch.equal(out[[0, 3]], table[[0, 4]])
        _, _, bad = emulate(table, ids, out, wrap=True)
        assert bad == 1
        assert torch.equal(out[2], table[4])


def test_kernel_treats_a_key_of_all_ones_as_bad():
    table = random_bytes((5, 64), torch.uint8)
    keys = torch.tensor([4, -1, 0], dtype=torch.int32)
    out = torch.zeros((3, 64), dtype=torch.uint8)
    emulate(table, keys, out, kind="key")
    assert (out[1] == 0xFF).all()
    assert torch.equal(out[[0, 2]], table[[4, 0]])


@pytest.mark.parametrize("width", [1, 16, 64, 128, 130, 412, 512, 1028])
@pytest.mark.parametrize("threads", [32, 96, 512])
def test_kernel_reads_equal_ids_once_and_serves_each(width, threads):
    table = random_bytes((9, width), torch.uint8)
    # Runs of 1, of several, and longer than what one read serves.
    ids = torch.tensor([0, 2, 2, 2, *[5] * 150, 7, 7, 8])
    keys = torch.cat([ids, torch.tensor([-1, -1])]).to(torch.int32)
    positions = torch.randperm(keys.numel()).to(torch.int32)
    guard = 32
    out = torch.full((guard + keys.numel() * width + guard,), 0x5A, dtype=torch.uint8)
    emulate(table, keys, out[guard:], kind="key", positions=positions, merge=True, threads=threads)
    rows = out[guard:-guard].view(-1, width)[positions.long()]
    assert torch.equal(rows[:-2], table[ids])
    assert (rows[-2:] == 0xFF).all()
    assert (out[:guard] == 0x5A).all()
    assert (out[-guard:] == 0x5A).all()


def test_every_dtype_keeps_its_bits(dtype):
    table = random_bytes((50, 7), dtype)
    ids = torch.tensor([0, 49, 3, 3, 17], dtype=torch.int32)
    result = gather(table, ids)
    assert result.dtype == dtype
    assert torch.equal(as_bytes(result), as_bytes(expected_rows(table, ids)))
    assert torch.equal(as_bytes(gather(unified(table), ids)), as_bytes(result))


@pytest.mark.parametrize("shape", [(0,), (0, 5), (5, 0), (3, 0, 2), (1,), (1, 1)])
def test_empty_tables_rows_and_ids(shape):
    table = torch.zeros(shape)
    empty = gather(table, torch.zeros(0, dtype=torch.int64))
    assert empty.shape == (0, *shape[1:])
    if shape[0]:
        ids = torch.zeros(4, dtype=torch.int64)
        assert torch.equal(gather(table, ids), table.index_select(0, ids))


def test_ids_may_have_any_shape_and_stride():
    table = torch.randn(20, 3)
    ids = torch.randint(0, 20, (4, 6))
    assert torch.equal(gather(table, ids), table[ids])
    assert torch.equal(gather(table, ids.t()), table[ids.t()])
    scalar = torch.tensor(7)
    assert torch.equal(gather(table, scalar), table.index_select(0, scalar))


def test_result_does_not_depend_on_threads():
    table, ids = torch.randn(1000, 65), torch.randint(0, 1000, (20_000,))
    before = torch.get_num_threads()
    try:
        results = []
        for threads in (1, 2, 7):
            torch.set_num_threads(threads)
            results.append(gather(table, ids))
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(result, table[ids]) for result in results)


def test_many_small_batches_from_several_threads():
    # Workers that come too late for a chunk are the rule here.
    table, ids = torch.randn(100, 16), torch.randint(0, 100, (4000,))
    before = torch.get_num_threads()
    torch.set_num_threads(8)

    def work(_: int) -> bool:
        out = torch.empty(4000, 16)
        for _ in range(1500):
            gather(table, ids, out=out)
        return torch.equal(out, expected)

    try:
        expected = table[ids]
        with ThreadPoolExecutor(4) as callers:
            assert all(callers.map(work, range(4)))
    finally:
        torch.set_num_threads(before)


def test_offsets_beyond_four_gigabytes():
    # Never touched but for a few rows, so that it costs no memory.
    table = torch.empty(5 << 30, dtype=torch.uint8).view(-1, 4096)
    table[-1] = 7
    table[2**20 + 1] = 5
    result = gather(table, torch.tensor([table.shape[0] - 1, 2**20 + 1]))
    assert (result[0] == 7).all()
    assert (result[1] == 5).all()


def test_expanded_rows_and_conjugated_tables():
    row = torch.randn(1, 5).expand(10, 5)
    ids = torch.tensor([9, 0])
    assert torch.equal(gather(row, ids), row[ids])
    table = torch.randn(10, 4, dtype=torch.complex64)
    for lazy in (table.conj(), table.conj().imag, table.imag):
        assert torch.equal(gather(lazy, ids), lazy[ids])
        assert torch.equal(gather(unified(lazy), ids), lazy[ids])


@pytest.mark.parametrize("to", [torch.float32, torch.float16, torch.bfloat16, torch.float64,
                                torch.int32])  # fmt: skip
@pytest.mark.parametrize("source", [torch.float32, torch.bfloat16, torch.float8_e4m3fn, torch.int8])
def test_conversion_equals_to(source, to):
    table = (torch.randn(300, 33) * 5).to(source)
    ids = torch.randint(0, 300, (5000,))
    plain = table.view(torch.uint8).view(300, -1)[ids].view(source)
    assert torch.equal(gather(table, ids, dtype=to), plain.to(to))


def test_out_takes_the_result():
    table, ids = torch.randn(10, 4), torch.tensor([1, 2, 3])
    out = torch.zeros(3, 4)
    version = out._version
    assert gather(table, ids, out=out) is out
    assert torch.equal(out, table[ids])
    assert out._version > version
    wide = torch.zeros(3, 8)
    assert torch.equal(gather(table, ids, out=wide[:, ::2]), table[ids])
    assert (wide[:, 1::2] == 0).all()
    half = torch.zeros(3, 4, dtype=torch.float16)
    assert torch.equal(gather(table, ids, out=half, dtype=torch.float16), table[ids].half())


def test_gradient_equals_that_of_index_select():
    values = torch.randn(10, 4, dtype=torch.float64)
    ids = torch.tensor([1, 2, 1, 9, -1])
    weights = torch.randn(5, 4, dtype=torch.float64)
    plain = values.clone().requires_grad_()
    (plain[ids] * weights).sum().backward()
    leaf = values.clone().requires_grad_()
    (unified(leaf)[ids] * weights).sum().backward()
    assert torch.equal(leaf.grad, plain.grad)
    again = values.clone().requires_grad_()
    (gather(again, ids % 10, dtype=torch.float32) * weights).sum().backward()
    assert torch.allclose(again.grad, plain.grad, atol=1e-6)
