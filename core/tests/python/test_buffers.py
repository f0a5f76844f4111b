# SPDX-License-Identifier: Apache-2.0
"""Buffer arguments: what is accepted, what is refused, and that every byte arrives."""

from __future__ import annotations

import array
import gc
import mmap
import sys
import weakref

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from datapath_core import io

torch = pytest.importorskip("torch")


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    with (
        io.Engine() as engine,
        engine.open(tmp_path_factory.mktemp("buffers") / "file", "w+") as opened,
    ):
        yield opened


# ---------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    "make",
    [
        lambda: np.zeros((4, 4))[:, 1:],
        lambda: np.zeros((4, 6)).T,
        lambda: np.zeros(10)[::-1],
        lambda: torch.zeros(4, 4)[:, 1:],
        lambda: torch.zeros(4, 6).t(),
        lambda: torch.zeros(3, 1).expand(3, 4),
        lambda: memoryview(bytearray(10))[::2],
    ],
)
def test_a_buffer_that_is_not_contiguous_is_refused(file, make) -> None:
    for call in (file.read, file.write):
        with pytest.raises((ValueError, BufferError), match="contiguous"):
            call(make(), 0)


@pytest.mark.parametrize(
    "make",
    [lambda: b"abc", lambda: memoryview(b"abc"), lambda: np.frombuffer(b"abc", dtype=np.uint8)],
)
def test_a_read_only_buffer_cannot_be_read_into_but_written_from(file, make) -> None:
    with pytest.raises(ValueError, match=r"read-only .* makes a writable copy"):
        file.read(make(), 0)
    assert file.write(make(), 0).result() == 3


@pytest.mark.parametrize("thing", [None, 3, "text", [1, 2], object(), {}])
def test_what_is_no_buffer_is_a_type_error(file, thing) -> None:
    for call in (file.read, file.write):
        with pytest.raises(TypeError, match="buffer"):
            call(thing, 0)


def test_python_objects_are_refused(file) -> None:
    for bad in (np.array([None, 1]), np.zeros(2, dtype=[("Ok", "i4"), ("x", "O")])):
        with pytest.raises(TypeError, match="objects"):
            file.write(bad, 0)
    assert file.write(np.zeros(2, dtype=[("Ok", "i4")]), 0).result() == 8


def test_tensors_without_plain_bytes_are_refused(file) -> None:
    with pytest.raises(ValueError, match="sparse"):
        file.write(torch.eye(3).to_sparse(), 0)
    with pytest.raises(ValueError, match="conj"):
        file.write(torch.zeros(3, dtype=torch.complex64).conj(), 0)
    with pytest.raises(ValueError, match="negative bit"):
        file.write(torch._neg_view(torch.zeros(3)), 0)
    with pytest.raises((ValueError, TypeError), match=r"meta|memory"):
        file.write(torch.zeros(3, device="meta"), 0)


def test_a_tensor_whose_storage_was_freed_is_refused(file) -> None:
    tensor = torch.zeros(10)
    tensor.untyped_storage().resize_(0)
    with pytest.raises(ValueError, match="memory"):
        file.write(tensor, 0)


# ---------------------------------------------------------------- what is accepted

TORCH_DTYPES = [
    torch.bfloat16, torch.float16, torch.float32, torch.float64, torch.float8_e4m3fn,
    torch.float8_e5m2, torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64, torch.bool,
    torch.complex64,
]  # fmt: skip


@pytest.mark.parametrize("dtype", TORCH_DTYPES, ids=str)
def test_tensors_of_every_dtype_come_back(file, dtype) -> None:
    raw = torch.randint(0, 2, (17 * dtype.itemsize,), dtype=torch.uint8)
    data = raw.view(dtype)
    assert file.write(data, 3).result() == raw.numel()
    back = torch.zeros_like(data)
    assert file.read(back, 3).result() == raw.numel()
    assert torch.equal(back.view(torch.uint8), raw)


def test_tensors_that_require_gradients_and_scalars_and_empty_ones(file) -> None:
    weight = torch.nn.Parameter(torch.arange(5.0))
    assert file.write(weight, 0).result() == 20
    back = torch.zeros(5, requires_grad=True)
    assert file.read(back, 0).result() == 20
    assert torch.equal(back, weight)
    assert file.write(torch.tensor(3.5), 0).result() == 4
    assert file.write(torch.empty(0, 7), 0).result() == 0
    assert file.write(torch.arange(10)[5:], 0).result() == 40


