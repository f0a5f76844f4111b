# SPDX-License-Identifier: Apache-2.0
"""gather on a GPU: bytes, bad ids, streams, lifetime."""

from __future__ import annotations

import gc

import pytest
import torch

from datapath_core import UnsupportedError
from pytorch_direct import check, gather, unified

pytestmark = pytest.mark.gpu

ORDERS = ["none", "address", "auto"]


@pytest.fixture(autouse=True)
def no_error_is_left_behind(cuda):
    check()
    yield
    check()
    torch.cuda.synchronize()


def random_bytes(count: int) -> torch.Tensor:
    return torch.randint(0, 256, (count,), dtype=torch.uint8)


def as_bytes(tensor: torch.Tensor) -> torch.Tensor:
    packed = torch.empty(tensor.shape, dtype=tensor.dtype).copy_(tensor.detach())
    return packed.view(-1).view(torch.uint8)


def sleep(milliseconds: int) -> None:
    """Keep the current stream busy."""
    torch.cuda._sleep(int(milliseconds * 1.7e6))


def assert_rows(result: torch.Tensor, table: torch.Tensor, ids: torch.Tensor) -> None:
    expected = as_bytes(table).view(table.shape[0], -1)[ids.cpu().long().reshape(-1)]
    assert result.is_cuda
    assert torch.equal(as_bytes(result.cpu()), expected.reshape(-1))


@pytest.mark.parametrize("order", ORDERS)
def test_every_dtype_keeps_its_bits(cuda, dtype, order):
    raw = random_bytes(1000 * 5 * dtype.itemsize)
    if dtype == torch.bool:
        raw = raw % 2
    table = raw.view(dtype).view(1000, 5)
    ids = torch.randint(0, 1000, (5000,), device=cuda)
    assert_rows(gather(unified(table), ids, order=order), table, ids)
    assert_rows(gather(table.to(cuda), ids.int(), order=order), table, ids)


@pytest.mark.parametrize("order", ["none", "address"])
@pytest.mark.parametrize(
    "width",
    [1, 2, 3, 4, 5, 7, 8, 12, 16, 24, 31, 32, 33, 47, 48, 64, 65, 80, 96, 100, 127, 128, 129, 144,
     160, 188, 200, 240, 255, 256, 257, 384, 400, 412, 512, 602, 768, 1000, 1024, 1028, 2048, 2408,
     3072, 3076, 4096, 4097, 4100],
)  # fmt: skip
def test_every_width_at_any_offset(cuda, width, order):
    rows = 700
    ids = torch.randint(0, rows, (3001,), device=cuda)
    for offset in (0, 1, 2, 4, 8, 16, 64, 100, 128):
        base = random_bytes(offset + rows * width)
        table = base[offset:].view(rows, width)
        out = torch.full((3001 * width + 32,), 0x5A, dtype=torch.uint8, device=cuda)
        target = out[16 : 16 + 3001 * width].view(3001, width)
        gather(unified(table), ids, out=target, order=order)
        assert torch.equal(target.cpu(), table[ids.cpu()])
        assert (out[:16] == 0x5A).all()
        assert (out[-16:] == 0x5A).all()


@pytest.mark.parametrize("order", ORDERS)
def test_strided_rows_tables_and_ids(cuda, order):
    base = torch.randn(300, 6, 40)
    ids = torch.randint(0, 6, (77, 2), device=cuda).t()
    for table in (base.transpose(0, 1), base.permute(1, 2, 0), base[:6, ::2], base[:6, :, 3::5],
                  base[:6, :, :1].expand(6, 6, 50), base[:6, 0], base[::50]):  # fmt: skip
        result = gather(unified(table), ids, order=order)
        assert result.is_contiguous()
        assert torch.equal(result.cpu(), table[ids.cpu()])
        assert torch.equal(gather(table.to(cuda), ids, order=order).cpu(), table[ids.cpu()])


def test_ordering_a_large_batch_changes_nothing(cuda):
    table = torch.randn(1 << 20, 16)
    u = unified(table)
    for ids in (
        torch.randint(0, 1 << 20, (1 << 18,), device=cuda),
        torch.arange((1 << 20) - 1, -1, -3, device=cuda),
        torch.zeros(100_000, dtype=torch.int64, device=cuda),
    ):
        for options in ({}, {"order": "address"}, {"order": "none"}, {"sm_share": 0.02},
                        {"sm_share": 1.0, "order": "address"}):  # fmt: skip
            assert torch.equal(gather(u, ids, **options).cpu(), table[ids.cpu()])


