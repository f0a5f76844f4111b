# SPDX-License-Identifier: Apache-2.0
"""Measured strategies beside keeping everything, in words; and what every offloader here gets."""

from __future__ import annotations

import tempfile
from typing import Any

from strategies import DEVICE, Measured

__all__ = ["against", "mean", "offloading", "prediction", "prediction_errors"]

HOST = "48GiB"


def offloading(**more: Any) -> dict[str, Any]:
    """Arguments of an offloader; on the CPU there is the disk only, and tensors are small."""
    if DEVICE.type == "cuda":
        return {"host": HOST, **more}
    return {"min_bytes": "16KiB", "spill": tempfile.gettempdir(), "ssd": "1GiB", **more}


def against(ours: Measured, keep: Measured) -> str:
    """The peak beside keep's, for the note."""
    if not keep.peak:
        return "peak not counted"
    less = 1 - ours.peak / keep.peak
    words = f"{abs(less):.1%} {'less' if less >= 0 else 'more'} than keep's {keep.gib:.2f}"
    return f"peak {ours.gib:.2f} GiB" + ("" if ours is keep else f", {words}")


def prediction(ours: Measured) -> str:
    """What the planner expected, for the note."""
    errors = prediction_errors(ours)
    if errors is None:
        return ""
    text = f"; measured {errors[0]:+.1%} in time and {errors[1]:+.1%} in peak beside the prediction"
    planned = ours.planned[1] - ours.planned[0]
    return text + (f"; planned {planned} times while it was timed" if planned else "")


def prediction_errors(ours: Measured) -> tuple[float, float] | None:
    """By which fractions time and peak exceed what was predicted before the timed steps."""
    expected = ours.expected
    if not expected:
        return None
    peak = 0.0
    if DEVICE.type == "cuda":
        peak = (ours.peak + ours.resident) / expected["peak_bytes"] - 1
    return ours.ms / 1e3 / expected["seconds"] - 1, peak


def mean(first: Measured, last: Measured) -> Measured:
    """The same strategy, measured before and after others."""
    return Measured(
        first.name,
        (first.ms + last.ms) / 2,
        max(first.peak, last.peak),
        first.resident,
        first.loss,
        times=first.times + last.times,
    )
