# SPDX-License-Identifier: Apache-2.0
"""Small measurements of this machine for ``datapath bench`` and ``datapath tune``.

Each has its yardstick in the same run: what the system gives without this library. The benchmarks
of the repository measure more, and more carefully.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import random
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from datapath_core import io, settings
from datapath_core.errors import OutOfSpaceError, UnsupportedError
from datapath_core.memory import PinnedPool
from datapath_core.streams import Scheduler

__all__ = ["Measurement", "SampleFile", "copy_rates", "disk_rates", "memory_rate", "sample_file"]

KIB, MIB = 1 << 10, 1 << 20
LEAST = 4 * MIB


@dataclass(frozen=True)
class Measurement:
    """One figure beside its yardstick.

    Attributes
    ----------
    work : str
        What was done.
    ours, limit : float
        Figures in `unit`; more is better.
    unit : str
        ``"GB/s"`` (decimal) or ``"IOPS"``.
    limit_name : str
        What the limit was measured with.
    """

    work: str
    ours: float
    limit: float
    unit: str
    limit_name: str

    @property
    def ratio(self) -> float:
        """Ours over the limit."""
        return self.ours / self.limit


@dataclass(frozen=True)
class SampleFile:
    """A file of random bytes for reading, and whether the page cache can be left out."""

    path: Path
    nbytes: int
    direct: bool


@contextlib.contextmanager
def sample_file(directory: Path, nbytes: int) -> Iterator[SampleFile]:
    """Make a file of random bytes in a directory for the time of a ``with`` block.

    It has no name, so that whatever ends the process, nothing is left.

    Raises
    ------
    ValueError
        For fewer than 4 MiB, which measure nothing.
    OutOfSpaceError
        If there is no room for it beside the bytes that volumes leave alone too.
    OSError
        If the file cannot be made.
    """
    if nbytes < LEAST:
        raise ValueError(f"a sample of {nbytes} bytes measures nothing: 4MiB is the least")
    free, reserve = shutil.disk_usage(directory).free, int(settings.get("volume.reserve_bytes"))
    if nbytes > free - reserve:
        raise OutOfSpaceError(
            f"{directory} has no room for a sample of {nbytes} bytes: {free} are free, of which "
            f"{reserve} are left alone (volume.reserve_bytes)",
            str(directory),
        )
    with tempfile.TemporaryFile(dir=directory) as file:
        noise = random.Random(0).randbytes(4 * MIB)
        for _ in range(nbytes // len(noise)):
            file.write(noise)
        file.flush()
        os.fsync(file.fileno())
        path = Path(f"/proc/self/fd/{file.fileno()}")
        yield SampleFile(path, nbytes // len(noise) * len(noise), _direct_works(path))


def best(work: Callable[[], float], rounds: int = 3) -> float:
    """Return the best figure of a few rounds: the one that was disturbed the least."""
    return max(work() for _ in range(rounds))


def random_read_rate(
    sample: SampleFile, backend: str | None = None, *, depth: int, threads: int
) -> float:
    """Return the 4 KiB random reads a second that an engine reaches."""
    count = min(20_000, sample.nbytes // (4 * KIB))
    offsets = _random_offsets(sample, count)
    memory = mmap.mmap(-1, 4 * KIB * 256)
    slots = [memoryview(memory)[4 * KIB * slot : 4 * KIB * (slot + 1)] for slot in range(256)]
    pairs = [(slots[number % 256], offset) for number, offset in enumerate(offsets)]
    with (
        io.Engine(backend, depth=depth, threads=threads) as engine,
        engine.open(sample.path) as file,
    ):
        start = time.perf_counter()
        file.read_batch(pairs).result()
        return count / (time.perf_counter() - start)


def sequential_read_rate(
    sample: SampleFile, backend: str | None = None, *, depth: int, threads: int
) -> float:
    """Return the GB/s at which an engine reads the sample in requests of 16 MiB."""
    step = 16 * MIB
    with (
        mmap.mmap(-1, sample.nbytes) as memory,
        memoryview(memory) as view,
        io.Engine(backend, depth=depth, threads=threads) as engine,
        engine.open(sample.path) as file,
    ):
        pairs = [(view[at : at + step], at) for at in range(0, sample.nbytes, step)]
        start = time.perf_counter()
        moved = file.read_batch(pairs).result()
        rate = moved / (time.perf_counter() - start) / 1e9
        for part, _ in pairs:
            part.release()
        return rate


def disk_rates(sample: SampleFile, *, depth: int, threads: int) -> list[Measurement]:
    """Measure random and sequential reads beside ``os.preadv`` on as many threads."""
    cache = "O_DIRECT" if sample.direct else "page cache"
    return [
        Measurement(
            f"4 KiB random reads, {cache}",
            best(lambda: random_read_rate(sample, depth=depth, threads=threads)),
            best(lambda: _plain_random_rate(sample, threads)),
            "IOPS",
            f"os.preadv on {threads} threads",
        ),
        Measurement(
            f"sequential reads, {cache}",
            best(lambda: sequential_read_rate(sample, depth=depth, threads=threads)),
            best(lambda: _plain_sequential_rate(sample, threads)),
            "GB/s",
            f"os.preadv of 1 MiB on {threads} threads",
        ),
    ]


def memory_rate(nbytes: int) -> Measurement:
    """Measure how fast a pool gets memory ready, beside one thread that touches it."""

    def ours() -> float:
        with PinnedPool(2 * nbytes) as pool:
            start = time.perf_counter()
            pool.reserve(nbytes)
            return nbytes / (time.perf_counter() - start) / 1e9

    def touched() -> float:
        start = time.perf_counter()
        with mmap.mmap(-1, nbytes) as memory:
            for page in range(0, nbytes, mmap.PAGESIZE):
                memory[page] = 0
            return nbytes / (time.perf_counter() - start) / 1e9

    return Measurement(
        "memory of a pool made ready", best(ours), best(touched, 1), "GB/s", "one thread's touching"
    )


def copy_rates(nbytes: int) -> list[Measurement]:
    """Measure copies to the device and back, beside plain copies in host memory.

    The yardstick is the host's own copying; what the bus gives is measured by the repository's
    benchmarks, which need torch.
    """
    with Scheduler() as scheduler, PinnedPool(2 * nbytes, device=scheduler.device) as pool:
        host, device = pool.allocate(nbytes), scheduler.device.allocate(nbytes)
        target = bytearray(nbytes)

        def timed(work: Callable[[], object]) -> float:
            start = time.perf_counter()
            work()
            return nbytes / (time.perf_counter() - start) / 1e9

        def plain() -> None:
            memoryview(target)[:] = memoryview(host)

        def moved(to: object, come: object) -> float:
            return timed(lambda: scheduler.transfer(to, come).result())

        limit = best(lambda: timed(plain))
        name = scheduler.device.name
        return [
            Measurement(f"{label} ({name})", best(work), limit, "GB/s", "a copy in host memory")
            for label, work in (
                ("host to device", partial(moved, device, host)),
                ("device to host", partial(moved, host, device)),
            )
        ]


def _direct_works(path: Path) -> bool:
    try:
        io.Engine(direct=True).open(path).close()
    except (UnsupportedError, OSError):
        return False
    return True


def _random_offsets(sample: SampleFile, count: int) -> list[int]:
    pages = sample.nbytes // (4 * KIB)
    generator = random.Random(1)
    return [generator.randrange(pages) * 4 * KIB for _ in range(count)]


def _open_plain(sample: SampleFile) -> int:
    return os.open(sample.path, os.O_RDONLY | (os.O_DIRECT if sample.direct else 0))


def _plain_random_rate(sample: SampleFile, threads: int) -> float:
    count = min(10_000, sample.nbytes // (4 * KIB))
    offsets = _random_offsets(sample, count)
    descriptor = _open_plain(sample)

    def work(mine: list[int]) -> None:
        with mmap.mmap(-1, 4 * KIB) as memory:
            for offset in mine:
                os.preadv(descriptor, [memory], offset)

    try:
        return count / _on_threads(work, [offsets[n::threads] for n in range(threads)])
    finally:
        os.close(descriptor)


def _plain_sequential_rate(sample: SampleFile, threads: int) -> float:
    descriptor = _open_plain(sample)

    def work(mine: list[int]) -> None:
        with mmap.mmap(-1, MIB) as memory:
            for offset in mine:
                os.preadv(descriptor, [memory], offset)

    offsets = list(range(0, sample.nbytes, MIB))
    try:
        seconds = _on_threads(work, [offsets[n::threads] for n in range(threads)])
        return sample.nbytes / seconds / 1e9
    finally:
        os.close(descriptor)


def _on_threads(work: Callable[[list[int]], None], shares: list[list[int]]) -> float:
    with ThreadPoolExecutor(len(shares)) as pool:
        start = time.perf_counter()
        list(pool.map(work, shares))
        return time.perf_counter() - start
