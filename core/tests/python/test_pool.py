# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import gc
import time
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from datapath_core import BudgetError, PinnedPool, Scheduler, UnsupportedError
from datapath_core.testing import null_device

KIB, MIB = 1 << 10, 1 << 20


def test_an_allocation_past_the_budget_is_refused_and_leaves_the_pool_usable() -> None:
    with PinnedPool("4MiB", piece_bytes="2MiB") as pool:
        with pytest.raises(BudgetError, match="budget") as caught:
            pool.allocate("5MiB")
        assert isinstance(caught.value, MemoryError)
        held = pool.allocate("3MiB")
        with pytest.raises(BudgetError):
            pool.allocate("2MiB")
        del held
        assert pool.allocate("4MiB").nbytes == 4 * MIB


@pytest.mark.parametrize(
    "arguments",
    [{"budget": 0}, {"budget": -1}, {"budget": "x"}, {"numa_node": -1}, {"numa_node": 4000},
     {"piece_bytes": "32TiB"}],
)  # fmt: skip
def test_arguments_out_of_their_domain_are_refused(arguments) -> None:
    with pytest.raises(ValueError, match=r"budget|bytes|numa|node|piece"):
        PinnedPool(**arguments).allocate(1)


@pytest.mark.parametrize("nbytes", [-1, "x", 1 << 63])
def test_a_size_that_is_none_is_refused(nbytes) -> None:
    with PinnedPool("4MiB") as pool, pytest.raises((ValueError, BudgetError)):
        pool.allocate(nbytes)


def test_an_alignment_is_a_power_of_two() -> None:
    with PinnedPool("8MiB") as pool:
        for bad in (3, 4 * MIB):
            with pytest.raises(ValueError, match="align"):
                pool.allocate(10, alignment=bad)
        assert pool.allocate(10, alignment="2MiB").address % (2 * MIB) == 0
        assert pool.allocate(10).address % 4096 == 0


def test_a_closed_pool_refuses_but_its_buffers_live_on() -> None:
    pool = PinnedPool("4MiB")
    buffer = pool.allocate(100)
    pool.close()
    pool.close()
    with pytest.raises(ValueError, match="closed"):
        pool.allocate(1)
    np.asarray(buffer)[:] = 5
    assert bytes(buffer) == b"\5" * 100


def test_zero_bytes_are_a_buffer() -> None:
    with PinnedPool("4MiB") as pool:
        buffer = pool.allocate(0)
        assert buffer.nbytes == len(buffer) == 0
        assert bytes(buffer) == b""
        assert buffer.address != 0


