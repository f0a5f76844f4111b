# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import errno
import os
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from datapath_core import IoError, OutOfSpaceError, UnsupportedError, io
from datapath_core.testing import faults


def pattern(nbytes: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, nbytes, dtype=np.uint8)


def _refuses(backend: str) -> bool:
    try:
        io.Engine(backend).close()
    except UnsupportedError:
        return True
    return False


# ---------------------------------------------------------------- what is refused


@pytest.mark.parametrize("mode", ["", "x", "a", "r+w", "ww"])
def test_other_modes_are_refused(engine, folder, mode) -> None:
    with pytest.raises(ValueError, match="mode"):
        engine.open(folder / "file", mode)


def test_opening_a_missing_file_carries_errno_and_name(engine, folder) -> None:
    with pytest.raises(IoError) as caught:
        engine.open(folder / "missing", "r")
    assert caught.value.errno == errno.ENOENT
    assert caught.value.filename == str(folder / "missing")
    assert isinstance(caught.value, OSError)


def test_an_offset_must_be_a_whole_number_that_is_not_negative(engine, folder) -> None:
    with engine.open(folder / "file", "w+") as file:
        data = bytearray(8)
        for call in (file.read, file.write):
            with pytest.raises(ValueError, match="offset"):
                call(data, -1)
            with pytest.raises(ValueError, match="offset"):
                call(data, 1 << 63)
            with pytest.raises(TypeError, match="offset"):
                call(data, 1.0)
            with pytest.raises(TypeError):
                call(data, "0")
        with pytest.raises(ValueError, match="offset"):
            file.write_batch([(data, 0), (data, -1)])
        assert file.size == 0, "a batch that is refused must not have started"


def test_a_batch_is_made_of_pairs(engine, folder) -> None:
    with engine.open(folder / "file", "w+") as file, pytest.raises(TypeError, match="pairs"):
        file.write_batch([bytearray(3)])


def test_reading_a_file_that_is_open_for_writing_only_is_an_error(engine, folder) -> None:
    with engine.open(folder / "file", "w") as file, pytest.raises((IoError, ValueError)):
        file.read(bytearray(1), 0).result()


def test_writing_a_file_that_is_open_for_reading_only_is_an_error(engine, folder) -> None:
    (folder / "file").write_bytes(b"abc")
    with engine.open(folder / "file", "r") as file, pytest.raises((IoError, ValueError)):
        file.write(b"x", 0).result()
    assert (folder / "file").read_bytes() == b"abc"


def test_a_closed_file_or_engine_refuses(folder) -> None:
    engine = io.Engine("threads")
    file = engine.open(folder / "file", "w+")
    file.close()
    file.close()
    with pytest.raises(ValueError, match="closed"):
        file.read(bytearray(1))
    other = engine.open(folder / "other", "w+")
    engine.close()
    engine.close()
    with pytest.raises(ValueError, match="closed"):
        engine.open(folder / "file", "r")
    with pytest.raises(ValueError, match="closed"):
        other.write(b"x")


def test_an_unknown_backend_is_refused() -> None:
    with pytest.raises(ValueError, match="aio"):
        io.Engine("aio")


def test_a_backend_that_cannot_serve_raises_when_it_is_named() -> None:
    if not _refuses("cufile"):
        pytest.skip("cufile serves here")
    with pytest.raises(UnsupportedError, match=r"^the backend 'cufile' cannot serve: .*[Cc][Uu]"):
        io.Engine("cufile")
    assert io.Engine().describe()["backend"] in ("uring", "threads")


@pytest.mark.parametrize("argument", [{"depth": 0}, {"threads": -1}, {"depth": 1 << 20}])
def test_engine_arguments_out_of_their_domain_are_refused(argument) -> None:
    with pytest.raises(ValueError, match=next(iter(argument))):
        io.Engine("threads", **argument)


# ---------------------------------------------------------------- what works


