# SPDX-License-Identifier: Apache-2.0
"""Pinned memory, copies, and GPU to disk and back, each beside what the hardware gives."""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import native
import torch
from bench_schema import Row, arguments, write


def both_ways(nbytes: int = 1 << 31, rounds: int = 5) -> float:
    """Return the GB/s of plain pinned copies both ways at once: the limit of such copies."""
    host = [torch.empty(nbytes, dtype=torch.uint8, pin_memory=True) for _ in range(2)]
    device = [torch.empty(nbytes, dtype=torch.uint8, device="cuda") for _ in range(2)]
    streams = [torch.cuda.Stream() for _ in range(2)]
    rates = []
    for _ in range(rounds + 1):
        torch.cuda.synchronize()
        start = time.perf_counter()
        with torch.cuda.stream(streams[0]):
            device[0].copy_(host[0], non_blocking=True)
        with torch.cuda.stream(streams[1]):
            host[1].copy_(device[1], non_blocking=True)
        torch.cuda.synchronize()
        rates.append(2 * nbytes / (time.perf_counter() - start) / 1e9)
    return statistics.median(rates[1:])


def copies(found: dict[str, Any], limit: float, place: str) -> Row:
    """Return the row of copies both ways at once."""
    ratio = found["both_gb_s"] / limit
    return Row(
        work=f"copies both ways at once, {found['mib']} MiB each, run with {place}",
        ours=found["both_gb_s"],
        unit="GB/s",
        limit=limit,
        limit_name="plain pinned copies on two streams",
        ratio=ratio,
        target=">= 95 % of the limit",
        met=ratio >= 0.95,
        note=f"one way: {found['h2d_gb_s']:.1f} to the GPU, {found['d2h_gb_s']:.1f} from it",
    )


def over_disk(found: dict[str, Any], place: str) -> Row:
    """Return the row of one way between GPU and disk."""
    ratio = found["over_slower_hop"]
    return Row(
        work=f"{found['work'].replace('_', ' ')}, {place}, pipelined",
        ours=found["gb_s"],
        unit="GB/s",
        limit=min(found["disk_gb_s"], found["link_gb_s"]),
        limit_name="slower hop alone",
        ratio=ratio,
        target=">= 90 % of the slower hop",
        met=ratio >= 0.9,
        note=f"disk alone {found['disk_gb_s']:.2f}, link alone {found['link_gb_s']:.1f} GB/s; "
        "interleaved rounds; O_DIRECT",
    )


def submission(found: dict[str, Any], place: str) -> Row:
    """Return the row of one way of submitting from C++."""
    cost = found["median_us"]
    return Row(
        work=f"submitting one transfer from C++, {found['device']}, {found['mode']}, "
        f"run with {place}",
        ours=cost,
        unit="us",
        target="<= 3 us, median",
        met=cost <= 3,
        note=f"90 %: {found['p90_us']:.2f} us, 99 %: {found['p99_us']:.2f} us",
    )


def pool(found: dict[str, Any]) -> Row:
    """Return the row of pinned memory made ready."""
    ratio = found["peer_over_pool"]
    return Row(
        work=f"{found['bytes'] >> 30} GiB of pinned memory ready",
        ours=found["pool_seconds"],
        unit="s",
        peer=found["peer_seconds"],
        peer_name=found["peer"],
        ratio=ratio,
        target=">= 10x faster; waste <= 4 KiB an allocation",
        met=ratio >= 10 and found["waste_bytes_per_allocation"] <= 4096,
        note=f"waste {found['waste_bytes_per_allocation']} B an allocation, mean",
    )


def main() -> None:
    """Measure on the first GPU, with the temporary folder and with memory as the disk."""
    options = arguments(__doc__)
    mib = 256 if options.quick else 2048
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        program = native.build("pool_bench", Path(folder))
        for found in native.run(program, "cuda:0", 512 if options.quick else 8192):
            rows.append(pool(found))
        program = native.build("scheduler_bench", Path(folder))
        for place in (tempfile.gettempdir(), "/dev/shm"):
            with tempfile.TemporaryDirectory(dir=place) as data:
                limit = both_ways()
                for found in native.run(program, "cuda:0", data, mib, 5):
                    if found["work"] == "copy":
                        rows.append(copies(found, limit, place))
                    elif found["work"] == "submit":
                        rows.append(submission(found, place))
                    else:
                        rows.append(over_disk(found, place))
        for found in native.run(program, "null", folder, 64, 3):
            if found["work"] == "submit":
                rows.append(submission(found, tempfile.gettempdir()))
    for row in rows:
        print(f"{row.work}: {row.ours:.3f} {row.unit}, ratio {row.ratio}", flush=True)
    write(options.json, "core: pinned memory, copies, GPU and disk", rows)


if __name__ == "__main__":
    main()
