# SPDX-License-Identifier: Apache-2.0
"""UnifiedTensor with a GPU: registration, device views, placement of operators."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import textwrap

import pytest
import torch
from torch.nn import functional

from datapath_core import UnsupportedError
from pytorch_direct import UnifiedTensor, check, gather, unified

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def no_error_is_left_behind(cuda):
    check()
    yield
    check()
    torch.cuda.synchronize()


def test_memory_is_pinned_in_place(cuda):
    table = torch.randn(1000, 10)
    u = unified(table)
    assert u.is_registered
    assert u.data_ptr() == table.data_ptr()
    assert u.is_pinned()
    view = u.device_view()
    assert (view.device, view.shape, view.stride()) == (cuda, u.shape, u.stride())
    assert torch.equal(view.cpu(), table)
    view[3] = 7
    torch.cuda.synchronize()
    assert (table[3] == 7).all()


def test_device_view_of_any_dtype_and_strides(cuda, dtype):
    table = torch.randint(0, 2, (6, 8), dtype=torch.uint8).repeat(1, 16).view(dtype)
    for strided in (table, table[1:], table[:, 1::2], table.t(), table[:0], table[0]):
        view = unified(strided).device_view("cuda")
        assert (view.dtype, view.shape, view.stride()) == (dtype, strided.shape, strided.stride())
        copies = [torch.empty(strided.shape, dtype=dtype).copy_(t) for t in (view.cpu(), strided)]
        first, second = (copy.view(-1).view(torch.uint8) for copy in copies)
        assert torch.equal(first, second)


def test_registrations_overlap_and_repeat(cuda):
    table = torch.randn(10_000, 10)
    whole, part, odd = unified(table), unified(table[10:]), unified(table.view(-1)[3:77])
    neighbours = torch.empty(64, dtype=torch.uint8)
    first, second = unified(neighbours[:8]), unified(neighbours.clone())
    ids = torch.tensor([5, 5000], device=cuda)
    for _ in range(2):
        assert torch.equal(gather(whole, ids).cpu(), table[[5, 5000]])
        assert torch.equal(gather(part, ids).cpu(), table[[15, 5010]])
        assert torch.equal(gather(odd, ids[:1]).cpu(), table.view(-1)[[8]])
    del whole, odd, first
    gc.collect()
    assert torch.equal(gather(part, ids).cpu(), table[[15, 5010]])
    del part
    gc.collect()
    again = unified(table)
    assert torch.equal(gather(again, ids).cpu(), table[[5, 5000]])
    assert second.is_registered


def test_memory_that_torch_pinned_stays_torchs(cuda):
    pinned = torch.randn(100, 10).pin_memory()
    u = unified(pinned)
    ids = torch.tensor([99], device=cuda)
    assert torch.equal(gather(u, ids).cpu(), pinned[[99]])
    del u
    gc.collect()
    torch.cuda.synchronize()
    assert pinned.is_pinned()
    assert torch.equal(pinned.to(cuda, non_blocking=True).cpu(), pinned)


def test_a_gpu_operand_takes_the_operator_to_the_gpu(cuda):
    table = torch.randn(6, 4)
    u, x = unified(table), torch.randn(6, 4, device=cuda)
    for result, expected in (
        (u + x, table + x.cpu()),
        (x * u, table * x.cpu()),
        (torch.cat([u, x]), torch.cat([table, x.cpu()])),
        (torch.where(x > 0, u, x), torch.where(x.cpu() > 0, table, x.cpu())),
        (functional.mse_loss(u, x, reduction="none"), (table - x.cpu()) ** 2),
        (u[x[:, 0] > 0], table[x.cpu()[:, 0] > 0]),
        (u[:, torch.tensor([1, 1], device=cuda)], table[:, [1, 1]]),
    ):
        assert type(result) is torch.Tensor
        assert result.is_cuda
        assert torch.allclose(result.cpu(), expected)


def test_without_one_it_stays_on_the_cpu(cuda):
    u = unified(torch.randn(6, 4))
    for result in (u + u, u * 2, u + torch.ones(6, 4), u.sum(), u[torch.tensor([1])]):
        assert type(result) is torch.Tensor
        assert result.device.type == "cpu"
    scalar = torch.tensor(2.0)
    assert (u * scalar).device.type == "cpu"
    with pytest.raises(RuntimeError):  # a true CPU tensor beside a CUDA one, as torch says
        torch.stack([u, torch.ones(6, 4), torch.ones(6, 4, device=cuda)])


def test_writes_by_the_gpu_are_seen_by_the_cpu(cuda):
    table = torch.zeros(1 << 16, 8)
    u = unified(table)
    x = torch.ones(1 << 16, 8, device=cuda)
    torch.cuda._sleep(100_000_000)
    assert u.add_(x) is u
    assert (table == 1).all()
    torch.cuda._sleep(100_000_000)
    u.copy_(x * 5)
    assert (table == 5).all()
    torch.cuda._sleep(100_000_000)
    u[torch.tensor([3], device=cuda)] = x[:1]
    assert (table[3] == 1).all()
    torch.cuda._sleep(100_000_000)
    torch.add(x, x, out=u)
    assert (table == 2).all()
    device = torch.empty_like(x)
    assert device.copy_(u) is device
    assert (device == 2).all()


def test_what_the_cpu_writes_later_is_not_in_a_gather(cuda):
    table = torch.randn(1 << 16, 8)
    before, u = table.clone(), unified(table)
    ids = torch.randint(0, 1 << 16, (1000,)).to(cuda)
    torch.cuda._sleep(100_000_000)
    rows = u[ids]
    u.zero_()
    assert torch.equal(rows.cpu(), before[ids.cpu()])
    torch.cuda._sleep(100_000_000)
    moved = u + torch.ones(1 << 16, 8, device=cuda)
    u[:] = 5
    assert (moved == 1).all()


def test_copies_to_the_gpu_are_copies(cuda):
    table = torch.randn(6, 4)
    u = unified(table)
    for copy in (u.cuda(), u.to(cuda), u.to(torch.ones(1, device=cuda)),
                 u.to(cuda, non_blocking=True)):  # fmt: skip
        assert type(copy) is torch.Tensor
        torch.cuda.synchronize()
        before = copy.clone()
        u.add_(1)
        assert torch.equal(copy, before)


def test_gradients_flow_through_device_views(cuda):
    leaf = torch.randn(6, 4, requires_grad=True)
    x = torch.randn(6, 4, device=cuda)
    (unified(leaf) * x).sum().backward()
    assert torch.equal(leaf.grad, x.cpu())


def test_a_device_view_is_no_copy_and_is_kept_by_torch(cuda):
    u = unified(torch.randn(1 << 12, 64))
    before = torch.cuda.memory_allocated()
    view = u.device_view()
    assert torch.cuda.memory_allocated() == before
    ids = torch.randint(0, 1 << 12, (100,), device=cuda)
    assert torch.equal(view.index_select(0, ids), gather(u, ids))
    assert torch.equal(gather(view, ids, order="address"), gather(u, ids))


def test_a_forked_child_is_told_that_it_has_no_gpu(cuda):
    u = unified(torch.randn(100, 4))
    child = os.fork()
    if child == 0:
        code = 3
        try:
            torch.set_num_threads(1)
            assert torch.equal(u[torch.tensor([1])], u[1:2])
            u.device_view()
        except UnsupportedError as error:
            code = 0 if "fork" in str(error) else 4
        except BaseException:  # noqa: BLE001  (it must not go on as the parent)
            code = 5
        os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert u.device_view().is_cuda


def test_spawned_processes_register_for_themselves(cuda, tmp_path):
    script = tmp_path / "share.py"
    script.write_text(
        textwrap.dedent(
            """
            import torch, torch.multiprocessing as mp
            from pytorch_direct import unified

            def worker(u, queue):
                assert not u.is_registered
                queue.put(u[torch.tensor([1, 3], device="cuda")].sum().item())
                assert u.is_registered

            if __name__ == "__main__":
                context = mp.get_context("spawn")
                u = unified(torch.arange(32.0).view(4, 8))
                u[torch.tensor([1], device="cuda")]
                queue = context.Queue()
                process = context.Process(target=worker, args=(u, queue))
                process.start()
                assert queue.get(timeout=120) == u[[1, 3]].sum().item()
                process.join(120)
                assert process.exitcode == 0
                assert u[torch.tensor([2], device="cuda")].sum() == u[2].sum().item()
                print("shared")
            """
        )
    )
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=280, check=False
    )
    assert done.stdout.strip() == "shared", done.stderr


def test_process_ends_cleanly_with_work_in_flight(cuda):
    script = (
        "import torch, pytorch_direct as pd\n"
        "u = pd.unified(torch.randn(1 << 16, 64)); v = u.device_view()\n"
        "ids = torch.randint(0, 1 << 16, (1 << 18,), device='cuda')\n"
        "torch.cuda._sleep(200_000_000)\n"
        "rows = u[ids]\n"
        "print('end')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "end"


@pytest.mark.multigpu
def test_each_gpu_has_a_view_of_the_same_memory(cuda):
    if torch.cuda.device_count() < 2:
        pytest.skip("one GPU")
    table = torch.randn(100, 4)
    u = unified(table)
    views = [u.device_view(index) for index in range(2)]
    assert [view.device.index for view in views] == [0, 1]
    assert all(torch.equal(view.cpu(), table) for view in views)
    assert isinstance(u, UnifiedTensor)
    assert (u + torch.ones(100, 4, device="cuda:1")).device.index == 1
