# SPDX-License-Identifier: Apache-2.0
"""Draws rates of gathers by row width; not for numbers (see bench.py)."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

__all__ = ["check", "draw"]


def check(path: Path) -> None:
    """Raise unless a picture can be drawn there.

    Raises
    ------
    ImportError
        matplotlib is not installed.
    ValueError
        The name ends in neither .svg nor .png.
    """
    if path.suffix not in (".svg", ".png"):
        raise ValueError(f"--picture {path}: a name that ends in .svg or .png wanted")
    if importlib.util.find_spec("matplotlib") is None:
        raise ImportError("--picture needs matplotlib: pip install matplotlib")


def draw(path: Path, title: str, found: dict[str, Any]) -> None:
    """Draw a line a way of gathering, and the rate of a copy.

    Parameters
    ----------
    path : Path
    title : str
    found : dict
        ``copy_gb_per_second`` and ``rates``, rows with ``row_bytes``, ``way``, ``gb_per_second``.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    rates = found["rates"]
    for way in dict.fromkeys(row["way"] for row in rates):
        points = sorted((r["row_bytes"], r["gb_per_second"]) for r in rates if r["way"] == way)
        axes.plot(*zip(*points, strict=True), marker="o", markersize=4, label=way)
    link = found["copy_gb_per_second"]
    axes.axhline(link, color="black", linestyle=":", label=f"a copy, {link:.1f} GB/s")
    widths = sorted({row["row_bytes"] for row in rates})
    axes.set_xscale("log", base=2)
    axes.set_xticks(widths, [str(width) for width in widths], minor=False)
    axes.tick_params(axis="x", rotation=45)
    axes.set(title=f"gather: {title}", xlabel="bytes of a row", ylabel="GB/s of rows asked for")
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(path, dpi=120)
