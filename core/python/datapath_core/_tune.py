# SPDX-License-Identifier: Apache-2.0
"""Finds the I/O settings that do best on a directory's drive, and writes the tuned file."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from datapath_core import _measure, settings
from datapath_core._measure import KIB, MIB, SampleFile
from datapath_core.cache_folder import cache_folder, write_whole

__all__ = ["Trial", "choose", "remove", "trials", "tuned_path", "write"]

DEPTHS = (32, 64, 128, 256)
THREADS = (1, 2, 4, 8)
CHUNKS = (256 * KIB, MIB, 4 * MIB)
# A setting that costs more threads or requests has to be better by more than the noise.
MARGIN = 1.03


@dataclass(frozen=True)
class Trial:
    """One choice of settings and the figure that it reached.

    Attributes
    ----------
    values : dict of str to int
        Setting -> value.
    figure : float
        More is better.
    unit : str
        Of `figure`.
    """

    values: dict[str, int]
    figure: float
    unit: str


def trials(sample: SampleFile) -> Iterator[Trial]:
    """Measure one choice after the other, cheap ones first; choose among them with :func:`choose`.

    The first group is random reads by threads and depth, the second sequential reads by chunk.
    """
    threads_here = [count for count in THREADS if count <= 2 * len(os.sched_getaffinity(0))]
    for threads in threads_here:
        for depth in DEPTHS:
            measure = partial(_measure.random_read_rate, sample, depth=depth, threads=threads)
            rate = _measure.best(measure, 2)
            yield Trial({"io.threads": threads, "io.depth": depth}, rate, "IOPS")
    for chunk in CHUNKS:
        with settings.override("io.chunk_bytes", chunk):
            rate = _measure.best(
                lambda: _measure.sequential_read_rate(sample, depth=64, threads=2), 2
            )
        yield Trial({"io.chunk_bytes": chunk}, rate, "GB/s")


def choose(tried: list[Trial]) -> dict[str, int]:
    """Return the best values of each group; of nearly equal ones the first, which costs least."""
    chosen: dict[str, int] = {}
    for unit in dict.fromkeys(trial.unit for trial in tried):
        group = [trial for trial in tried if trial.unit == unit]
        best = max(trial.figure for trial in group)
        chosen |= next(trial.values for trial in group if trial.figure * MARGIN >= best)
    return chosen


def tuned_path() -> Path:
    """Return where the tuned file stands."""
    return cache_folder() / "tuned.conf"


def write(values: dict[str, int], note: str) -> Path:
    """Write the tuned file in one step, and return its path.

    Raises
    ------
    OSError
        If the cache folder cannot be written.
    """
    path = tuned_path()
    lines = [f"# {note}", *(f"{name} = {value}" for name, value in sorted(values.items()))]
    write_whole(path, "\n".join(lines) + "\n")
    return path


def remove() -> bool:
    """Remove the tuned file; whether there was one."""
    path = tuned_path()
    if not path.exists():
        return False
    path.unlink()
    return True
