# SPDX-License-Identifier: Apache-2.0
"""Buffers as seen by numpy and torch."""

from __future__ import annotations

import gc

import numpy as np
import pytest

from datapath_core import PinnedPool

torch = pytest.importorskip("torch")


@pytest.fixture
def buffer():
    with PinnedPool("4MiB") as pool:
        made = pool.allocate(1000)
        np.asarray(made)[:] = np.arange(1000) % 256
        yield made


def test_requests_that_cannot_be_met_are_refused(buffer) -> None:
    with pytest.raises(ValueError, match="stream"):
        buffer.__dlpack__(stream=1)
    with pytest.raises(BufferError, match="copy"):
        buffer.__dlpack__(copy=True)
    with pytest.raises(BufferError, match="device"):
        buffer.__dlpack__(dl_device=(2, 0))


def test_a_buffer_is_cpu_memory_of_bytes(buffer) -> None:
    assert buffer.__dlpack_device__() == (1, 0)
    for array in (np.from_dlpack(buffer), np.asarray(buffer), np.frombuffer(buffer, np.uint8)):
        assert array.shape == (1000,)
        assert array.dtype == np.uint8
        assert array.ctypes.data == buffer.address
        assert (array == np.arange(1000) % 256).all()
    tensor = torch.from_dlpack(buffer)
    assert tensor.data_ptr() == buffer.address
    assert tensor.dtype == torch.uint8
    tensor[0] = 77
    assert bytes(buffer)[0] == 77


@pytest.mark.parametrize("versioned", [False, True])
def test_capsules_of_both_kinds_are_made_and_may_be_dropped_unused(buffer, versioned) -> None:
    capsule = buffer.__dlpack__(max_version=(1, 0) if versioned else None)
    assert ("versioned" in repr(capsule)) == versioned
    del capsule
    gc.collect()


@pytest.mark.parametrize(
    "dtype", [torch.bfloat16, torch.float8_e4m3fn, torch.bool, torch.complex64], ids=str
)
def test_bytes_are_viewed_as_any_dtype(buffer, dtype) -> None:
    tensor = torch.from_dlpack(buffer)[: 8 * dtype.itemsize].view(dtype)
    assert tensor.shape == (8,)
    assert tensor.data_ptr() == buffer.address


def test_memory_goes_back_only_when_every_view_is_gone() -> None:
    with PinnedPool("4MiB") as pool:
        made = pool.allocate(1000)
        views = [torch.from_dlpack(made), np.from_dlpack(made), np.asarray(made), memoryview(made)]
        del made
        for _ in range(len(views)):
            gc.collect()
            assert pool.stats()["live_buffers"] == 1
            views.pop()
        gc.collect()
        assert pool.stats()["live_buffers"] == 0


def test_an_imported_view_may_be_let_go_by_another_thread() -> None:
    import threading

    with PinnedPool("4MiB") as pool:
        holder = [torch.from_dlpack(pool.allocate(1000))]
        thread = threading.Thread(target=holder.clear)
        thread.start()
        thread.join()
        assert pool.stats()["live_buffers"] == 0