def test_sizes_are_exact_and_statistics_too() -> None:
    with PinnedPool("16MiB", piece_bytes="2MiB") as pool:
        sizes = [1, 4096, 4097, 100_000, 3 * MIB]
        buffers = [pool.allocate(size) for size in sizes]
        assert [buffer.nbytes for buffer in buffers] == sizes
        stats = pool.stats()
        assert stats["requested"] == sum(sizes)
        assert stats["allocated"] == sum(-(-size // 4096) * 4096 for size in sizes)
        assert stats["live_buffers"] == stats["allocations"] == len(sizes)
        assert stats["backed"] >= stats["allocated"]
        assert stats["budget"] == 16 * MIB
        peak = stats["allocated"]
        del buffers
        stats = pool.stats()
        assert stats["requested"] == stats["allocated"] == stats["live_buffers"] == 0
        assert stats["peak_allocated"] == peak
        assert pool.trim() == stats["backed"]
        assert pool.stats()["backed"] == 0


def test_reserve_backs_memory_before_it_is_needed() -> None:
    with PinnedPool("16MiB", piece_bytes="2MiB") as pool:
        pool.reserve("5MiB")
        backed = pool.stats()["backed"]
        assert 5 * MIB <= backed <= 8 * MIB
        held = pool.allocate("5MiB")
        assert pool.stats()["backed"] == backed
        assert held.nbytes == 5 * MIB
        with pytest.raises(BudgetError):
            pool.reserve("1GiB")


def test_without_a_device_memory_is_plain_and_says_why() -> None:
    with PinnedPool("4MiB") as pool:
        buffer = pool.allocate(10)
        if buffer.is_pinned:
            pytest.skip("there is a GPU")
        assert buffer.reason
        assert pool.stats()["is_pinned"] is False
        assert not buffer.is_registered
        with pytest.raises(UnsupportedError, match="no CUDA device"):
            buffer.device_view()
        with pytest.raises(ValueError, match="no device"):
            buffer.record_use(0)


def test_the_null_device_counts_as_pinning() -> None:
    with PinnedPool("4MiB", device=null_device()) as pool:
        buffer = pool.allocate(10)
        assert buffer.is_pinned
        assert buffer.reason is None


def test_memory_in_use_by_a_stream_is_reused_only_after_it() -> None:
    device = null_device()
    stream = device.create_stream()
    target = device.allocate(MIB)
    device.null_set_copy_delay(1.0)  # Room for a busy machine.
    try:
        with PinnedPool("2MiB", piece_bytes="2MiB", device=device) as pool:
            with Scheduler(device) as scheduler:
                buffer = pool.allocate(MIB)
                ticket = scheduler.transfer(target, buffer)
                # The stream's work is the transfer that it waits for.
                ticket.wait(stream)
                buffer.record_use(stream)
                del buffer
                assert not ticket.done()
                stats = pool.stats()
                assert stats["pending"] + stats["allocated"] >= MIB
                ticket.result()
            device.synchronize(stream)
            deadline = time.monotonic() + 60
            while pool.stats()["pending"] and time.monotonic() < deadline:
                time.sleep(0.01)
            assert pool.stats()["pending"] == 0
            assert pool.allocate(2 * MIB).nbytes == 2 * MIB
    finally:
        device.null_set_copy_delay(0)
        device.destroy_stream(stream)


def test_views_keep_the_memory() -> None:
    pool = PinnedPool("4MiB")
    array = np.asarray(pool.allocate(1000))
    array[:] = np.arange(1000, dtype=np.uint64).astype(np.uint8)
    copy = array.copy()
    del pool
    gc.collect()
    assert (array == copy).all()


def test_a_forked_child_has_none_of_the_memory_and_says_so(child) -> None:
    done = child(
        """
        import os
        from datapath_core import PinnedPool, UnsupportedError
        pool = PinnedPool("4MiB")
        pool.allocate(10)
        pid = os.fork()
        if pid == 0:
            try:
                pool.allocate(10)
            except UnsupportedError as error:
                ok = "fork" in str(error)
            else:
                ok = False
            fresh = PinnedPool("4MiB").allocate(10)
            memoryview(fresh)[0] = 1
            os._exit(0 if ok else 1)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        """
    )
    assert done.stdout.strip() == "0"


@settings(max_examples=12, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.integers(0, MIB)), max_size=20))
def test_live_buffers_never_overlap_and_nothing_leaks(steps) -> None:
    with PinnedPool("6MiB", piece_bytes="2MiB") as pool:
        live: list = []
        for number, (let_go, nbytes) in enumerate(steps):
            if let_go and live:
                live.pop(nbytes % len(live))
                continue
            try:
                buffer = pool.allocate(nbytes)
            except BudgetError:
                held = sum(-(-len(other) // 4096) * 4096 for other, _ in live)
                assert held + nbytes > 0
                continue
            np.asarray(buffer)[:] = number % 251
            live.append((buffer, number % 251))
            ranges = sorted((b.address, b.address + b.nbytes) for b, _ in live if b.nbytes)
            assert all(end <= start for (_, end), (start, _) in pairwise(ranges))
        assert all((np.asarray(buffer) == value).all() for buffer, value in live)
        live.clear()
        buffer = None
        gc.collect()
        assert pool.stats()["allocated"] == 0