@pytest.mark.parametrize("share", [0.001, 0.03])
@pytest.mark.parametrize("width", [1, 6, 64, 100, 128, 256, 412, 512, 1028, 4096])
def test_wide_blocks_on_few_multiprocessors(cuda, width, share):
    table = random_bytes(3000 * width).view(3000, width)
    u = unified(table)
    ids = torch.randint(0, 3000, (70_001,), device=cuda)
    for options in ({"order": "none"}, {"order": "address"}, {"duplicates": "merge"}):
        rows = gather(u, ids, sm_share=share, **options)
        assert torch.equal(rows.cpu(), table[ids.cpu()])
    ids[5] = 3000
    with pytest.raises(IndexError, match="id 3000 at position 5 of 70001"):
        gather(u, ids, sm_share=share, check="now")


@pytest.mark.parametrize("shape", [(0,), (0, 5), (5, 0), (3, 0, 2), (1,)])
def test_empty_tables_rows_and_ids(cuda, shape):
    u = unified(torch.zeros(shape))
    for order in ORDERS:
        none = gather(u, torch.zeros(0, dtype=torch.int64, device=cuda), order=order)
        assert none.shape == (0, *shape[1:])
        if shape[0]:
            rows = gather(u, torch.zeros(4, dtype=torch.int64, device=cuda), order=order)
            assert rows.shape == (4, *shape[1:])
    assert torch.zeros(3, device=cuda).sum() == 0  # no error was left in CUDA


@pytest.mark.parametrize("to", [torch.float32, torch.float16, torch.bfloat16, torch.float64,
                                torch.int64])  # fmt: skip
@pytest.mark.parametrize("source", [torch.float64, torch.float32, torch.float16, torch.bfloat16,
                                    torch.float8_e4m3fn, torch.float8_e5m2, torch.int8, torch.uint8,
                                    torch.int32])  # fmt: skip
def test_conversion_equals_to(cuda, source, to):
    table = (torch.rand(3000, 33) * 100).to(source)
    ids = torch.randint(0, 3000, (9000,), device=cuda)
    plain = gather(unified(table), ids)
    for order in ("none", "address"):
        assert torch.equal(gather(unified(table), ids, dtype=to, order=order), plain.to(to))


def test_lazily_conjugated_tables(cuda):
    table = torch.randn(10, 4, dtype=torch.complex64)
    ids = torch.tensor([9, 0], device=cuda)
    for lazy in (table.conj(), table.conj().imag):
        assert torch.equal(gather(unified(lazy), ids).cpu(), lazy[[9, 0]])


@pytest.mark.parametrize("order", ["none", "address"])
@pytest.mark.parametrize("width", [1, 25, 64, 103, 256])
def test_bad_ids_fill_with_ones_and_raise_once_later(cuda, order, width):
    table = torch.randn(100_000, width)
    u = unified(table)
    ids = torch.randint(0, 100_000, (50_000,), device=cuda)
    bad = torch.tensor([123, 124, 40_000], device=cuda)
    ids[bad] = torch.tensor([100_000, -1, 2**40], device=cuda)
    torch.cuda.synchronize()
    result = gather(u, ids, order=order)
    torch.cuda.synchronize()
    assert (result[bad].view(torch.uint8) == 0xFF).all()
    good = torch.ones(50_000, dtype=torch.bool)
    good[bad.cpu()] = False
    assert torch.equal(result.cpu()[good], table[ids.cpu()[good]])
    with pytest.raises(IndexError, match=r"id 100000 at position 123 of 50000.*0 to 99999"):
        gather(u, bad)
    assert torch.equal(gather(u, bad).cpu(), table[bad.cpu()])
    check()


def test_check_waits_and_raises_once(cuda):
    u = unified(torch.zeros(10, 4))
    ids = torch.tensor([3, -4], device=cuda)
    sleep(50)
    gather(u, ids)
    with pytest.raises(IndexError, match="id -4 at position 1 of 2"):
        check()
    check()
    gather(u, ids, dtype=torch.float16)
    with pytest.raises(IndexError, match="id -4 at position 1 of 2"):
        check(cuda)


