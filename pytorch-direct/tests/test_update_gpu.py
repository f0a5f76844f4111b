# SPDX-License-Identifier: Apache-2.0
"""Rows of host memory changed by a GPU: additions and optimisers, the bits of the CPU's."""

from __future__ import annotations

import pytest
import torch

import pytorch_direct as ptd
from datapath_core import UnsupportedError
from pytorch_direct import check, scatter_add_, unified
from pytorch_direct.optim import SparseAdagrad, SparseAdam, SparseSGD

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def no_error_is_left_behind(cuda):
    check()
    yield
    check()


DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int8, torch.uint8,
          torch.int16, torch.int32, torch.int64, torch.complex64]  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("width", [1, 7, 64, 300])
def test_scatter_add_has_the_bits_of_the_cpu(cuda, dtype, width):
    ids = torch.randint(0, 500, (3000,))
    ids[:700] = 3  # a hub
    rows = (torch.randn(3000, width) * 4).to(dtype)
    base = (torch.randn(500, width) * 4).to(dtype)
    real = torch.view_as_real if dtype.is_complex else (lambda one: one)
    expected = base.clone()
    scatter_add_(real(expected), ids, real(rows))
    for kind in (torch.int32, torch.int64):
        on_host, on_gpu = unified(base.clone()), base.to(cuda)
        assert scatter_add_(on_host, ids.to(cuda, kind), rows.to(cuda)) is on_host
        # The CPU's read waits by itself.
        assert torch.equal(on_host, expected)
        scatter_add_(on_gpu, ids.to(cuda, kind), rows.to(cuda))
        assert torch.equal(on_gpu.cpu(), expected)


def test_scatter_add_leaves_out_bad_ids_and_names_the_first(cuda):
    base = torch.zeros(10, 5)
    table = unified(base)
    ids = torch.tensor([1, 9, 10, 1, -1], device=cuda)
    scatter_add_(table, ids, torch.ones(5, 5, device=cuda))
    with pytest.raises(IndexError, match=r"scatter_add_: id 10 at position 2 of 5.*left out"):
        check()
    assert table[1].tolist() == [2.0] * 5
    assert table.sum() == 15


def test_scatter_add_waits_for_nothing_and_is_recorded_in_a_graph(cuda, graph_of):
    table = unified(torch.zeros(100, 8))
    ids, rows = torch.tensor([4, 4, 9], device=cuda), torch.ones(3, 8, device=cuda)
    scatter_add_(table, ids, rows)
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        scatter_add_(table, ids, rows)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    # Not read since: the record begins with a write by the GPU to wait for.
    graph = graph_of(lambda: scatter_add_(table, ids, rows))
    graph.replay()
    torch.cuda.synchronize()
    assert table[4].tolist() == [6.0] * 8
    assert table[9].tolist() == [3.0] * 8


def test_scatter_add_refuses_what_it_has_no_kernel_for(cuda):
    ids = torch.tensor([0], device=cuda)
    with pytest.raises(UnsupportedError, match="unified"):
        scatter_add_(torch.zeros(3, 2), ids, torch.zeros(1, 2, device=cuda))
    table = unified(torch.zeros(3, 2, dtype=torch.bool))
    with pytest.raises(UnsupportedError, match="no kernel"):
        scatter_add_(table, ids, torch.zeros(1, 2, dtype=torch.bool, device=cuda))
    with pytest.raises(ValueError, match="together"):
        scatter_add_(unified(torch.zeros(3, 2)), ids, torch.zeros(1, 2))


@pytest.mark.parametrize("kind", [SparseSGD, SparseAdagrad, SparseAdam])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_training_from_the_gpu_has_the_bits_of_the_cpu(cuda, kind, dtype):
    values = torch.randn(2000, 33).to(dtype)
    results = []
    for device in ("cpu", cuda):
        table = torch.nn.Parameter(unified(values.clone()))
        optimiser = kind([table], lr=0.05)
        generator = torch.Generator().manual_seed(1)
        for _ in range(4):
            ids = torch.randint(0, 1500, (5000,), generator=generator)
            weights = torch.randn(5000, 33, generator=generator).to(dtype)
            optimiser.zero_grad()
            rows = ptd.gather(table, ids.to(device))
            assert rows.device.type == torch.device(device).type
            (rows * weights.to(device)).sum().backward()
            optimiser.step()
        results.append(
            (table.detach().clone(), *(s.clone() for s in optimiser._state_tables(table)))
        )
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))
    assert torch.equal(results[0][0][1500:], values[1500:])


