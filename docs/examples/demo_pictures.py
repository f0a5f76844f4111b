# SPDX-License-Identifier: Apache-2.0
"""Draws the demo's pictures; not for numbers (see demo_report.py)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

__all__ = ["draw"]

_STYLES = {
    "plain": {"color": "tab:gray", "linewidth": 3.5, "alpha": 0.6, "label": "plain PyTorch"},
    "datapath": {"color": "tab:blue", "linewidth": 1.2, "label": "data path"},
}
MIB = 2**20


def _figure(width: float) -> Figure:
    figure = Figure(figsize=(width, 3.8), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def _curves(report: dict[str, Any]) -> Figure:
    figure = _figure(13)
    accuracy, gnn_loss, lm_loss = figure.subplots(1, 3)
    gnn, lm = report["gnn"], report["language_model"]
    for mode, style in _STYLES.items():
        values = [100 * value for value in gnn[mode]["accuracies"]]
        accuracy.plot(range(1, len(values) + 1), values, marker="o", markersize=4, **style)
        gnn_loss.plot(gnn[mode]["losses"], **style)
        lm_loss.plot(lm[mode]["losses"], **style)
    accuracy.xaxis.set_major_locator(MaxNLocator(integer=True))
    majority = 100 * gnn["majority_accuracy"]
    accuracy.axhline(majority, color="tab:red", linestyle=":", label="majority class")
    accuracy.set(title="relational GNN", xlabel="epoch", ylabel="test accuracy, %", ylim=(0, 100))
    gnn_loss.set(title="relational GNN", xlabel="step", ylabel="training loss")
    equal = lm["plain"]["losses"] == lm["datapath"]["losses"]
    title = f"language model ({'equal to the last bit' if equal else 'NOT equal'})"
    lm_loss.set(title=title, xlabel="step", ylabel="training loss, nats a byte")
    for axes in (accuracy, gnn_loss, lm_loss):
        axes.grid(alpha=0.3)
        axes.legend()
    return figure


def _bars(axes: Any, values: dict[str, float], title: str, unit: str) -> None:
    bars = axes.bar(list(values), list(values.values()), color="tab:blue", width=0.6)
    axes.bar_label(bars, fmt="%.3g")
    axes.set(title=title, ylabel=unit)
    axes.margins(y=0.15)
    axes.grid(axis="y", alpha=0.3)


def _memory(report: dict[str, Any], tiers: dict[str, int]) -> Figure:
    figure = _figure(9)
    peak, moved = figure.subplots(1, 2)
    lm = report["language_model"]
    peaks = {
        "plain PyTorch": lm["plain"]["peak_bytes"] / MIB,
        "offloaded": lm["datapath"]["peak_bytes"] / MIB,
    }
    _bars(peak, peaks, "peak memory of a training step", "MiB")
    sizes = {name: size / MIB for name, size in tiers.items()}
    _bars(moved, sizes, "activations of a step by tier", "MiB")
    return figure


def _waiting(report: dict[str, Any]) -> Figure:
    figure = _figure(5)
    values = {
        style["label"]: report["gnn"][mode]["fetch_seconds"] for mode, style in _STYLES.items()
    }
    _bars(figure.subplots(), values, "GNN training waits for batches", "s")
    return figure


def draw(report: dict[str, Any], tiers: dict[str, int], folder: Path) -> list[str]:
    """Write the pictures into `folder` and return their names."""
    figures = {
        "accuracy-and-loss.png": _curves(report),
        "memory-and-tiers.png": _memory(report, tiers),
        "waiting.png": _waiting(report),
    }
    for name, figure in figures.items():
        figure.savefig(folder / name, dpi=120)
    return list(figures)