@pytest.mark.parametrize("next_call", ["gather", "empty gather", "device_view", "index"])
def test_whatever_comes_next_raises(cuda, next_call):
    u = unified(torch.zeros(10, 4))
    ids = torch.tensor([3], device=cuda)
    u[ids + 20]
    torch.cuda.synchronize()
    with pytest.raises(IndexError, match=r"id 23 at position 0 of 1.*-10 to 9"):
        {
            "gather": lambda: gather(u, ids),
            "empty gather": lambda: gather(u, ids[:0]),
            "device_view": lambda: u.device_view(),
            "index": lambda: u[ids],
        }[next_call]()


def test_nothing_is_raised_before_the_kernel_has_ended(cuda):
    u = unified(torch.zeros(10, 4))
    ids, bad = torch.tensor([3], device=cuda), torch.tensor([30], device=cuda)
    gather(u, ids)
    torch.cuda.synchronize()
    sleep(300)
    gather(u, bad)
    for _ in range(3):
        gather(u, ids)  # queued behind it
    torch.cuda.synchronize()
    with pytest.raises(IndexError, match="id 30"):
        gather(u, ids)


def test_earliest_of_several_bad_launches_is_named(cuda):
    u = unified(torch.zeros(10, 4))
    first, second = torch.cuda.Stream(), torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(first):
        ids = torch.tensor([11], device=cuda)
        sleep(100)
        gather(u, ids)
    with torch.cuda.stream(second):
        gather(u, torch.tensor([22], device=cuda))
    with pytest.raises(IndexError, match="id 11"):
        check()
    check()


def test_bad_ids_of_empty_rows_and_of_empty_tables(cuda):
    ids = torch.tensor([0, 7], device=cuda)
    gather(unified(torch.zeros(5, 0)), ids)
    with pytest.raises(IndexError, match="id 7 at position 1"):
        check()
    result = gather(unified(torch.zeros(0, 5)), ids)
    with pytest.raises(IndexError, match=r"id 0 at position 0 of 2.*no rows"):
        check()
    assert (result.view(torch.uint8) == 0xFF).all()


def test_bad_ids_with_conversions_without_a_kernel(cuda):
    table = torch.arange(40).view(10, 4)
    result = gather(unified(table), torch.tensor([9, 10], device=cuda), dtype=torch.float32)
    with pytest.raises(IndexError):
        check()
    assert (result[1].view(torch.uint8) == 0xFF).all()
    assert torch.equal(result[0].cpu(), table[9].float())


def test_negative_ids_wrap_in_indexing_only(cuda):
    table = torch.randn(1000, 8)
    u = unified(table)
    ids = torch.randint(-1000, 1000, (300_000,), device=cuda)
    assert torch.equal(u[ids].cpu(), table[ids.cpu()])
    assert torch.equal(u[torch.tensor(-1, device=cuda)].cpu(), table[-1])
    gather(u, torch.tensor([-1], device=cuda))
    with pytest.raises(IndexError, match="0 to 999"):
        check()


def test_does_not_wait_for_the_gpu(cuda):
    u = unified(torch.randn(1 << 18, 64))
    ids = torch.randint(0, 1 << 18, (1 << 16,), device=cuda)
    out = torch.empty(1 << 16, 64, device=cuda)
    for order in ("address", "none"):  # first uses allocate
        gather(u, ids, order=order, out=out)
        gather(u, ids, order=order, dtype=torch.float16)
        u[ids]
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        done = torch.cuda.Event()
        sleep(300)
        for order in ("address", "none"):
            gather(u, ids, order=order, out=out)
            gather(u, ids, order=order, dtype=torch.float16)
            u[ids]
        done.record()
        assert not done.query()
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("order", ["none", "address"])
def test_runs_on_the_current_stream(cuda, order):
    table = torch.randn(1 << 16, 32)
    u = unified(table)
    side = torch.cuda.Stream()
    ids = torch.zeros(1 << 15, dtype=torch.int64, device=cuda)
    wanted = torch.randint(0, 1 << 16, (1 << 15,), device=cuda)
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        sleep(100)
        ids.copy_(wanted)  # a gather on any other stream would see zeros
        result = gather(u, ids, order=order)
    side.synchronize()
    assert torch.equal(result.cpu(), table[wanted.cpu()])


def test_stream_argument_comes_after_the_current_stream(cuda):
    table = torch.randn(1 << 16, 32)
    u = unified(table)
    side = torch.cuda.Stream()
    wanted = torch.randint(0, 1 << 16, (1 << 15,), device=cuda)
    ids = torch.zeros_like(wanted)
    torch.cuda.synchronize()
    sleep(100)
    ids.copy_(wanted)
    result = gather(u, ids, stream=side)
    del ids
    torch.full((1 << 15,), -1, device=cuda)  # would take the memory of the ids
    torch.cuda.current_stream().wait_stream(side)
    assert torch.equal(result.cpu(), table[wanted.cpu()])


