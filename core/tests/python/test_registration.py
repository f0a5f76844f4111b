# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import gc
import mmap
import weakref

import numpy as np
import pytest

from datapath_core import UnsupportedError, register
from datapath_core.testing import null_device

torch = pytest.importorskip("torch")


class Array(np.ndarray):
    """An array that can be referred to weakly."""


def array(nbytes: int = 100_000) -> np.ndarray:
    return np.zeros(nbytes, dtype=np.uint8).view(Array)


@pytest.fixture(params=[None, "null"])
def device(request: pytest.FixtureRequest):
    return request.param


def test_memory_that_cannot_be_pinned_is_refused_where_that_is_required() -> None:
    if register(array()).is_pinned:
        pytest.skip("there is a GPU")
    with pytest.raises(UnsupportedError, match="CUDA"):
        register(array(), required=True)


def test_what_is_no_contiguous_writable_memory_is_refused(device) -> None:
    with pytest.raises((ValueError, BufferError), match="contiguous"):
        register(np.zeros((4, 4))[:, 1:], device=device)
    with pytest.raises((ValueError, BufferError), match="writable"):
        register(b"abc", device=device)
    with pytest.raises(TypeError):
        register(3, device=device)


def test_a_registered_buffer_is_the_same_bytes(device) -> None:
    data = array()
    buffer = register(data, device=device)
    assert buffer.is_registered
    assert buffer.nbytes == data.nbytes
    assert buffer.address == data.ctypes.data
    np.asarray(buffer)[5] = 9
    assert data[5] == 9
    assert buffer.is_pinned == (device == "null") or buffer.reason is None


def test_the_object_lives_until_the_buffer_and_its_views_are_gone(device) -> None:
    data = array()
    gone = weakref.ref(data)
    buffer = register(data, device=device)
    del data
    view = np.asarray(buffer)
    alias = torch.from_dlpack(buffer)
    del buffer
    gc.collect()
    assert gone() is not None
    view[0] = 3
    assert alias[0] == 3
    del view, alias
    for _ in range(100):
        register(array(10), device=device)
        gc.collect()
        if gone() is None:
            break
    assert gone() is None


def test_registrations_overlap_and_repeat(device) -> None:
    data = array()
    first = register(data, device=device)
    again = register(data, device=device)
    part = register(data[1000:50_000], device=device)
    del first
    np.asarray(part)[0] = 7
    del again
    assert data[1000] == 7
    assert part.is_pinned == (device == "null") or part.reason is None


def test_zero_bytes_can_be_registered(device) -> None:
    assert register(np.zeros(0), device=device).nbytes == 0


def test_a_read_only_registration_cannot_be_written(device) -> None:
    buffer = register(b"abc" * 1000, read_only=True, device=device)
    assert buffer.read_only
    assert memoryview(buffer).readonly
    assert bytes(buffer) == b"abc" * 1000
    assert not np.asarray(buffer).flags.writeable
    with pytest.raises(BufferError, match="read-only"):
        buffer.__dlpack__()


def test_a_tensor_and_a_mapping_can_be_registered(device) -> None:
    tensor = torch.arange(1000, dtype=torch.bfloat16)
    buffer = register(tensor, device=device)
    tensor.data = torch.zeros(1)  # points the tensor elsewhere; the registered bytes stay
    assert torch.equal(
        torch.from_dlpack(buffer).view(torch.bfloat16), torch.arange(1000, dtype=torch.bfloat16)
    )
    mapped = mmap.mmap(-1, 1 << 16)
    held = register(mapped, device=device)
    with pytest.raises(BufferError):
        mapped.close()
    del held
    gc.collect()
    register(array(10), device=device)
    mapped.close()


@pytest.mark.usefixtures("returns_to_baseline")
def test_many_registrations_come_back(device) -> None:
    if device == "null":
        null_device()
    for _ in range(50):
        register(array(5000), device=device)
