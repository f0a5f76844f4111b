# SPDX-License-Identifier: Apache-2.0
"""Gathers that convert and scale: the CPU's, and the GPU's kernel run on the host."""

from __future__ import annotations

import pytest
import torch

from pytorch_direct import _native, gather, unified

SOURCES = {
    "float64": torch.float64, "float32": torch.float32, "float16": torch.float16,
    "bfloat16": torch.bfloat16, "float8_e4m3fn": torch.float8_e4m3fn,
    "float8_e5m2": torch.float8_e5m2, "int8": torch.int8, "uint8": torch.uint8,
}  # fmt: skip
TARGETS = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


def same(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Equal bits, where any NaN is as good as another."""
    return torch.equal(left.isnan(), right.isnan()) and torch.equal(
        left.nan_to_num(nan=0.0), right.nan_to_num(nan=0.0)
    )


def every_bit_pattern(dtype: torch.dtype) -> torch.Tensor:
    if dtype.itemsize == 1:
        return torch.arange(256, dtype=torch.int16).to(torch.uint8).view(dtype).view(16, 16)
    if dtype.itemsize == 2:
        return torch.arange(-(2**15), 2**15).to(torch.int16).view(dtype).view(256, 256)
    special = torch.tensor([0.0, -0.0, 1e-45, 6e-8, 65504, 65519.9, 65520, 1e30, 3.3e38, 0.1,
                            float("inf"), -float("inf"), float("nan")], dtype=dtype)  # fmt: skip
    halves = torch.arange(2**15, dtype=torch.int32).to(torch.int16).view(torch.float16).to(dtype)
    # Half-way between two halves, and a bit beside: where rounding decides.
    between = (halves[1:31743] + halves[2:31744]) / 2
    near = torch.cat([between, between * (1 + 1e-6), between * (1 - 1e-6), special])
    return torch.cat([near, near.new_zeros((-near.numel()) % 64)]).view(-1, 64)


def emulated(table, ids, to, *, factor=None, row_factor=None, merge=False, threads=96, skip=0):
    numbers = ids.numel() * table.shape[1]
    memory = torch.full((skip + numbers + 1,), 7, dtype=TARGETS[to])
    out = memory[skip:-1].view(ids.numel(), table.shape[1])
    kind = "key" if merge else "int64"
    keys = ids.to(torch.int32) if merge else ids
    _native.emulate_cast(
        table.data_ptr(), table.shape[0], table.stride(0) * table.element_size(), table.shape[1],
        keys.data_ptr(), kind, ids.numel(), merge, out.data_ptr(), out.element_size(),
        str(table.dtype).removeprefix("torch."), to, factor,
        0 if row_factor is None else row_factor.data_ptr(), threads,
    )  # fmt: skip
    assert (memory[:skip] == 7).all()
    assert memory[-1] == 7
    return out


@pytest.mark.parametrize("to", TARGETS)
@pytest.mark.parametrize("source", SOURCES)
def test_kernel_converts_every_number_as_torch_does(source, to):
    table = every_bit_pattern(SOURCES[source])
    ids = torch.arange(table.shape[0])
    # By way of float, which for float64 is a rounding of its own.
    assert same(emulated(table, ids, to), table.to(torch.float32).to(TARGETS[to]))


@pytest.mark.parametrize("width", [1, 3, 16, 33, 64, 130])
@pytest.mark.parametrize("source", ["float32", "bfloat16", "int8", "float8_e4m3fn"])
@pytest.mark.parametrize("merge", [False, True])
def test_kernel_scales_by_row_at_any_width(width, source, merge):
    table = (torch.randn(50, width) * 20).to(SOURCES[source])
    ids = torch.randint(0, 50, (171,)).sort().values
    factors = torch.rand(50) + 0.5
    for threads, skip in ((32, 0), (96, 1), (96, 2), (96, 8)):
        how = {"merge": merge, "threads": threads, "skip": skip}
        rows = emulated(table, ids, "bfloat16", row_factor=factors, **how)
        raw = table.to(torch.float32)[ids]
        assert torch.equal(rows, (raw * factors[ids][:, None]).bfloat16())
        rows = emulated(table, ids, "float32", factor=0.1, **how)
        assert torch.equal(rows, raw * torch.tensor(0.1))


def test_kernel_fills_bad_rows_with_ones():
    table = torch.randn(5, 16)
    rows = emulated(table, torch.tensor([4, 5, -1]), "float16", factor=2.0)
    assert torch.equal(rows[0], (table[4] * 2).half())
    assert (rows[1:].view(torch.uint8) == 0xFF).all()


@pytest.mark.parametrize("source", SOURCES)
def test_scaled_by_one_factor_or_by_one_a_row(source):
    table = (torch.randn(300, 33) * 5).to(SOURCES[source])
    ids = torch.randint(0, 300, (40, 125))
    factors = torch.rand(300)
    raw = table.view(torch.uint8).view(300, -1)[ids].view(table.dtype)
    floats = raw.to(torch.float64 if source == "float64" else torch.float32)
    expected = {"float16": torch.float16, "bfloat16": torch.bfloat16}.get(source, floats.dtype)
    for src in (table, unified(table)):
        rows = gather(src, ids, scale=0.25)
        assert rows.dtype == expected
        assert torch.equal(rows, (floats * 0.25).to(expected))
        rows = gather(src, ids, scale=factors, dtype=torch.float32)
        wide = raw.to(torch.float32) * factors[ids][..., None]
        assert torch.equal(rows, wide)
        assert torch.equal(gather(src, ids, scale=unified(factors), dtype=torch.float32), rows)


def test_gradient_is_scaled_too():
    table = torch.randn(10, 4, dtype=torch.float64, requires_grad=True)
    factors = torch.rand(10)
    ids = torch.tensor([1, 1, 9])
    gather(table, ids, scale=factors).square().sum().backward()
    again = table.detach().clone().requires_grad_()
    (again[ids] * factors[ids][:, None]).square().sum().backward()
    assert torch.allclose(table.grad, again.grad)


@pytest.mark.parametrize(
    ("scale", "dtype", "error"),
    [
        ("2", None, TypeError),
        (float("nan"), None, ValueError),
        (torch.ones(9), None, TypeError),
        (torch.ones(10, dtype=torch.float64), None, TypeError),
        (torch.ones(20)[::2], None, ValueError),
        (2.0, torch.int32, TypeError),
        (torch.ones(10, requires_grad=True), None, RuntimeError),
    ],
)
def test_scales_that_do_not_fit(scale, dtype, error):
    with pytest.raises(error, match="scale"):
        gather(torch.zeros(10, 3), torch.tensor([0]), scale=scale, dtype=dtype)
    with pytest.raises(TypeError, match="real"):
        gather(torch.zeros(10, 3, dtype=torch.complex64), torch.tensor([0]), scale=2.0)


def test_words_that_are_not_known():
    table, ids = torch.zeros(10, 3), torch.tensor([0])
    with pytest.raises(ValueError, match="duplicates"):
        gather(table, ids, duplicates="drop")
    with pytest.raises(ValueError, match="merge"):
        gather(table, ids, duplicates="merge", order="none")
    with pytest.raises(ValueError, match="check"):
        gather(table, ids, check="never")
    assert gather(table, ids, duplicates="merge", check="now").shape == (1, 3)