def test_source_may_be_freed_while_the_kernel_runs(cuda):
    for order in ("none", "address"):
        table = torch.randn(1 << 18, 64)
        expected = table.clone()
        ids = torch.randint(0, 1 << 18, (1 << 16,), device=cuda)
        u = unified(table)
        gather(u, ids[:1])
        torch.cuda.synchronize()
        sleep(200)
        result = gather(u, ids, order=order)
        del u, table
        gc.collect()
        trash = [torch.full((1 << 18, 64), -1.0) for _ in range(2)]
        assert torch.equal(result.cpu(), expected[ids.cpu()])
        del trash


def test_device_view_may_outlive_the_unified_tensor(cuda):
    table = torch.arange(1000.0)
    view = unified(table).device_view()
    del table
    gc.collect()
    trash = torch.zeros(1000)
    assert torch.equal(view.cpu(), torch.arange(1000.0))
    assert trash.sum() == 0


def test_offsets_beyond_four_gigabytes(cuda):
    table = torch.zeros(5 << 30, dtype=torch.uint8).view(-1, 1024)
    last = table.shape[0] - 1
    for row in (last, last - 5, 4 << 20, (4 << 20) - 1, 2 << 20):
        table[row] = row % 251
    u = unified(table)
    ids = torch.tensor([last, last - 5, 4 << 20, (4 << 20) - 1, 2 << 20], device=cuda)
    for order in ("none", "address"):
        assert torch.equal(gather(u, ids, order=order).cpu(), table[ids.cpu()])


def test_results_beyond_four_gigabytes(cuda):
    table = torch.randint(0, 256, (5000, 4096), dtype=torch.uint8)
    ids = torch.randint(0, 5000, (1_300_000,), device=cuda)
    result = gather(unified(table), ids, order="address")
    for where in (slice(0, 50), slice(-50, None), slice(1_048_500, 1_048_700)):
        assert torch.equal(result[where].cpu(), table[ids[where].cpu()])
    del result


def test_out_is_written_in_place(cuda):
    table = torch.randn(50, 6)
    ids = torch.tensor([4, 4, 49], device=cuda)
    out = torch.zeros(3, 12, device=cuda)
    assert torch.equal(gather(unified(table), ids, out=out[:, ::2]).cpu(), table[[4, 4, 49]])
    with pytest.raises(ValueError, match="cpu"):
        gather(unified(table), ids, out=torch.zeros(3, 6))
    device_table = table.to(cuda)
    with pytest.raises(ValueError, match="overlaps"):
        gather(device_table, ids, out=device_table[3:6])


def test_gradients_come_back_to_the_host(cuda):
    leaf = torch.randn(30, 4, requires_grad=True)
    u = unified(leaf)
    ids = torch.tensor([2, 2, -1], device=cuda)
    (u[ids] * 3).sum().backward()
    expected = torch.zeros(30, 4)
    expected[2], expected[29] = 6, 3
    assert torch.equal(leaf.grad, expected)


def test_refuses_what_the_gpu_cannot_read(cuda):
    ids = torch.tensor([0], device=cuda)
    with pytest.raises(UnsupportedError, match="unified"):
        gather(torch.zeros(3, 2), ids)
    with pytest.raises(ValueError, match="together"):
        gather(torch.zeros(3, 2, device=cuda), ids.cpu())


@pytest.mark.parametrize("order", ["none", "address"])
def test_recorded_in_a_graph(cuda, order, graph_of):
    table = torch.randn(1 << 16, 32)
    u = unified(table)
    ids = torch.zeros(1 << 14, dtype=torch.int64, device=cuda)
    gather(u, ids, order=order)
    result = torch.empty(1 << 14, 32, device=cuda)
    graph = graph_of(lambda: gather(u, ids, out=result, order=order))
    for seed in range(3):
        torch.manual_seed(seed)
        wanted = torch.randint(0, 1 << 16, (1 << 14,), device=cuda)
        ids.copy_(wanted)
        graph.replay()
        assert torch.equal(result.cpu(), table[wanted.cpu()])
    ids[77] = 1 << 16
    for _ in range(2):
        graph.replay()
        with pytest.raises(IndexError, match="id 65536 at position 77"):
            check()


