# SPDX-License-Identifier: Apache-2.0
"""Shows a sheet of figures: as tables, as JSON, as CSV, or every formula with its numbers."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from .figures import Figure, Sheet
from .growth import strategies

__all__ = ["as_csv", "as_json", "explain", "print_tables", "readable"]

# What the first table has, in its order; all else is in --explain, --json and --csv.
SECTIONS = {
    "bytes": (
        "layer_bytes",
        "lean_layer_bytes",
        "boundary_bytes",
        "micro_batch_bytes",
        "in_flight",
        "activation_bytes",
        "step_bytes",
    ),
    "time": ("F", "forward_seconds", "step_seconds", "bubble"),
    "bandwidth": (
        "write_forward",
        "write_half_step",
        "write_steady",
        "write_lean",
        "write_boundary",
        "link",
        "disk_write",
    ),
    "hidden": (
        "hidden_host",
        "hidden_host_half_step",
        "hidden_host_lean",
        "hidden_disk",
        "hidden_disk_half_step",
        "hidden_disk_boundary",
    ),
    "drives": (
        "written_per_day",
        "endurance_all",
        "lifetime_days",
        "boundary_lifetime_days",
    ),
    "memory": ("gpu_parameters", "gpu_state", "room"),
}
_DECIMAL = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_BINARY = ((2.0**50, "Pi"), (2.0**40, "Ti"), (2.0**30, "Gi"), (2.0**20, "Mi"), (2.0**10, "Ki"))
SHARES = ("hidden_", "usable")
_PIPE_WIDTH = 200
"""Columns where no terminal says how many: programs read whole rows."""


def readable(figure: Figure) -> str:
    """Return a figure's value for people: bytes binary on the GPU, decimal on drives."""
    value, unit = figure.value, figure.unit
    if unit == "B":
        on_drive = figure.name.startswith(("written", "endurance", "boundary_per_day"))
        return _scaled(value, "B", _DECIMAL if on_drive else _BINARY)
    if unit in ("B/s", "FLOP", "FLOP/s"):
        return _scaled(value, unit, _DECIMAL)
    if unit == "s":
        return f"{value:.3g} s" if value >= 1 else f"{value * 1e3:.3g} ms"
    if unit == "days":
        return f"{value:,.0f} days" if value < 730 else f"{value / 365:,.1f} years"
    if figure.name.startswith(SHARES) or figure.name.endswith("bubble"):
        return f"{100 * value:.0f} %"
    if value >= 1e6:
        return _scaled(value, "", _DECIMAL)
    return f"{value:,.4g} {unit}".rstrip()


def _scaled(value: float, unit: str, steps: tuple[tuple[float, str], ...]) -> str:
    for size, prefix in steps:
        if abs(value) >= size:
            return f"{value / size:.3g} {prefix}{unit}".rstrip()
    return f"{value:.3g} {unit}".rstrip()


def print_tables(sheet: Sheet, title: str, console: Console | None = None) -> None:
    """Print the figures that answer most questions, and a row for each strategy."""
    if console is None:
        # Wide enough for the longest row where nobody's terminal is: a pipe, a file.
        console = Console()
        if not console.is_terminal and "COLUMNS" not in os.environ:
            console = Console(width=_PIPE_WIDTH)
    table = Table("", "figure", "value", "is", title=title, title_justify="left")
    for section, names in SECTIONS.items():
        heading = section
        for name in names:
            if name in sheet:
                figure = sheet.figure(name)
                table.add_row(heading, name, readable(figure), figure.label)
                heading = ""
        table.add_section()
    console.print(table)
    console.print(_strategy_table(sheet))
    if sheet["p"] > 1:
        console.print(_pipeline_table(sheet))


def _strategy_table(sheet: Sheet) -> Table:
    table = Table("strategy", title="strategies", title_justify="left", caption_justify="left")
    for heading in ("peak", "fits", "step", "tokens/s/GPU", "largest", "tokens/s/GPU"):
        table.add_column(heading, justify="right")
    for strategy in strategies(with_drive="disk_bytes" in sheet):
        key = strategy.key
        fits, largest = sheet[f"{key}_fits"] >= sheet["b"], sheet[f"{key}_fits"]
        table.add_row(
            strategy.short,
            readable(sheet.figure(f"{key}_bytes")),
            "yes" if fits else "no",
            readable(sheet.figure(f"{key}_seconds")),
            f"{sheet[f'{key}_rate']:,.0f}" if fits else "-",
            f"{largest:.0f}",
            f"{sheet[f'{key}_best_rate']:,.0f}" if largest else "-",
        )
    table.caption = (
        "peak: activations; largest: micro-batch that fits, and its rate; lean: norms and"
        " activations are computed again, the rest is offloaded"
    )
    return table


def _pipeline_table(sheet: Sheet) -> Table:
    table = Table("strategy", title="pipeline", title_justify="left", caption_justify="left")
    for heading in ("stages", "bubble", "fewest stages", "bubble then", "throughput"):
        table.add_column(heading, justify="right")
    for strategy in strategies(with_drive="disk_bytes" in sheet):
        key = strategy.key
        now = (strategy.short, f"{sheet['p']:.0f}", readable(sheet.figure("bubble")))
        if f"{key}_p" in sheet:
            then = (f"{sheet[f'{key}_p']:.0f}", readable(sheet.figure(f"{key}_bubble")))
            table.add_row(*now, *then, f"x {sheet[f'{key}_bubble_gain']:.3f}")
        else:
            table.add_row(*now, "none fits", "-", "-")
    table.caption = "fewest stages that fit on the same GPUs, at the same tokens in a step"
    return table


def explain(sheet: Sheet, names: Sequence[str] = ()) -> str:
    """Return figures with their formulas, the numbers put in and their sources.

    Parameters
    ----------
    sheet : Sheet
    names : sequence of str
        Which; all if there are none.

    Raises
    ------
    ValueError
        For a name that is not on the sheet.
    """
    unknown = [name for name in names if name not in sheet]
    if unknown:
        raise ValueError(
            f"no figure {', '.join(unknown)}; there are {', '.join(f.name for f in sheet)}"
        )
    chosen = [sheet.figure(name) for name in names] or list(sheet)
    return "\n".join(f"# {figure.label}\n{figure.explain()}" for figure in chosen)


def as_json(sheet: Sheet) -> str:
    """Return all figures as a JSON object by name; base units."""
    content = {
        figure.name: {
            "value": figure.value,
            "unit": figure.unit,
            "label": figure.label,
            "formula": figure.formula,
            "inputs": dict(figure.inputs),
            "source": figure.source,
        }
        for figure in sheet
    }
    return json.dumps(content, indent=1)


def as_csv(sheet: Sheet) -> str:
    """Return all figures as CSV, one a row; base units."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["name", "value", "unit", "label", "formula", "inputs", "source"])
    for figure in sheet:
        inputs = "; ".join(f"{name}={value!r}" for name, value in figure.inputs)
        writer.writerow(
            [figure.name, repr(figure.value), figure.unit, figure.label, figure.formula, inputs,
             figure.source]
        )  # fmt: skip
    return text.getvalue()
