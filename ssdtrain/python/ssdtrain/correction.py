# SPDX-License-Identifier: Apache-2.0
"""What measured steps say against a prediction: a timeline and rates that would have given them."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING

from .plan import Prediction
from .timeline import Rates, Timeline

if TYPE_CHECKING:
    from .steering import StepResult

__all__ = ["corrected"]

# One correction changes rates by no more than this factor: waits have other causes, too.
_MOST = 2.0


def corrected(
    timeline: Timeline, rates: Rates, prediction: Prediction, results: Sequence[StepResult]
) -> tuple[Timeline, Rates]:
    """Return a timeline and rates for the next plan.

    Times of computation are scaled to those measured. Where waits took longer than predicted, the
    lanes are taken to be slower. What the peak exceeded the prediction by is added to what others
    allocate.

    Parameters
    ----------
    timeline : Timeline
        That the plan was made from.
    rates : Rates
    prediction : Prediction
    results : sequence of StepResult
        Of steps under the plan; medians count. If the last has a timeline, its times are taken.

    Returns
    -------
    Timeline
    Rates
    """
    seconds = statistics.median(result.seconds for result in results)
    waits = statistics.median(result.wait_seconds for result in results)
    peak = statistics.median(result.peak_bytes for result in results)
    fresh = results[-1].timeline
    if fresh is not None and len(fresh.ticks) == len(timeline.ticks):
        timeline = fresh
    else:
        computed = prediction.seconds - prediction.wait_seconds
        if computed > 0 and seconds > waits:
            timeline = _scaled(timeline, (seconds - waits) / computed)
    if peak > 0:
        timeline = _shifted(timeline, int(peak) - prediction.peak_bytes)
    extra = waits - prediction.wait_seconds
    if extra > 0.01 * prediction.seconds:
        # Copies had the whole step and took that much longer.
        slower = min(1 + extra / prediction.seconds, _MOST)
        rates = dataclasses.replace(
            rates,
            **{
                field.name: getattr(rates, field.name) / slower
                for field in dataclasses.fields(rates)
                if field.name != "overhead"
            },
        )
    return timeline, rates


def _scaled(timeline: Timeline, factor: float) -> Timeline:
    ticks = tuple(
        dataclasses.replace(tick, seconds=tick.seconds * factor) for tick in timeline.ticks
    )
    groups = tuple(
        dataclasses.replace(group, recompute_seconds=group.recompute_seconds * factor)
        for group in timeline.groups
    )
    return dataclasses.replace(
        timeline, ticks=ticks, groups=groups, seconds=timeline.seconds * factor
    )


def _shifted(timeline: Timeline, nbytes: int) -> Timeline:
    ticks = tuple(
        dataclasses.replace(
            tick,
            others=max(tick.others + nbytes, 0),
            others_peak=max(tick.others_peak + nbytes, 0),
        )
        for tick in timeline.ticks
    )
    tail = max(timeline.tail_peak + nbytes, 0)
    return dataclasses.replace(timeline, ticks=ticks, tail_peak=tail)
