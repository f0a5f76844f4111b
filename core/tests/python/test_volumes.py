# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import errno
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    rule,
)

from datapath_core import IoError, OutOfSpaceError, io
from datapath_core.testing import faults

KIB, MIB = 1 << 10, 1 << 20


def pattern(nbytes: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, nbytes, dtype=np.uint8)


def volume(dirs, capacity=64 * MIB, **options) -> io.Volume:
    options.setdefault("segment_bytes", MIB)
    options.setdefault("stripe_bytes", 64 * KIB)
    options.setdefault("reserve_bytes", 0)
    return io.Volume(dirs, capacity, **options)


# ---------------------------------------------------------------- what is refused


def test_a_missing_directory_is_an_io_error_that_names_it(folder) -> None:
    with pytest.raises(IoError, match="missing") as caught:
        volume(folder / "missing")
    assert caught.value.errno == errno.ENOENT


def test_no_directory_and_no_capacity_are_refused(folder) -> None:
    with pytest.raises(ValueError, match="director"):
        volume([])
    for capacity in (-1, "lots", 0):
        with pytest.raises(ValueError, match=r"capacity|bytes"):
            volume(folder, capacity)
    with pytest.raises(TypeError):
        volume(3)


def test_a_full_volume_says_so(folder) -> None:
    with volume(folder, MIB) as space:
        held = space.allocate(MIB // 2)
        with pytest.raises(OutOfSpaceError, match="volume") as caught:
            space.allocate(MIB)
        assert caught.value.errno == errno.ENOSPC
        held.free()
        space.allocate(MIB // 2).free()


def test_a_drive_without_room_says_so(folder) -> None:
    with (
        volume(folder, "1PiB", reserve_bytes="8EiB") as space,
        pytest.raises(OutOfSpaceError, match=r"drive|disk|reserve"),
    ):
        space.allocate(1)


def test_requests_past_an_extents_end_are_refused(folder) -> None:
    with volume(folder) as space:
        extent = space.allocate(1000)
        with pytest.raises(ValueError, match=r"end|extent"):
            extent.write(bytearray(1001))
        with pytest.raises(ValueError, match=r"end|extent"):
            extent.read(bytearray(10), 991)
        with pytest.raises(ValueError, match="offset"):
            extent.read(bytearray(10), -1)


def test_a_freed_extent_refuses_and_may_be_freed_again(folder) -> None:
    with volume(folder) as space:
        extent = space.allocate(1000)
        extent.free()
        extent.free()
        with pytest.raises(ValueError, match=r"free|closed"):
            extent.read(bytearray(10))


def test_a_closed_volume_refuses(folder) -> None:
    space = volume(folder)
    extent = space.allocate(10)
    space.close()
    space.close()
    with pytest.raises(ValueError, match="closed"):
        space.allocate(10)
    with pytest.raises(ValueError, match=r"closed|free"):
        extent.write(bytearray(10))


def test_an_error_of_the_drive_is_the_tickets(folder) -> None:
    with faults("write:eio"), volume(folder) as space:
        extent = space.allocate(5000)
        with pytest.raises(IoError) as caught:
            extent.write(bytearray(5000)).result()
        assert caught.value.errno == errno.EIO


# ---------------------------------------------------------------- what works


def test_directories_are_given_alone_or_in_a_list_as_text_or_path(folder) -> None:
    for dirs in (folder, str(folder), [folder], (str(folder), folder)):
        with volume(dirs, "8MiB") as space:
            assert space.stats()["capacity"] == 8 * MIB


def test_extents_come_back_at_every_size(folder) -> None:
    (folder / "a").mkdir()
    (folder / "b").mkdir()
    with volume([folder / "a", folder / "b"]) as space:
        extents = []
        for number, size in enumerate([0, 1, 511, 4095, 4096, 4097, 64 * KIB, 300_001, 3 * MIB]):
            extent = space.allocate(size)
            assert extent.nbytes == len(extent) == size
            data = pattern(size, number)
            assert extent.write(data).result() == size
            extents.append((extent, data))
        for extent, data in extents:
            back = np.zeros_like(data)
            assert extent.read(back).result() == data.nbytes
            assert (back == data).all()
            if data.nbytes > 10:
                part = bytearray(5)
                assert extent.read(part, 3).result() == 5
                assert part == data[3:8].tobytes()
        assert space.stats()["drives"] == 2
        assert space.describe()


def test_a_partial_write_changes_only_its_bytes(folder) -> None:
    with volume(folder) as space:
        extent = space.allocate(20_000)
        data = pattern(20_000, 0)
        extent.write(data).result()
        extent.write_batch([(b"AAA", 4095), (b"B", 19_999)]).result()
        data[4095:4098] = ord("A")
        data[19_999] = ord("B")
        back = np.zeros_like(data)
        extent.read_batch([(back[:7000], 0), (back[7000:], 7000)]).result()
        assert (back == data).all()


def test_files_have_no_name_where_that_is_asked_for_and_go_with_close_where_not(folder) -> None:
    with volume(folder) as space:
        space.allocate(10)
        assert list(folder.iterdir()) == []
    with volume(folder, unlink=False) as space:
        space.allocate(10)
        assert list(folder.iterdir()) != []
    assert list(folder.iterdir()) == []


def test_freed_bytes_are_used_again_and_statistics_are_exact(folder) -> None:
    with volume(folder, 2 * MIB) as space:
        for _ in range(20):
            extents = [space.allocate(200_000) for _ in range(8)]
            stats = space.stats()
            assert stats["extents"] == 8
            assert stats["requested"] == 1_600_000
            assert stats["requested"] <= stats["allocated"] <= stats["requested"] * 1.05
            for extent in extents:
                extent.free()
        assert space.stats()["extents"] == 0
        assert space.stats()["allocated"] == 0


def test_an_extent_goes_with_its_last_reference_and_with_its_context(folder) -> None:
    with volume(folder) as space:
        extent = space.allocate(10)
        assert space.stats()["extents"] == 1
        del extent
        assert space.stats()["extents"] == 0
        with space.allocate(10):
            assert space.stats()["extents"] == 1
        assert space.stats()["extents"] == 0


def test_an_extent_that_is_let_go_ends_its_io_first(folder) -> None:
    with faults("write:slow@ms=50"), volume(folder, 8 * MIB) as space:
        tickets = []
        for number in range(6):
            extent = space.allocate(MIB)
            tickets.append(extent.write(pattern(MIB, number)))
            del extent
        assert sum(ticket.result() for ticket in tickets) == 6 * MIB


def test_two_volumes_share_a_directory_and_an_engine(folder) -> None:
    with (
        io.Engine() as engine,
        volume(folder, engine=engine) as a,
        volume(folder, engine=engine) as b,
    ):
        x, y = a.allocate(10_000), b.allocate(10_000)
        x.write(pattern(10_000, 1)).result()
        y.write(pattern(10_000, 2)).result()
        back = np.zeros(10_000, dtype=np.uint8)
        x.read(back).result()
        assert (back == pattern(10_000, 1)).all()


@pytest.mark.usefixtures("returns_to_baseline")
def test_handles_and_threads_come_back(folder) -> None:
    space = volume(folder)
    extent = space.allocate(100_000)
    extent.write(pattern(100_000, 0)).result()
    del space, extent
    with volume(folder) as space:
        space.allocate(10)


# ---------------------------------------------------------------- in random order


class Extents(RuleBasedStateMachine):
    """Allocate, write, read and free in any order: no byte of one extent lies in another."""

    live = Bundle("live")
    folder: Path

    @initialize(drives=st.integers(1, 3), seed=st.integers(0, 1000))
    def start(self, drives: int, seed: int) -> None:
        import tempfile

        self.place = tempfile.TemporaryDirectory()
        dirs = [Path(self.place.name) / str(number) for number in range(drives)]
        for path in dirs:
            path.mkdir()
        self.space = volume(dirs, 4 * MIB, stripe_bytes=8 * KIB, segment_bytes=256 * KIB)
        self.contents: dict[int, np.ndarray] = {}
        self.seed = seed

    def noise(self, nbytes: int) -> np.ndarray:
        self.seed += 1
        return pattern(nbytes, self.seed)

    @rule(
        target=live,
        nbytes=st.one_of(st.integers(0, 5000), st.integers(0, 400_000), st.just(8 * KIB)),
    )
    def allocate(self, nbytes: int):
        try:
            extent = self.space.allocate(nbytes)
        except OutOfSpaceError:
            used = sum(data.nbytes for data in self.contents.values())
            assert used + nbytes > 3 * MIB, "the volume called itself full while it was not"
            return None
        data = self.noise(nbytes)
        extent.write(data).result()
        self.contents[id(extent)] = data
        return extent

    @rule(extent=live, start=st.integers(0, 5000), length=st.integers(0, 70_000))
    def write(self, extent, start: int, length: int) -> None:
        if extent is None or id(extent) not in self.contents:
            return
        data = self.contents[id(extent)]
        part = self.noise(len(data[start : start + length]))
        if part.nbytes == 0:
            return
        extent.write(part, start).result()
        data[start : start + part.nbytes] = part

    @rule(extent=consumes(live))
    def free(self, extent) -> None:
        if extent is not None:
            del self.contents[id(extent)]
            extent.free()

    @rule(extent=live)
    def read(self, extent) -> None:
        if extent is None:
            return
        data = self.contents[id(extent)]
        back = np.zeros_like(data)
        assert extent.read(back).result() == data.nbytes
        assert (back == data).all()

    @invariant()
    def counts(self) -> None:
        if hasattr(self, "space"):
            stats = self.space.stats()
            assert stats["extents"] == len(self.contents)
            assert stats["requested"] == sum(data.nbytes for data in self.contents.values())

    def teardown(self) -> None:
        if hasattr(self, "space"):
            self.space.close()
            self.place.cleanup()


TestExtents = Extents.TestCase
TestExtents.settings = settings(
    max_examples=25,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
