# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import math
import time

import pytest

from datapath_core import IoError, Scheduler, io, settings
from datapath_core.testing import null_device


@pytest.fixture
def slow(folder):
    """A file whose writes take half a second."""
    with (
        io.Engine("threads", faults="write:slow@ms=500") as engine,
        engine.open(folder / "file", "w+") as file,
    ):
        yield file


def test_a_timeout_leaves_the_work_alive(slow) -> None:
    ticket = slow.write(b"abc")
    assert repr(ticket) == "<Ticket pending>"
    for timeout in (0, 0.01):
        with pytest.raises(TimeoutError, match="goes on"):
            ticket.result(timeout)
    assert not ticket.done()
    assert ticket.result(math.inf) == 3
    assert ticket.done()
    assert repr(ticket) == "<Ticket done>"
    assert ticket.result(timeout=0) == 3


def test_the_default_deadline_is_the_setting_and_the_text_names_it(slow) -> None:
    ticket = slow.write(b"abc")
    with settings.override("wait.deadline", 0.01):
        with pytest.raises(TimeoutError, match="DATAPATH_WAIT_DEADLINE"):
            ticket.result()
        with pytest.raises(TimeoutError, match=r"wait\.deadline"):
            ticket.wait(None)
    assert ticket.result() == 3


@pytest.mark.parametrize("timeout", [-1, math.nan])
def test_a_timeout_out_of_its_domain_is_refused(slow, timeout) -> None:
    ticket = slow.write(b"abc")
    with pytest.raises(ValueError, match="timeout"):
        ticket.result(timeout)
    with pytest.raises(TypeError, match="timeout"):
        ticket.result("soon")
    ticket.result()


def test_a_failed_ticket_is_done_and_raises_each_time(folder) -> None:
    with (
        io.Engine("threads", faults="write:eio") as engine,
        engine.open(folder / "file", "w+") as file,
    ):
        ticket = file.write(b"abc")
        for _ in range(3):
            with pytest.raises(IoError):
                ticket.result()
        assert ticket.done()
        assert repr(ticket) == "<Ticket failed>"
        with pytest.raises(IoError):
            ticket.wait(None)


def test_a_stream_is_ordered_after_a_disk_hop_by_waiting_for_it(slow) -> None:
    device = null_device()
    with Scheduler(device) as scheduler:
        memory = device.allocate(4)
        memoryview(memory)[:] = b"abcd"
        stream = device.create_stream()
        ticket = scheduler.transfer(slow, memory)
        with pytest.raises(TimeoutError):
            ticket.wait(stream, timeout=0.02)
        ticket.wait(stream)
        device.synchronize(stream)
        assert ticket.result() == 4
        device.destroy_stream(stream)


def test_a_stream_never_runs_on_data_that_failed(folder) -> None:
    device = null_device()
    with (
        Scheduler(device) as scheduler,
        io.Engine("threads", faults="read:eio") as engine,
        engine.open(folder / "file", "w+") as file,
    ):
        file.write(b"abcd").result()
        stream = device.create_stream()
        ticket = scheduler.transfer(device.allocate(4), file)
        with pytest.raises(IoError):
            ticket.wait(stream)
        device.destroy_stream(stream)


def test_a_deferred_wait_does_not_block_and_poisons_after_an_error(folder) -> None:
    device = null_device()
    with (
        Scheduler(device) as scheduler,
        io.Engine("threads", faults="read:slow@ms=200;read:eio") as engine,
        engine.open(folder / "file", "w+") as file,
    ):
        file.write(b"abcd").result()
        memory, stream = device.allocate(4), device.create_stream()
        memoryview(memory)[:] = b"\0" * 4
        ticket = scheduler.transfer(memory, file)
        start = time.monotonic()
        ticket.wait(stream, deferred=True)
        waited = time.monotonic() - start
        was_open = not ticket.done()
        device.synchronize(stream)
        assert bytes(memoryview(memory)) == b"\xff" * 4
        with pytest.raises(IoError):
            ticket.result()
        assert was_open or waited < 0.2
        device.destroy_stream(stream)


def test_the_stream_may_be_an_object_that_carries_a_handle(slow) -> None:
    device = null_device()
    handle = device.create_stream()

    class WithHandle:
        cuda_stream = handle

    class WithProtocol:
        def __cuda_stream__(self):
            return (0, handle)

    with Scheduler(device) as scheduler:
        memory = device.allocate(4)
        for stream in (handle, WithHandle(), WithProtocol()):
            scheduler.transfer(memory, b"abcd", streams=stream).wait(stream)
        with pytest.raises(TypeError, match="stream"):
            scheduler.transfer(memory, b"abcd").wait("x")
    device.synchronize(handle)
    device.destroy_stream(handle)
