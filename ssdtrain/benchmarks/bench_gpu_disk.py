# SPDX-License-Identifier: Apache-2.0
"""The disk tier alone under GPT blocks in bf16: how much of the drive plans use, at which price."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from typing import Any

from bench_schema import Row, arguments
from beside_keep import against, mean, offloading, prediction
from drive_use import Watch, measure_drive, median_bytes
from sections import Results
from stacks import Stack
from strategies import DEVICE, Strategy, offloader


def over_disk(results: Results, folder: str, shape: tuple[int, int, int, int]) -> None:
    """The disk alone, nothing computed again: all of the drive, no slower, no higher a peak.

    Micro-batches of one sample, all forward and then all backward, as the first stage of a pipeline
    has them: where the GPU makes 90 GB/s of activations and the drive takes 3, groups of a whole
    batch are as large as all that a drive takes in a forward pass.
    """
    hidden, layers, batch, tokens = shape
    work = Stack(hidden, layers, batch, tokens, micro_batches=batch)
    staging = 512 << 20 if DEVICE.type == "cuda" else 4 << 20
    watch = Watch(lambda: work.forward_seconds)
    before = work.run(Strategy("keep"))
    with tempfile.TemporaryDirectory(dir=folder) as spill:
        on_disk: list[int] = []

        def look(off: Any, step: Callable[[], object]) -> None:
            watch(off, step)
            if off.plan is not None:
                on_disk.extend(g.nbytes for g in off.plan.groups if g.where.value == "disk")

        name = f"disk tier alone ({folder})"
        arguments = offloading(spill=spill, ssd="32GiB", max_slowdown=0.01, backlog=staging, host=0)
        ours = work.run(offloader(name, None, watch=look, **arguments))
        keep = mean(before, work.run(Strategy("keep")))
        nbytes = median_bytes(on_disk) if on_disk else 1 << 20
        drive = measure_drive(spill, nbytes, max(staging // nbytes, 1))
    use = watch.median(drive)
    writing, reading = use.shares(drive)
    share = max(writing, reading)
    by_write = writing >= reading
    low, high = watch.spread(drive)
    results.add(
        Row(
            work=f"{work.name}: {ours.name}",
            ours=(use.written / use.forward if by_write else use.read / use.backward) / 1e9,
            unit="GB/s",
            limit=(drive.write if by_write else drive.read) / 1e9,
            limit_name="the drive's writes" if by_write else "the drive's reads",
            ratio=share,
            target=">= 95 % of (measured bandwidth x time available) used, slow-down <= 1 %,"
            " peak no higher than keep's",
            met=share >= 0.95 and ours.ms <= 1.01 * keep.ms and ours.peak <= keep.peak,
            note=f"step {ours.ms / keep.ms - 1:+.1%} beside keep's {keep.ms:.1f} ms;"
            f" {against(ours, keep)}{prediction(ours)}; {sum(on_disk) / 1e9:.2f} GB a step;"
            f" writes in the forward pass {writing:.1%} of {drive.write / 1e9:.2f} GB/s"
            f" ({low:.0%} to {high:.0%} in {watch.steps} steps), reads in the backward pass"
            f" {reading:.1%} of {drive.read / 1e9:.2f}; transfers of {nbytes >> 20} MiB,"
            f" {staging >> 20} MiB at a time",
        )
    )
    results.remember(work.name, ours)
    results.remember(work.name, keep, f"keep beside {folder}")
    work.check_losses()


def main(options: argparse.Namespace) -> None:
    """Run it."""
    results = Results(options.json, "Activation offloading to disk alone, on a GPU")
    shape = (8192, 4, 16, 1024)
    if options.quick or DEVICE.type == "cpu":
        shape = (1024, 2, 4, 1024) if DEVICE.type == "cuda" else (64, 3, 4, 64)
    for folder in (tempfile.gettempdir(), "/dev/shm"):
        results.section(over_disk, folder, shape)
    results.finish()


if __name__ == "__main__":
    main(arguments(__doc__))
