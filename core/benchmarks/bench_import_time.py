# SPDX-License-Identifier: Apache-2.0
"""What ``import datapath_core`` adds to ``import numpy``, in fresh interpreters."""

from __future__ import annotations

import statistics
import subprocess
import sys

from bench_schema import Row, arguments, write

TARGET_MS = 50.0
TEXT = """
import time
import numpy
start = time.perf_counter()
import datapath_core
print((time.perf_counter() - start) * 1e3)
maps = open("/proc/self/maps").read()
assert "libcuda" not in maps, "the driver was loaded"
"""


def main() -> None:
    """Measure in new processes, whose files the page cache holds."""
    options = arguments(__doc__)
    times = []
    for _ in range(5 if options.quick else 31):
        done = subprocess.run(
            [sys.executable, "-c", TEXT], check=True, capture_output=True, text=True
        )
        times.append(float(done.stdout))
    median = statistics.median(times)
    row = Row(
        work="import datapath_core after numpy, files in the page cache",
        ours=median,
        unit="ms",
        ratio=median / TARGET_MS,
        target="<= 50 ms",
        met=median <= TARGET_MS,
        note=f"median of {len(times)} processes, fastest {min(times):.1f} ms; no driver is loaded",
    )
    write(options.json, "Import time", [row])


if __name__ == "__main__":
    main()