def test_modes_are_those_of_open(engine, folder) -> None:
    path = folder / "file"
    with engine.open(path, "w") as file:
        file.write(b"hello", 0).result()
    assert path.stat().st_mode & 0o777 == 0o600
    with engine.open(path, "r+") as file:
        file.write(b"J", 0).result()
    assert path.read_bytes() == b"Jello"
    with engine.open(os.fsencode(path), "r") as file:
        data = bytearray(5)
        assert file.read(data).result() == 5
        assert data == b"Jello"
        assert file.path == str(path)
    with engine.open(str(path), "w+") as file:
        assert file.size == 0


def test_zero_bytes_are_moved(engine, folder) -> None:
    with engine.open(folder / "file", "w+") as file:
        assert file.write(b"", 17).result() == 0
        assert file.read(bytearray(), 17).result() == 0
        assert file.write_batch([]).result() == 0
        assert file.size == 0


def test_reading_past_the_end_is_short_and_leaves_the_rest_alone(engine, folder) -> None:
    (folder / "file").write_bytes(b"x" * 5000)
    with engine.open(folder / "file", "r") as file:
        data = np.full(10_000, 255, dtype=np.uint8)
        assert file.read(data, 4000).result() == 1000
        assert (data[:1000] == ord("x")).all()
        assert (data[1000:] == 255).all()
        assert file.read(data, 5000).result() == 0
        assert file.read(data, 1 << 40).result() == 0


def test_truncate_cuts_and_grows_with_zeroes(engine, folder) -> None:
    with engine.open(folder / "file", "w+") as file:
        file.write(b"abcdef").result()
        file.truncate(3)
        file.truncate("8")
        file.sync()
        assert file.size == 8
    assert (folder / "file").read_bytes() == b"abc\0\0\0\0\0"


def test_a_batch_is_one_ticket_with_the_bytes_of_all(engine, folder) -> None:
    places = [(4096, 0), (7, 5000), (1, 9000)]
    parts = [(pattern(length, length), offset) for length, offset in places]
    with engine.open(folder / "file", "w+") as file:
        assert file.write_batch(parts).result() == 4104
        back = [(np.empty_like(data), offset) for data, offset in parts]
        assert file.read_batch(back).result() == 4104
        for (wrote, _), (read, _) in zip(parts, back, strict=True):
            assert (wrote == read).all()


def test_a_large_transfer_is_cut_into_pieces_and_put_together(engine, folder) -> None:
    data = pattern((5 << 20) + 123)
    with engine.open(folder / "file", "w+") as file:
        assert file.write(data, 511).result() == data.nbytes
        back = np.empty_like(data)
        assert file.read(back, 511).result() == data.nbytes
    assert (data == back).all()


def test_neighbours_written_at_the_same_time_do_not_disturb_each_other(engine, folder) -> None:
    lengths = np.random.default_rng(1).integers(1, 3000, 200)
    offsets = np.concatenate([[0], np.cumsum(lengths)[:-1]])
    parts = [pattern(int(length), i) for i, length in enumerate(lengths)]
    with engine.open(folder / "file", "w+") as file:
        tickets = [
            file.write(part, int(offset)) for part, offset in zip(parts, offsets, strict=True)
        ]
        assert sum(ticket.result() for ticket in tickets) == lengths.sum()
    assert (folder / "file").read_bytes() == np.concatenate(parts).tobytes()


def test_many_threads_share_an_engine(engine, folder) -> None:
    def work(number: int) -> bool:
        with engine.open(folder / f"file{number}", "w+") as file:
            data = pattern(70_000, number)
            for offset in (0, 1, 4096):
                file.write(data, offset).result()
                back = np.empty_like(data)
                file.read(back, offset).result()
                if not (back == data).all():
                    return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(24)))


def test_a_file_keeps_its_engine_and_a_ticket_its_buffer(folder) -> None:
    file = io.Engine("threads").open(folder / "file", "w+")
    ticket = file.write(np.full(1 << 20, 7, dtype=np.uint8), 0)
    del file
    assert ticket.result() == 1 << 20
    assert (folder / "file").read_bytes() == b"\7" * (1 << 20)


