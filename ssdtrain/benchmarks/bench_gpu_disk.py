# SPDX-License-Identifier: Apache-2.0
"""The disk tier alone under GPT blocks in bf16: how much of the drive plans use, at which price."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from bench_schema import Row, arguments
from beside_keep import against, mean, offloading, prediction
from drive_use import DriveMeter, Use, Watch
from sections import Results, chosen
from stacks import Stack
from strategies import DEVICE, Measured, Strategy, offloader

# Seconds to wait for a planner that plans again and again, beside a drive whose rate varies.
PATIENCE = 22.0


class OverDisk:
    """The disk alone, nothing computed again: all of the drive, no slower, no higher a peak.

    Micro-batches of one sample, all forward and then all backward, as the first stage of a pipeline
    has them: where the GPU makes 90 GB/s of activations and the drive takes 3, groups of a whole
    batch are as large as all that a drive takes in a forward pass.
    """

    def __init__(self, results: Results, shape: tuple[int, int, int, int]) -> None:
        hidden, layers, batch, tokens = shape
        self.results = results
        self.work = Stack(hidden, layers, batch, tokens, micro_batches=batch)
        self.staging = 512 << 20 if DEVICE.type == "cuda" else 4 << 20
        # What a block saves most of: transfers that are measured alone have this size.
        self.unit = self.work.x[:1].nbytes
        self.keep = self.run_keep("at first")

    def run_keep(self, when: str) -> Measured:
        """Plain training."""
        found = self.work.run(Strategy("keep", settle=2, steps=4))
        self.results.remember(self.work.name, found, f"keep, {when}")
        return found

    def run(self, folder: str) -> None:
        """A plan with one folder, then keeping everything once more."""
        told: list[Any] = []
        at_a_time = max(self.staging // self.unit, 1)
        with (
            tempfile.TemporaryDirectory(dir=folder) as spill,
            DriveMeter(spill, self.unit, at_a_time) as meter,
        ):
            watch = Watch(
                lambda: self.work.forward_seconds, lambda: meter.measure(self.work.forward_seconds)
            )

            def look(off: Any, step: Callable[[], object]) -> None:
                told.append(off.report()["steering"])
                watch(off, step)

            name = f"disk tier alone ({folder})"
            options = offloading(
                spill=spill, ssd="32GiB", max_slowdown=0.01, backlog=self.staging, host=0
            )
            ours = self.work.run(
                offloader(name, None, watch=look, settled=9, patience=PATIENCE, steps=4, **options)
            )
        print(f"steering: {told}", flush=True)
        for use in watch.uses:
            print(f"{folder}: {use}", flush=True)
        self.results.remember(self.work.name, ours)
        self.results.keep_raw(
            f"{self.work.name}: {name}, use",
            {"steps": [asdict(use) for use in watch.uses], "steering": told},
        )
        self.show(folder, ours, watch)
        keep = self.run_keep(f"after {folder}")
        self.keep = mean(self.keep, keep)
        self.show(folder, ours, watch)
        self.keep = keep
        self.work.check_losses()

    def show(self, folder: str, ours: Measured, watch: Watch) -> None:
        """Add the row with what is known, and write it."""
        use, keep = watch.median(), self.keep
        drive = use.drive
        writing, reading = use.shares
        share = max(writing, reading)
        by_write = writing >= reading
        low, high = watch.spread()
        self.results.add(
            Row(
                work=f"{self.work.name}: {ours.name}",
                ours=(use.written / use.forward if by_write else use.read / use.backward) / 1e9,
                unit="GB/s",
                limit=(drive.write if by_write else drive.read) / 1e9,
                limit_name="the drive's writes" if by_write else "the drive's reads",
                ratio=share,
                target=">= 95 % of (measured bandwidth x time available) used, slow-down <= 1 %,"
                " peak no higher than keep's",
                met=share >= 0.95 and ours.ms <= 1.01 * keep.ms and ours.peak <= keep.peak,
                note=f"step {ours.ms / keep.ms - 1:+.1%} beside keep's {keep.ms:.1f} ms;"
                f" {against(ours, keep)}{prediction(ours)}; {_bytes(use)};"
                f" {writing:.1%} of what the drive wrote alone right before and after"
                f" ({drive.write / 1e9:.2f} GB/s),"
                f" {low:.0%} to {high:.0%} in {len(watch.uses)} steps; reads {reading:.1%} of"
                f" {drive.read / 1e9:.2f}; alone it had transfers of {self.unit >> 20} MiB,"
                f" {self.staging >> 20} MiB at a time",
            )
        )
        self.results.save()


def _bytes(use: Use) -> str:
    return (
        f"{use.written / 1e9:.3f} GB written in the {use.forward:.4f} s of the forward pass,"
        f" {use.read / 1e9:.3f} read in the {use.backward:.4f} s of the backward pass"
    )


def over_disk(results: Results, shape: tuple[int, int, int, int], *folders: str) -> None:
    """Each folder in turn."""
    work = OverDisk(results, shape)
    for folder in folders:
        work.run(folder)


def main(options: argparse.Namespace, folders: Sequence[str]) -> None:
    """Run it."""
    results = Results(options.json, "Activation offloading to disk alone, on a GPU")
    shape = (8192, 4, 16, 1024)
    if options.quick or DEVICE.type == "cpu":
        shape = (1024, 2, 4, 1024) if DEVICE.type == "cuda" else (64, 3, 4, 64)
    results.section(over_disk, shape, *folders)
    results.finish()


if __name__ == "__main__":
    FOLDERS = chosen("--folders", [tempfile.gettempdir(), "/dev/shm"])
    main(arguments(__doc__), FOLDERS)
