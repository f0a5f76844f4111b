# SPDX-License-Identifier: Apache-2.0
"""Writes what ``rok`` measured: table, CSV, JSON and the picture of memory against throughput."""

from __future__ import annotations

import csv
import dataclasses
import json
import platform
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from .rok import STRATEGIES, Row

__all__ = ["draw", "machine", "print_table", "write_csv", "write_json"]

GIB = 2.0**30
WHERE = ("host", "disk", "recompute", "kept")
# One marker for each strategy, so that the curves are told apart without colours.
MARKERS = dict(zip(STRATEGIES, "osD^", strict=True))


def machine(device: torch.device) -> dict[str, Any]:
    """Return on what was measured."""
    is_cuda = device.type == "cuda"
    return {
        "date": time.strftime("%Y-%m-%d"),
        "device": torch.cuda.get_device_name(device) if is_cuda else platform.processor() or "cpu",
        "device_type": device.type,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "peak": "allocated bytes" if is_cuda else "bytes of storages that operators returned",
    }


def print_table(rows: Sequence[Row], console: Console | None = None) -> None:
    """Print a row for each measurement; ratios are to "keep" at the same batch."""
    kept = {row.batch: row for row in rows if row.strategy == "keep" and row.status == "ok"}
    table = Table("batch", "strategy", title="recompute, offload, keep", title_justify="left")
    unit = next((row.unit for row in rows if row.unit), "throughput")
    for heading in ("peak", "of keep", "step", "of keep", unit):
        table.add_column(heading, justify="right")
    for row in rows:
        if row.peak_bytes is None or row.seconds is None or row.throughput is None:
            table.add_row(str(row.batch), row.strategy, row.status)
            continue
        keep = kept.get(row.batch)
        table.add_row(
            str(row.batch),
            row.strategy,
            f"{row.peak_bytes / GIB:.3f} GiB",
            _ratio(row.peak_bytes, keep.peak_bytes if keep else None),
            f"{row.seconds * 1e3:.1f} ms",
            _ratio(row.seconds, keep.seconds if keep else None),
            f"{row.throughput:,.1f}",
        )
    (console or Console()).print(table)


def _ratio(value: float, keep: float | None) -> str:
    return f"{value / keep:.2f}" if keep else "-"


def write_csv(rows: Sequence[Row], path: Path) -> None:
    """Write a row for each measurement; bytes and seconds."""
    plain = [f.name for f in dataclasses.fields(Row) if f.name != "bytes"]
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([*plain, *(f"{where}_bytes" for where in WHERE)])
        for row in rows:
            numbers = ["" if getattr(row, n) is None else getattr(row, n) for n in plain]
            writer.writerow([*numbers, *(row.bytes.get(where, "") for where in WHERE)])


def write_json(rows: Sequence[Row], path: Path, device: torch.device) -> None:
    """Write machine and measurements."""
    content = {"machine": machine(device), "rows": [dataclasses.asdict(row) for row in rows]}
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def draw(rows: Sequence[Row], path: Path, title: str = "") -> None:
    """Draw throughput over activation peak, a curve for each strategy, a point for each batch.

    Source: the ROK curve of SSDTrain (arXiv 2408.10013).

    Raises
    ------
    ValueError
        If nothing was measured.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    measured = [row for row in rows if row.peak_bytes is not None and row.throughput is not None]
    if not measured:
        raise ValueError("nothing fitted into memory, so there is nothing to draw")
    figure = Figure(figsize=(7, 4.5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for strategy in dict.fromkeys(row.strategy for row in measured):
        points = [
            (row.peak_bytes / GIB, row.throughput, row.batch)
            for row in measured
            if row.strategy == strategy
            and row.peak_bytes is not None
            and row.throughput is not None
        ]
        memory, throughput, _ = zip(*points, strict=True)
        axes.plot(memory, throughput, marker=MARKERS[strategy], label=strategy)
        for x, y, batch in points:
            axes.annotate(str(batch), (x, y), textcoords="offset points", xytext=(4, 4), size=8)
    axes.set_xlabel("activation peak, GiB (numbers at the points: batch)")
    axes.set_ylabel(f"throughput, {measured[0].unit}")
    axes.margins(0.08)
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    axes.set_title(title)
    axes.grid(visible=True, alpha=0.3)
    axes.legend()
    figure.savefig(path)
