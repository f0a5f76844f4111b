# SPDX-License-Identifier: Apache-2.0
"""Measured steps beside a prediction, and beside each other. Decides nothing."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from .plan import Prediction
from .step_orders import StepResult

__all__ = ["PEAK_TOLERANCE", "TIME_TOLERANCE", "agree", "differs", "errors", "medians"]

TIME_TOLERANCE = 0.03
PEAK_TOLERANCE = 0.05
# Steps that differ by more from each other have no typical time.
SPREAD = 0.1


def medians(results: Sequence[StepResult]) -> dict[str, float]:
    """Seconds, bytes of the peak and seconds of waits."""
    return {
        "seconds": statistics.median(result.seconds for result in results),
        "peak_bytes": int(statistics.median(result.peak_bytes for result in results)),
        "wait_seconds": statistics.median(result.wait_seconds for result in results),
    }


def errors(results: Sequence[StepResult], prediction: Prediction) -> dict[str, float]:
    """Fractions by which the medians exceed a prediction."""
    measured = medians(results)
    peak = measured["peak_bytes"]
    return {
        "seconds": measured["seconds"] / prediction.seconds - 1 if prediction.seconds else 0.0,
        # A device that nobody counts has no error.
        "peak_bytes": peak / prediction.peak_bytes - 1 if peak and prediction.peak_bytes else 0.0,
    }


def agree(results: Sequence[StepResult]) -> bool:
    """Whether the middle half of steps took about the same time: else none of it is typical."""
    seconds = sorted(result.seconds for result in results)
    cut = len(seconds) // 4
    return seconds[-1 - cut] <= (1 + SPREAD) * seconds[cut]


def differs(result: StepResult, prediction: Prediction) -> int:
    """1 if a step took more time or memory than predicted, beyond tolerance; -1 if less, else 0."""
    found = errors([result], prediction)
    if found["seconds"] > TIME_TOLERANCE or found["peak_bytes"] > PEAK_TOLERANCE:
        return 1
    return -1 if found["seconds"] < -TIME_TOLERANCE or found["peak_bytes"] < -PEAK_TOLERANCE else 0