@pytest.mark.usefixtures("returns_to_baseline")
def test_handles_and_threads_come_back_without_close(folder) -> None:
    for backend in ("auto", "threads"):
        engine = io.Engine(backend)
        file = engine.open(folder / "file", "w+")
        file.write(b"abc").result()
        del engine, file


@pytest.mark.usefixtures("returns_to_baseline")
def test_handles_and_threads_come_back_after_errors(folder) -> None:
    with io.Engine("threads", faults="write:eio") as engine:
        file = engine.open(folder / "file", "w+")
        with pytest.raises(IoError):
            file.write(b"abc").result()


def test_paths_that_are_not_utf8_survive(engine, folder) -> None:
    path = os.fsencode(folder) + b"/\xff\xfe"
    with engine.open(path, "w+") as file:
        file.write(b"x").result()
        assert os.fsencode(file.path) == path


def test_the_gil_is_free_while_a_thread_waits(folder) -> None:
    with (
        io.Engine("threads", faults="write:slow@ms=300") as engine,
        engine.open(folder / "file", "w+") as file,
    ):
        ticket = file.write(b"x")
        ended = threading.Event()
        waiter = threading.Thread(target=lambda: (ticket.result(), ended.set()))
        waiter.start()
        steps = 0
        while not ended.is_set():
            steps += 1
        waiter.join()
        # With the GIL held by the waiter this thread would not have got a step in.
        assert steps > 1000


# ---------------------------------------------------------------- faults


def test_a_write_that_fails_carries_errno_name_and_offset(folder) -> None:
    with (
        io.Engine("threads", faults="write:eio") as engine,
        engine.open(folder / "file", "w+") as file,
    ):
        ticket = file.write(b"x" * 100, 4096)
        for _ in range(2):
            with pytest.raises(IoError) as caught:
                ticket.result()
            assert caught.value.errno == errno.EIO
            assert caught.value.filename == str(folder / "file")
            assert caught.value.offset == 4096
        assert ticket.done()


def test_a_full_disk_is_an_out_of_space_error(folder) -> None:
    with (
        faults("write:enospc@after=1"),
        io.Engine("threads") as engine,
        engine.open(folder / "file", "w+") as file,
    ):
        assert file.write(b"x").result() == 1
        with pytest.raises(OutOfSpaceError) as caught:
            file.write(b"y", 1).result()
        assert caught.value.errno == errno.ENOSPC
        assert engine.describe()["faults"]
    assert io.Engine("threads").describe()["faults"] == ""


@pytest.mark.parametrize(
    "plan",
    ["any:eintr@every=2", "any:short@every=2", "any:slow@ms=1,every=3", "any:reorder@window=4"],
)
def test_faults_that_work_can_survive_lose_no_byte(folder, plan) -> None:
    data = pattern(300_000)
    with io.Engine("threads", faults=plan) as engine, engine.open(folder / "file", "w+") as file:
        parts = [(data[start : start + 30_000], start) for start in range(0, data.size, 30_000)]
        assert file.write_batch(parts).result() == data.size
        back = np.empty_like(data)
        tickets = [
            file.read(back[start : start + 20_000], start) for start in range(0, data.size, 20_000)
        ]
        assert sum(ticket.result() for ticket in tickets) == data.size
        assert (back == data).all()


def test_a_plan_that_cannot_be_read_is_refused() -> None:
    with pytest.raises(ValueError, match="explode"):
        io.Engine("threads", faults="write:explode")


def test_a_file_cut_under_us_gives_a_short_count(engine, folder) -> None:
    (folder / "file").write_bytes(b"z" * 10_000)
    with engine.open(folder / "file", "r") as file:
        os.truncate(folder / "file", 100)
        data = bytearray(10_000)
        assert file.read(data, 0).result() == 100