def test_gradient_stays_on_the_gpu_until_it_is_read(cuda):
    table = torch.nn.Parameter(unified(torch.zeros(50, 3)))
    ids = torch.tensor([7, -1, 7], device=cuda)
    (table[ids] * 2).sum().backward()
    (table[ids[:1]] * 1).sum().backward()
    gradient = table.grad
    assert gradient.layout is torch.sparse_coo
    assert gradient._indices()[0].tolist() == [7, 49]
    assert gradient.to_dense()[7].tolist() == [5.0] * 3
    table.grad = None
    (table[ids] * 2).sum().backward()
    found = table.row_gradients()
    assert found.ids.is_cuda
    assert found.rows.is_cuda
    assert table.grad is None
    # torch's own optimiser takes the copy.
    (table[ids] * 2).sum().backward()
    torch.optim.SGD([table], lr=1.0).step()
    assert table[7].tolist() == [-4.0] * 3


def test_step_waits_for_nothing(cuda):
    table = torch.nn.Parameter(unified(torch.zeros(5000, 16)))
    optimiser = SparseAdam([table])
    ids = torch.randint(0, 5000, (2000,)).to(cuda)

    def turn():
        optimiser.zero_grad()
        table[ids].sum().backward()
        optimiser.step()

    turn()
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        turn()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert (table.detach()[ids.cpu()] < 0).all()


def test_what_asks_and_views_waits_for_nothing_also_while_recording(cuda, graph_of):
    table = unified(torch.zeros(100, 8))
    ids, rows = torch.tensor([4, 9], device=cuda), torch.ones(2, 8, device=cuda)
    scatter_add_(table, ids, rows)
    torch.cuda.synchronize()
    torch.cuda._sleep(2_000_000_000)
    running = torch.cuda.Event()
    scatter_add_(table, ids, rows)
    running.record()
    shapes = [t.shape for t in (table[1:], table.view(-1), table.t(), table.detach(), table[3])]
    assert len(shapes) == 5
    assert table.is_contiguous()
    assert not torch.is_complex(table)
    assert torch.zeros_like(table).shape == table.shape
    assert not running.query()
    # A read by the host waits for what was launched before the record began.
    seen = []
    out = torch.zeros(2, 8, device=cuda)

    def work():
        seen.append(table[4].tolist())
        table[1:].view(-1, 8)
        ptd.gather(table, ids, out=out)

    graph_of(work).replay()
    torch.cuda.synchronize()
    assert seen == [[2.0] * 8]
    assert (out == 2).all()


def test_torch_writes_to_a_table_are_recorded(cuda, graph_of):
    table, x = unified(torch.zeros(50, 4)), torch.ones(50, 4, device=cuda)
    graph = graph_of(lambda: table.add_(x))
    graph.replay()
    graph.replay()
    torch.cuda.synchronize()
    assert (table == 2).all()


def test_autograd_grad_and_hooks_see_gradients_of_gathers_by_the_gpu(cuda):
    table = torch.nn.Parameter(unified(torch.zeros(50, 3)))
    ids = torch.tensor([7, -1, 7], device=cuda)
    expected = torch.zeros(50, 3).index_add_(0, ids.cpu() % 50, torch.full((3, 3), 2.0))
    (found,) = torch.autograd.grad((table[ids] * 2).sum(), table)
    assert found.device.type == "cpu"
    assert torch.equal(found.to_dense(), expected)
    assert table.grad is None
    (table[ids] * 2).sum().backward(inputs=[table])
    assert torch.equal(table.grad.to_dense(), expected)
    table.grad = None
    seen = []
    table.register_hook(lambda g: seen.append(g.to_dense()) or g * 3)
    (table[ids] * 2).sum().backward()
    assert torch.equal(seen[0], expected)
    assert torch.equal(table.grad.to_dense(), expected * 3)


def test_gradients_stay_until_they_are_cleared_as_torchs_do(cuda):
    results = []
    for device in ("cpu", cuda):
        table = torch.nn.Parameter(unified(torch.zeros(10, 2, dtype=torch.float64)))
        optimiser = SparseSGD([table], lr=1.0)
        for step in range(3):
            (table[torch.tensor([step, step], device=device)] * 1).sum().backward()
            optimiser.step()
        results.append((table.detach().clone(), table.grad.to_dense()))
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))
