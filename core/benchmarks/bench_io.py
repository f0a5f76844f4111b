# SPDX-License-Identifier: Apache-2.0
"""Files through the engine, with O_DIRECT, beside the bare ring and the thread pool.

``DATAPATH_BENCH_DIRS`` lists the folders (separated by colons): by default the temporary folder,
and ``/dev/shm``, which stands for a drive so fast that the processor is the limit.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import native
from bench_schema import Row, arguments, write

TARGETS = {
    "random_read_4KiB": ("4 KiB random reads", ">= 95 % of the bare ring; >= 1.3x threads"),
    "sequential_read_1MiB": ("1 MiB sequential reads", ">= 95 % of the bare ring"),
    "sequential_write_1MiB": ("1 MiB sequential writes", ">= 95 % of the bare ring"),
}


def main() -> None:
    """Measure each folder in interleaved rounds of limit, uring and threads."""
    options = arguments(__doc__)
    default = f"{tempfile.gettempdir()}:/dev/shm"
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        program = native.build("io_bench", Path(folder))
        for place in os.environ.get("DATAPATH_BENCH_DIRS", default).split(":"):
            if Path(place).is_dir():
                rows += measure(program, Path(place), quick=options.quick)
    write(options.json, "core: files with O_DIRECT", rows)


def measure(program: Path, place: Path, *, quick: bool) -> list[Row]:
    """Return the rows of one folder; a request of 1 MiB is a ticket of its own."""
    wanted = 256 if quick else 4096
    mib = min(wanted, shutil.disk_usage(place).free // (4 << 20))
    seconds, rounds = (0.3, 1) if quick else (1, 3)
    rows = []
    with tempfile.TemporaryDirectory(dir=place) as folder:
        file = Path(folder) / "data"
        for threads in (1, 4):
            for work, (name, target) in TARGETS.items():
                depth, batch = (128, 32) if work == "random_read_4KiB" else (16, 1)
                for found in native.run(
                    program, file, mib, threads, seconds, rounds, depth, batch, work
                ):
                    over_ring, over_threads = found["uring_over_limit"], found["uring_over_threads"]
                    met = over_ring >= 0.95
                    if work == "random_read_4KiB":
                        met = met and over_threads >= 1.3
                    rows.append(
                        Row(
                            work=f"{name}, {place}, {threads} threads, depth {depth} each",
                            ours=found["uring_gb_s"],
                            unit="GB/s",
                            peer=found["threads_gb_s"],
                            peer_name="threads backend",
                            limit=found["limit_gb_s"],
                            limit_name="bare io_uring",
                            ratio=over_ring,
                            target=target,
                            met=met,
                            note=f"O_DIRECT {'used' if found['direct'] else 'refused'}; file of "
                            f"{mib} MiB; {over_threads:.2f}x threads",
                        )
                    )
                    print(f"{rows[-1].work}: {rows[-1].ratio:.3f} of the ring", flush=True)
    return rows


if __name__ == "__main__":
    main()
