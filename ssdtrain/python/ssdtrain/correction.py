# SPDX-License-Identifier: Apache-2.0
"""What measured steps say against a prediction: a timeline and rates that would have given them."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Sequence

from .plan import Plan
from .simulate import simulate
from .step_orders import StepResult
from .timeline import Rates, Timeline

__all__ = ["corrected"]

# One correction takes lanes to be this much faster or slower at most.
_MOST = 4.0
_HALVINGS = 12
# Waits that differ by less than this fraction of the step say nothing about the lanes.
_LEAST_WAIT = 0.005


def corrected(
    timeline: Timeline, rates: Rates, plan: Plan, results: Sequence[StepResult]
) -> tuple[Timeline, Rates]:
    """Return a timeline and rates for the next plan.

    Times of computation are scaled to those measured, lanes are taken to be so much slower or
    faster that computation waits as long as it did, and what the peak then still exceeds the
    prediction by is added to what others allocate.

    Parameters
    ----------
    timeline : Timeline
        That the plan was made from.
    rates : Rates
    plan : Plan
    results : sequence of StepResult
        Of steps under the plan; medians count. If the last has a timeline, that is taken.

    Returns
    -------
    Timeline
    Rates
    """
    seconds = statistics.median(result.seconds for result in results)
    waits = statistics.median(result.wait_seconds for result in results)
    peak = int(statistics.median(result.peak_bytes for result in results))
    fresh = results[-1].timeline
    if fresh is not None and fresh.signature == timeline.signature:
        timeline = fresh
    else:
        played = simulate(timeline, rates, plan).prediction
        computed = played.seconds - played.wait_seconds
        if computed > 0 and seconds > waits:
            timeline = _scaled(timeline, (seconds - waits) / computed)
    rates = _with_waits(timeline, rates, plan, waits)
    if peak > 0:
        played = simulate(timeline, rates, plan).prediction
        timeline = _shifted(timeline, peak - played.peak_bytes)
    return timeline, rates


def _with_waits(timeline: Timeline, rates: Rates, plan: Plan, waits: float) -> Rates:
    """Return rates with which computation waits as long as was measured."""

    def predicted(slower: float) -> float:
        return simulate(timeline, _slower(rates, slower), plan).prediction.wait_seconds

    if abs(predicted(1.0) - waits) < _LEAST_WAIT * timeline.seconds:
        return rates
    low, high = 1 / _MOST, _MOST
    for _ in range(_HALVINGS):
        middle = (low * high) ** 0.5
        if predicted(middle) < waits:
            low = middle
        else:
            high = middle
    return _slower(rates, high)


def _slower(rates: Rates, factor: float) -> Rates:
    changed = {
        field.name: getattr(rates, field.name) / factor
        for field in dataclasses.fields(rates)
        if field.name != "overhead"
    }
    return dataclasses.replace(rates, **changed)


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
