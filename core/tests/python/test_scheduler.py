# SPDX-License-Identifier: Apache-2.0
"""The scheduler's logic, on the null device."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from datapath_core import IoError, PinnedPool, Scheduler, UnsupportedError, io
from datapath_core.testing import null_device

KIB, MIB = 1 << 10, 1 << 20


def pattern(nbytes: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, nbytes, dtype=np.uint8)


@pytest.fixture
def device():
    opened = null_device()
    yield opened
    opened.null_set_copy_delay(0)


@pytest.fixture
def scheduler(device):
    with Scheduler(device, chunk_bytes="64KiB", chunks=3) as made:
        yield made


# ---------------------------------------------------------------- what is refused


def test_a_device_that_is_none_is_refused() -> None:
    with pytest.raises((ValueError, UnsupportedError), match="tpu"):
        Scheduler("tpu")
    with pytest.raises((UnsupportedError, ValueError)):
        Scheduler("cuda:99")


@pytest.mark.parametrize("name", ["cpu", "cpu:0", "null"])
def test_the_cpu_is_the_null_device(name) -> None:
    with Scheduler(name) as made:
        assert not made.device.is_cuda


def test_sizes_must_agree(scheduler, device, folder) -> None:
    memory, data = device.allocate(100), np.zeros(50, dtype=np.uint8)
    with pytest.raises(ValueError, match="100 bytes and src 50"):
        scheduler.transfer(memory, data)
    with pytest.raises(ValueError, match="nbytes is 60, but src has 50"):
        scheduler.transfer(memory, data, 60)
    with pytest.raises(ValueError, match="nbytes"):
        scheduler.transfer(memory, data, -1)
    with (
        io.Engine() as engine,
        engine.open(folder / "file", "w+") as file,
        pytest.raises(ValueError, match="give nbytes"),
    ):
        scheduler.transfer(file, (file, 100))
    with io.Volume(folder, "1MiB", reserve_bytes=0) as volume:
        extent = volume.allocate(40)
        with pytest.raises(ValueError, match="extent only 40"):
            scheduler.transfer(extent, data)
        with pytest.raises(ValueError, match="past the extent"):
            scheduler.transfer((extent, 41), data)


def test_ends_and_options_of_the_wrong_kind_are_refused(scheduler, device) -> None:
    memory = device.allocate(4)
    for end in (None, 3, "x", (3, 4)):
        with pytest.raises(TypeError):
            scheduler.transfer(memory, end)
    with pytest.raises((ValueError, BufferError), match="writable"):
        scheduler.transfer(b"abcd", memory)
    with pytest.raises(TypeError, match="tickets"):
        scheduler.transfer(memory, b"abcd", after=[3])
    with pytest.raises(TypeError, match="stream"):
        scheduler.transfer(memory, b"abcd", streams=["x"])
    with pytest.raises(ValueError, match="deadline"):
        scheduler.transfer(memory, b"abcd", deadline=-1)
    with pytest.raises(TypeError, match="priority must be an integer, not float"):
        scheduler.transfer(memory, b"abcd", priority=1.5)
    for priority in (1 << 31, -(1 << 31) - 1, 1 << 70):
        with pytest.raises(ValueError, match=rf"priority must be in .*, not {priority}"):
            scheduler.transfer(memory, b"abcd", priority=priority)
    for priority in ((1 << 31) - 1, -(1 << 31), np.int16(3), True):
        assert scheduler.transfer(memory, b"abcd", priority=priority).result() == 4


def test_a_capturing_stream_is_refused(scheduler, device) -> None:
    stream = device.create_stream()
    device.null_capture(stream, True)
    try:
        assert device.is_capturing(stream)
        with pytest.raises(UnsupportedError, match=r"captur|graph"):
            scheduler.transfer(device.allocate(4), b"abcd", streams=stream)
    finally:
        device.null_capture(stream, False)
        device.destroy_stream(stream)


def test_a_stream_of_another_device_is_refused(scheduler, device) -> None:
    class Stream:
        cuda_stream, device_index = 0, 1

    memory = device.allocate(4)
    for streams in (Stream(), [Stream()]):
        with pytest.raises(ValueError, match=r"cuda:1.*null"):
            scheduler.transfer(memory, b"abcd", streams=streams)


def test_a_closed_scheduler_refuses(device) -> None:
    scheduler = Scheduler(device)
    scheduler.close()
    scheduler.close()
    with pytest.raises(ValueError, match="closed"):
        scheduler.transfer(device.allocate(4), b"abcd")


def test_a_lane_must_exist_and_torch_streams_need_cuda(scheduler) -> None:
    with pytest.raises(ValueError, match="h2d, d2h"):
        scheduler.stream("sideways")
    with pytest.raises(UnsupportedError, match="worker threads"):
        scheduler.torch_stream("h2d")
    assert isinstance(scheduler.stream("h2d"), int)


# ---------------------------------------------------------------- what works


@pytest.mark.parametrize("nbytes", [0, 1, 4095, 64 * KIB, 64 * KIB + 1, 3 * MIB + 17])
def test_bytes_go_to_the_device_and_back(scheduler, device, nbytes) -> None:
    data, memory, back = pattern(nbytes), device.allocate(nbytes), np.zeros(nbytes, dtype=np.uint8)
    up = scheduler.transfer(memory, data)
    down = scheduler.transfer(back, memory, after=up)
    assert down.result() == nbytes
    assert up.done()
    assert (back == data).all()


def test_pinned_and_ordinary_memory_are_ends(scheduler, device) -> None:
    with PinnedPool("4MiB", device=device) as pool:
        pinned = pool.allocate(MIB)
        data, memory = pattern(MIB), device.allocate(MIB)
        scheduler.transfer(pinned, data).result()
        assert bytes(pinned) == data.tobytes()
        scheduler.transfer(memory, pinned).result()
        assert bytes(memoryview(memory)) == data.tobytes()


@pytest.mark.parametrize("nbytes", [0, 1, 64 * KIB, MIB + 333])
def test_disk_and_device_are_ends_at_any_offset(scheduler, device, folder, nbytes) -> None:
    data, memory = pattern(nbytes), device.allocate(nbytes)
    memoryview(memory)[:] = data.tobytes()
    with io.Engine() as engine, engine.open(folder / "file", "w+") as file:
        assert scheduler.transfer((file, 77), memory).result() == nbytes
        back = device.allocate(nbytes)
        assert scheduler.transfer(back, (file, 77)).result() == nbytes
        assert bytes(memoryview(back)) == data.tobytes()
    with io.Volume(folder, "8MiB", reserve_bytes=0) as volume:
        extent = volume.allocate(nbytes)
        assert scheduler.transfer(extent, memory).result() == nbytes
        back = device.allocate(nbytes)
        assert scheduler.transfer(back, extent).result() == nbytes
        assert bytes(memoryview(back)) == data.tobytes()


def test_a_part_is_moved_where_nbytes_says_so(scheduler, device) -> None:
    memory = device.allocate(100)
    memoryview(memory)[:] = b"\1" * 100
    assert scheduler.transfer(memory, b"\2" * 60, "50").result() == 50
    assert bytes(memoryview(memory)) == b"\2" * 50 + b"\1" * 50


def test_a_transfer_starts_after_the_tickets_and_streams_that_it_is_given(
    scheduler, device
) -> None:
    device.null_set_copy_delay(0.05)
    memory, back = device.allocate(8), bytearray(8)
    first = scheduler.transfer(memory, b"AAAAAAAA")
    second = scheduler.transfer(memory, b"BBBBBBBB", after=[first])
    third = scheduler.transfer(back, memory, after=(ticket for ticket in [first, second]))
    third.result()
    assert back == b"BBBBBBBB"
    stream = device.create_stream()
    fourth = scheduler.transfer(memory, b"CCCCCCCC")
    fourth.wait(stream)
    fifth = scheduler.transfer(back, memory, streams=[stream])
    fifth.result()
    assert back == b"CCCCCCCC"
    device.synchronize(stream)
    device.destroy_stream(stream)


def test_a_transfer_after_one_that_failed_fails_with_its_error(scheduler, device, folder) -> None:
    with (
        io.Engine("threads", faults="read:eio") as engine,
        engine.open(folder / "file", "w+") as file,
    ):
        file.write(b"12345678").result()
        memory = device.allocate(8)
        first = scheduler.transfer(memory, file)
        second = scheduler.transfer(bytearray(8), memory, after=first)
        for ticket in (first, second):
            with pytest.raises(IoError):
                ticket.result()


def test_statistics_count_what_moved(scheduler, device) -> None:
    memory = device.allocate(MIB)
    for _ in range(3):
        scheduler.transfer(memory, pattern(MIB)).result()
    stats = scheduler.stats()
    assert set(stats) == {"h2d", "d2h", "read", "write", "kernel"}
    assert stats["h2d"]["bytes"] == 3 * MIB
    assert stats["h2d"]["transfers"] == 3
    assert stats["h2d"]["queued"] == stats["h2d"]["inflight_bytes"] == 0
    assert scheduler.describe()


@pytest.mark.usefixtures("returns_to_baseline")
def test_threads_come_back(device) -> None:
    scheduler = Scheduler("cpu")
    scheduler.transfer(device.allocate(100), bytearray(100)).result()
    del scheduler


@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_a_shuffled_chain_of_transfers_equals_a_model(data) -> None:
    device = null_device()
    size = 1000
    count = data.draw(st.integers(2, 5))
    with Scheduler(device, chunk_bytes="4KiB", chunks=2) as scheduler:
        makes = [device.allocate, bytearray]
        places = [makes[number % 2](size) for number in range(count)]
        model = [bytearray(size) for _ in range(count)]
        for number, place in enumerate(places):
            memoryview(place)[:] = bytes([number + 1]) * size
            model[number][:] = bytes([number + 1]) * size
        last = ()
        for _ in range(data.draw(st.integers(1, 12))):
            to, come = data.draw(st.permutations(range(count)))[:2]
            nbytes = data.draw(st.integers(0, size))
            last = scheduler.transfer(
                places[to], places[come], nbytes, after=last, priority=data.draw(st.integers(-2, 2))
            )
            model[to][:nbytes] = model[come][:nbytes]
        last.result()
        for place, expected in zip(places, model, strict=True):
            assert bytes(memoryview(place)) == expected
