# SPDX-License-Identifier: Apache-2.0
"""What only a GPU can show: registered memory, copies, and streams that wait for tickets."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from pathlib import Path

import pytest

import datapath_core as dp

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.gpu

CUDA = "cuda:0"


def random_bytes(nbytes: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (nbytes,), dtype=torch.uint8, generator=generator)


def spin(milliseconds: float) -> None:
    """Keep the current stream busy, so that what should wait has something to wait for."""
    torch.cuda._sleep(int(milliseconds * 1.9e6))


@pytest.fixture(scope="module", autouse=True)
def _torch_is_initialised() -> None:
    # Before that torch says of no memory that it is pinned.
    torch.zeros(1, device=CUDA)


@pytest.fixture(scope="module")
def scheduler() -> dp.Scheduler:
    return dp.Scheduler(CUDA)


def test_pool_memory_is_pinned_for_torch_and_for_the_device() -> None:
    with dp.PinnedPool("256MiB", device=CUDA) as pool:
        buffer = pool.allocate(1 << 20)
        assert buffer.is_pinned
        host = torch.from_dlpack(buffer)
        assert host.device.type == "cpu"
        assert host.is_pinned()
        host.copy_(random_bytes(1 << 20))
        view = torch.from_dlpack(buffer.device_view())
        assert view.device == torch.device(CUDA)
        assert torch.equal(view.cpu(), host)
        view.add_(1)
        torch.cuda.synchronize()
        assert torch.equal(host, random_bytes(1 << 20) + 1)
        interface = torch.as_tensor(buffer.device_view(), device="cuda")
        assert torch.equal(interface.cpu().view(torch.uint8), host)


def test_registration_in_place_overlaps_and_goes_with_its_handle() -> None:
    source = random_bytes((8 << 20) + 777)
    assert not source.is_pinned()
    whole = dp.register(source, device=CUDA)
    part = dp.register(source[4096:90_000], device=CUDA)
    again = dp.register(source, device=CUDA)
    assert whole.is_pinned
    assert part.is_pinned
    assert source.is_pinned()
    del whole
    again = None
    gc.collect()
    assert torch.equal(torch.from_dlpack(part.device_view()).cpu(), source[4096:90_000])
    del part
    gc.collect()
    assert not source.is_pinned()
    assert again is None


def test_memory_that_torch_pinned_stays_pinned() -> None:
    source = torch.empty(1 << 20, dtype=torch.uint8, pin_memory=True)
    handle = dp.register(source, device=CUDA)
    assert handle.is_pinned
    del handle
    gc.collect()
    assert source.is_pinned()


def test_released_memory_waits_for_the_work_that_uses_it() -> None:
    with dp.PinnedPool("64MiB", device=CUDA) as pool:
        buffer = pool.allocate(32 << 20)
        host = torch.from_dlpack(buffer)
        host.fill_(7)
        out = torch.empty(32 << 20, dtype=torch.uint8, device="cuda")
        spin(50)
        out.copy_(torch.from_dlpack(buffer.device_view()), non_blocking=True)
        buffer.record_use(torch.cuda.current_stream())
        del buffer, host
        gc.collect()
        assert pool.stats()["pending"] > 0 or torch.cuda.current_stream().query()
        # Only the same memory can serve this: it must come after the copy above.
        other = pool.allocate(48 << 20)
        torch.from_dlpack(other).fill_(9)
        torch.cuda.synchronize()
        assert (out == 7).all()


@pytest.mark.parametrize("nbytes", [0, 1, 4097, (64 << 20) + 3])
@pytest.mark.parametrize("pinned", [True, False])
def test_copies_both_ways(scheduler: dp.Scheduler, nbytes: int, pinned: bool) -> None:
    source = random_bytes(nbytes)
    back = torch.zeros(nbytes, dtype=torch.uint8)
    if pinned and nbytes:
        source, back = source.pin_memory(), back.pin_memory()
    device = torch.zeros(nbytes, dtype=torch.uint8, device="cuda")
    torch.cuda.synchronize()
    assert scheduler.transfer(device, source).result() == nbytes
    assert scheduler.transfer(back, device).result() == nbytes
    assert torch.equal(source, back)


def test_transfer_waits_for_the_stream_and_the_stream_for_the_transfer(
    scheduler: dp.Scheduler,
) -> None:
    source = torch.zeros(32 << 20, dtype=torch.uint8, device="cuda")
    back = torch.zeros(32 << 20, dtype=torch.uint8, pin_memory=True)
    again = torch.empty_like(source)
    for value in range(1, 6):
        spin(20)
        source.fill_(value)
        down = scheduler.transfer(back, source, streams=[torch.cuda.current_stream()])
        up = scheduler.transfer(
            again, back, after=[down], streams=[torch.cuda.current_stream().cuda_stream]
        )
        up.wait(torch.cuda.current_stream())
        assert (again == value).all().item()


def test_deferred_wait(scheduler: dp.Scheduler, tmp_path: Path) -> None:
    data = random_bytes(16 << 20)
    (tmp_path / "data").write_bytes(data.numpy().tobytes())
    out = torch.zeros(16 << 20, dtype=torch.uint8, device="cuda")
    torch.cuda.synchronize()
    with dp.io.Engine() as engine, engine.open(tmp_path / "data", "r") as file:
        ticket = file.read(out)
        ticket.wait(torch.cuda.current_stream(), deferred=True)
        found = out.clone()
        assert ticket.result() == 16 << 20
    assert torch.equal(found.cpu(), data)


@pytest.mark.parametrize("offset", [0, 512, 1001])
@pytest.mark.parametrize("nbytes", [1, 4096, (9 << 20) + 17, 96 << 20])
def test_disk_and_device(tmp_path: Path, nbytes: int, offset: int) -> None:
    source = random_bytes(nbytes, seed=offset)
    device = source.cuda()
    back = torch.zeros_like(device)
    with dp.io.Engine() as engine, engine.open(tmp_path / "f", "w+") as file:
        assert file.write(device, offset).result() == nbytes
        assert file.read(back, offset).result() == nbytes
    assert torch.equal(back, device)
    assert (tmp_path / "f").read_bytes()[offset:] == source.numpy().tobytes()


def test_read_error_poisons_what_a_deferred_stream_sees(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(bytes(1 << 20))
    out = torch.zeros(1 << 20, dtype=torch.uint8, device="cuda")
    torch.cuda.synchronize()
    with dp.io.Engine(faults="read:eio") as engine, engine.open(tmp_path / "f", "r") as file:
        ticket = file.read(out)
        ticket.wait(torch.cuda.current_stream(), deferred=True)
        seen = out.clone()
        with pytest.raises(dp.IoError):
            ticket.result()
        assert (seen == 0xFF).all()


def test_capture_is_refused(scheduler: dp.Scheduler) -> None:
    host = torch.zeros(4096, dtype=torch.uint8, pin_memory=True)
    device = torch.zeros(4096, dtype=torch.uint8, device="cuda")
    graph = torch.cuda.CUDAGraph()
    refusals = []
    with torch.cuda.graph(graph):
        device.add_(1)
        try:
            scheduler.transfer(device, host, streams=[torch.cuda.current_stream()])
        except dp.UnsupportedError as error:
            refusals.append(str(error))
    assert len(refusals) == 1
    assert "captur" in refusals[0] or "graph" in refusals[0]
    graph.replay()
    torch.cuda.synchronize()
    assert (device == 1).all()


def test_pool_grows_while_another_stream_captures() -> None:
    pool = dp.PinnedPool("512MiB", device=CUDA)
    device = torch.zeros(4096, dtype=torch.uint8, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        device.add_(1)
        buffers = [pool.allocate(40 << 20) for _ in range(3)]
        device.add_(1)
    graph.replay()
    torch.cuda.synchronize()
    assert (device == 2).all()
    assert all(buffer.is_pinned for buffer in buffers)


def test_child_of_a_fork_gets_an_error_that_names_the_fork() -> None:
    script = """
