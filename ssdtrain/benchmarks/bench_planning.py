# SPDX-License-Identifier: Apache-2.0
"""Time to make a plan for a step of a thousand groups, on one core."""

from __future__ import annotations

import dataclasses
import statistics
import sys
import time
from pathlib import Path

from bench_schema import Row, arguments, write

# The invented steps are those of the tests.
sys.path.append(str(Path(__file__).resolve().parent.parent / "tests"))

from plan_steps import LINK, gpt

from ssdtrain.optimise import optimise
from ssdtrain.plan import Limits

TARGET_SECONDS = 5.0
GIB = 1 << 30
LAYERS = 125
CASES = {
    "lowest peak at 2 %": Limits(max_slowdown=0.02, host_bytes=2048 * GIB),
    "lowest peak at 2 %, nothing computed again": Limits(
        max_slowdown=0.02, host_bytes=2048 * GIB, allow_recompute=False
    ),
    "fastest step below 100 GiB": Limits(max_memory=100 * GIB, host_bytes=2048 * GIB),
    "lowest peak at 2 %, 64 GiB of host memory, then disk": Limits(
        max_slowdown=0.02, host_bytes=64 * GIB, disk_bytes=2048 * GIB
    ),
}


def main() -> None:
    """Plan for GPT blocks of hidden size 8192, eight groups each."""
    options = arguments(__doc__)
    timeline = gpt(8192, 12 if options.quick else LAYERS, 0.127 * LAYERS)
    rates = dataclasses.replace(LINK, write=10e9, read=10e9)
    rows = []
    for name, limits in CASES.items():
        walls, cpus = [], []
        for _ in range(1 if options.quick else 3):
            wall, cpu = time.perf_counter(), time.process_time()
            plan = optimise(timeline, rates, limits)
            walls.append(time.perf_counter() - wall)
            cpus.append(time.process_time() - cpu)
        prediction = plan.prediction
        assert prediction is not None
        seconds = statistics.median(walls)
        rows.append(
            Row(
                work=f"plan for {len(timeline.groups)} groups: {name}",
                ours=seconds,
                unit="s",
                ratio=seconds / TARGET_SECONDS,
                target="<= 5 s for 1,000 groups",
                met=seconds <= TARGET_SECONDS,
                note=f"median of {len(walls)}, {statistics.median(cpus):.2f} s of processor time;"
                f" predicted peak {prediction.peak_bytes / GIB:.1f} GiB of"
                f" {prediction.keep_peak_bytes / GIB:.1f}, step time"
                f" {prediction.seconds / prediction.keep_seconds - 1:+.2%}",
            )
        )
        print(f"{rows[-1].work}: {seconds:.2f} s; {rows[-1].note}", flush=True)
    write(options.json, "ssdtrain: planning", rows)


if __name__ == "__main__":
    main()