@pytest.mark.parametrize(
    "make",
    [
        lambda: bytearray(b"0123456789abcdef"),
        lambda: memoryview(bytearray(b"0123456789abcdef")),
        lambda: array.array("d", [1.0, 2.0]),
        lambda: np.arange(2.0),
        lambda: np.array(["2024-01-01", "2025-01-01"], dtype="datetime64[s]"),
        lambda: np.zeros(2, dtype=[("a", "i4"), ("b", "f4")]),
        lambda: np.array([b"12345678", b"abcdefgh"]),
        lambda: np.arange(16, dtype=np.uint8).reshape(2, 2, 4),
    ],
)
def test_buffers_of_every_kind_come_back(file, make) -> None:
    data, back = make(), make()
    assert file.write(data, 11).result() == 16
    memory = np.frombuffer(back, dtype=np.uint8) if not isinstance(back, np.ndarray) else back
    memory.view(np.uint8).reshape(-1)[:] = 0
    assert file.read(back, 11).result() == 16
    assert bytes(np.asarray(back).tobytes()) == bytes(np.asarray(data).tobytes())


def test_an_mmap_is_a_buffer(file) -> None:
    with mmap.mmap(-1, 8192) as mapped:
        mapped[:3] = b"abc"
        assert file.write(mapped, 0).result() == 8192


class OnlyDlpack:
    """An array of some other library: DLPack and nothing else."""

    def __init__(self, array: np.ndarray, *, old: bool = False) -> None:
        self.array, self.old = array, old

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()

    def __dlpack__(self, **arguments):
        if self.old and "max_version" in arguments:
            raise TypeError("unexpected keyword argument 'max_version'")
        return self.array.__dlpack__(**arguments)


@pytest.mark.parametrize("old", [False, True])
def test_dlpack_of_both_kinds_is_accepted(file, old) -> None:
    data = np.arange(100, dtype=np.int32)
    assert file.write(OnlyDlpack(data, old=old), 5).result() == 400
    back = np.zeros_like(data)
    assert file.read(OnlyDlpack(back, old=old), 5).result() == 400
    assert (data == back).all()
    with pytest.raises((ValueError, BufferError), match="contiguous"):
        file.write(OnlyDlpack(np.zeros((4, 4))[:, :2], old=old), 0)


def test_dlpack_of_another_kind_of_device_is_refused(file) -> None:
    class Elsewhere:
        def __dlpack_device__(self):
            return (8, 0)

        def __dlpack__(self, **arguments):
            raise AssertionError("it must not be asked")

    with pytest.raises(TypeError, match="device type is 8"):
        file.write(Elsewhere(), 0)


def test_a_ticket_keeps_the_buffer_until_its_end_and_not_longer(file) -> None:
    class Array(np.ndarray):
        pass

    data = np.zeros(100, dtype=np.uint8).view(Array)
    gone = weakref.ref(data)
    ticket = file.write(data, 0)
    del data
    ticket.result()
    file.write(b"", 0).result()
    gc.collect()
    assert gone() is None


def test_no_references_are_lost_over_many_calls(file) -> None:
    data = bytearray(64)
    before = sys.getrefcount(data)
    for _ in range(300):
        file.write(data, 0).result()
        with pytest.raises(TypeError):
            file.write_batch([(data, 0), (object(), 0)])
    file.write(b"", 0).result()
    assert sys.getrefcount(data) == before
    data.extend(b"x")  # a view that was left would make this a BufferError


# ---------------------------------------------------------------- against a model


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_writes_at_any_offset_length_and_address_equal_a_model(data, tmp_path_factory) -> None:
    model = bytearray()
    path = tmp_path_factory.mktemp("model") / "file"
    sizes = st.one_of(
        st.integers(0, 3), st.integers(500, 520), st.integers(4090, 4100), st.integers(0, 20_000)
    )
    direct = data.draw(st.sampled_from([None, False]))
    with io.Engine(direct=direct, threads=2) as engine, engine.open(path, "w+") as file:
        for _ in range(data.draw(st.integers(1, 8))):
            length, offset = data.draw(sizes), data.draw(sizes)
            shift = data.draw(st.integers(0, 16))
            memory = np.random.default_rng(length).integers(0, 256, length + shift, dtype=np.uint8)
            piece = memory[shift:]
            if data.draw(st.booleans()):
                assert file.write(piece, offset).result() == length
                if length:
                    model.extend(b"\0" * max(0, offset + length - len(model)))
                    model[offset : offset + length] = piece.tobytes()
            else:
                there = bytes(model[offset : offset + length])
                expected = there + piece[len(there) :].tobytes()
                assert file.read(piece, offset).result() == len(there)
                assert piece.tobytes() == expected
        assert file.size == len(model)
    assert path.read_bytes() == bytes(model)