import os, torch, datapath_core as dp
pool = dp.PinnedPool('16MiB', device='cuda:0'); buffer = pool.allocate(100)
child = os.fork()
if child == 0:
    try:
        pool.allocate(100)
    except dp.UnsupportedError as error:
        os._exit(0 if 'fork' in str(error) else 2)
    os._exit(3)
_, status = os.waitpid(child, 0)
assert os.waitstatus_to_exitcode(status) == 0, status
pool.allocate(100)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], env=os.environ, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_import_initialises_no_cuda() -> None:
    script = """
import datapath_core as dp
dp.describe()
assert not any('libcuda.so' in line for line in open('/proc/self/maps'))
"""
    subprocess.run([sys.executable, "-c", script], check=True)


def test_interpreter_exit_with_transfers_in_flight() -> None:
    script = """
import torch, datapath_core as dp
s = dp.Scheduler('cuda:0')
d = torch.zeros(256 << 20, dtype=torch.uint8, device='cuda')
h = torch.zeros(256 << 20, dtype=torch.uint8, pin_memory=True)
tickets = [s.transfer(h, d) for _ in range(4)]
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr


def test_many_threads_move_their_own_bytes(scheduler: dp.Scheduler) -> None:
    from concurrent.futures import ThreadPoolExecutor

    def work(seed: int) -> bool:
        source = random_bytes(3_000_001, seed)
        device = torch.zeros(3_000_001, dtype=torch.uint8, device="cuda")
        back = torch.zeros_like(source)
        torch.cuda.current_stream().synchronize()
        for _ in range(5):
            up = scheduler.transfer(device, source)
            scheduler.transfer(back, device, after=[up]).result()
        return torch.equal(source, back)

    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(work, range(16)))