def test_compiled_over_a_device_view(cuda):
    table = torch.randn(1 << 12, 32)
    u = unified(table)
    view = u.device_view()
    ids = torch.randint(0, 1 << 12, (999,), device=cuda)
    torch.compiler.reset()
    compiled = torch.compile(lambda t, i: gather(t, i) * 2, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(view, ids).cpu(), table[ids.cpu()] * 2)


def test_many_threads_gather_at_once(cuda):
    from concurrent.futures import ThreadPoolExecutor

    table = torch.randn(1 << 14, 24)
    u = unified(table)

    def work(seed: int) -> bool:
        generator = torch.Generator().manual_seed(seed)
        ids = torch.randint(0, 1 << 14, (5000,), generator=generator)
        with torch.cuda.stream(torch.cuda.Stream()):
            result = gather(u, ids.to(cuda), order=("none", "address")[seed % 2]).cpu()
        return torch.equal(result, table[ids])

    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(work, range(64)))


@pytest.mark.multigpu
def test_current_device_need_not_be_that_of_the_ids(cuda):
    table = torch.randn(5000, 33)
    u = unified(table)
    host_ids = torch.randint(0, 5000, (9000,))
    for current, target in ((0, 1), (1, 0), (0, 0), (1, 1)):
        with torch.cuda.device(current):
            for order in ("none", "address"):
                result = gather(u, host_ids.to(f"cuda:{target}"), order=order)
                assert result.device.index == target
                assert torch.equal(result.cpu(), table[host_ids])
            assert torch.cuda.current_device() == current
            gather(u, torch.tensor([5000], device=f"cuda:{target}"))
            with pytest.raises(IndexError, match=f"cuda:{target}"):
                check(target)
    with pytest.raises(ValueError, match="together"):
        gather(table.to("cuda:0"), host_ids.to("cuda:1"))


@pytest.mark.parametrize("width", [1, 16, 64, 100, 128, 412, 512, 3076])
def test_merged_duplicates_change_nothing(cuda, width):
    table = random_bytes(3000 * width).view(3000, width)
    ids = torch.randint(0, 300, (20_000,), device=cuda)
    ids[5000:9000] = 7
    assert_rows(gather(unified(table), ids, duplicates="merge"), table, ids)
    assert_rows(gather(unified(table), ids.int(), duplicates="auto"), table, ids)
    numbers = torch.randn(3000, 33)
    rows = gather(unified(numbers), ids, duplicates="merge", dtype=torch.float16)
    assert torch.equal(rows.cpu(), numbers[ids.cpu()].half())
    cube = torch.randn(300, 4, 6).transpose(1, 2)
    ids = ids % 300
    assert torch.equal(gather(unified(cube), ids, duplicates="merge").cpu(), cube[ids.cpu()])
    ids[3] = 4000
    result = gather(unified(numbers), ids, duplicates="merge")
    with pytest.raises(IndexError, match="id 4000 at position 3"):
        check()
    assert (result[3].view(torch.uint8) == 0xFF).all()


@pytest.mark.parametrize("source", [torch.float64, torch.float32, torch.bfloat16, torch.int8,
                                    torch.float8_e4m3fn, torch.int32])  # fmt: skip
@pytest.mark.parametrize("to", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
def test_scaled_has_the_bits_of_the_cpu(cuda, source, to):
    table = (torch.rand(3000, 48) * 100).to(source)
    factors = torch.rand(3000)
    ids = torch.randint(0, 3000, (9000,))
    for scale in (0.3, factors):
        expected = gather(table, ids, scale=scale, dtype=to)
        moved = scale.to(cuda) if isinstance(scale, torch.Tensor) else scale
        for order in ("none", "address"):
            rows = gather(unified(table), ids.to(cuda), scale=moved, dtype=to, order=order)
            assert torch.equal(rows.cpu(), expected)
    rows = gather(unified(table), ids.to(cuda), scale=unified(factors), dtype=to)
    assert torch.equal(rows.cpu(), gather(table, ids, scale=factors, dtype=to))


def test_check_now_raises_for_its_own_ids(cuda):
    u = unified(torch.zeros(10, 4))
    with pytest.raises(IndexError, match="id 12 at position 1"):
        gather(u, torch.tensor([3, 12], device=cuda), check="now")
    side = torch.cuda.Stream()
    with pytest.raises(IndexError, match="id 13 at position 0"):
        gather(u, torch.tensor([13], device=cuda), check="now", stream=side)
    gather(u, torch.tensor([3], device=cuda), check="now")
