# SPDX-License-Identifier: Apache-2.0
"""What measured steps say against a prediction: a timeline and rates that would have given them."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Iterable, Sequence

from .plan import Plan
from .simulate import simulate
from .step_orders import StepResult
from .timeline import Rates, Timeline

__all__ = ["averaged", "corrected", "faster_drive", "typical"]

# One correction takes lanes to be this much faster or slower at most.
_MOST = 4.0
_HALVINGS = 12
# Waits that differ by less than this fraction of the step say nothing about the lanes.
_LEAST_WAIT = 0.005
# Copies slow computation down by no more than this: at 55 GB/s one takes 1 to 2 % of a GPU's memory
# bandwidth, and some of the power that its clock hangs on. Where it is more the clock has changed.
_MOST_CONTENTION = 0.03
# A drive that is measured in use says nothing by fewer bytes than these, or by smaller changes.
_LEAST_OF_DRIVE = 64 << 20
_DRIVE_TOLERANCE = 0.03
# Faster by this much, it is worth another plan.
_FASTER = 0.05
# Lanes that are busy for less than this part of the step say nothing about contention.
_LEAST_BUSY = 0.1
# A GPU's clock swings by less than this part, from a step to the next.
_CLOCK = 0.1


def corrected(
    timeline: Timeline, rates: Rates, plan: Plan, results: Sequence[StepResult], fastest: Rates
) -> tuple[Timeline, Rates]:
    """Return a timeline and rates for the next plan.

    Drives have the rates that they had in these steps. What computation took longer than predicted
    is laid to copies if they can have caused it (``Rates.contention``); else it scales all of its
    times, by which everything kept is slower, too. Lanes are taken to be so much slower or faster
    that computation waits as long as it did, but no faster than they were measured to be, and what
    the peak then still exceeds the prediction by is added to what others allocate.

    Parameters
    ----------
    timeline : Timeline
        That the plan was made from.
    rates : Rates
    plan : Plan
    results : sequence of StepResult
        Of steps under the plan; medians count. If the last has a timeline, that is taken.
    fastest : Rates
        As measured with nothing beside the lanes. Fewer waits than predicted are no sign of faster
        lanes: any that are fast enough have none.

    Returns
    -------
    Timeline
    Rates
    """
    seconds = typical(result.seconds for result in results)
    waits = typical(result.wait_seconds for result in results)
    peak = int(statistics.median(result.peak_bytes for result in results))
    rates = _with_drive(rates, results)
    fresh = results[-1].timeline
    if fresh is not None and fresh.signature == timeline.signature:
        timeline = fresh
    timeline, rates = _with_computation(timeline, rates, plan, seconds - waits)
    rates = _with_waits(timeline, rates, plan, waits, _with_drive(fastest, results))
    if peak > 0:
        played = simulate(timeline, rates, plan).prediction
        timeline = _shifted(timeline, peak - played.peak_bytes)
    return timeline, rates


def faster_drive(rates: Rates, results: Sequence[StepResult]) -> str:
    """Why a plan may leave a drive idle: it writes faster in use than was assumed; "" if not."""
    found, assumed = _with_drive(rates, results), max(rates.write, rates.write_alone)
    write = max(found.write, found.write_alone)
    if write <= assumed * (1 + _FASTER):
        return ""
    return f"the drive writes {write / 1e9:.2f} GB/s where {assumed / 1e9:.2f} were assumed"


def typical(values: Iterable[float]) -> float:
    """Mean of the middle half: a GPU's clock swings around its mean from step to step.

    Raises
    ------
    ValueError
        If there are no values.
    """
    found = sorted(values)
    cut = len(found) // 4
    return statistics.fmean(found[cut : len(found) - cut])


def averaged(timelines: Sequence[Timeline]) -> Timeline:
    """Return the last timeline of equal steps, at the mean time of them all.

    Of steps that differ by more than a clock does the slower ones waited for their host, which
    writes a profile down: then it is the fastest.
    """
    last = timelines[-1]
    fastest = min(timelines, key=lambda timeline: timeline.seconds)
    if max(timeline.seconds for timeline in timelines) > (1 + _CLOCK) * fastest.seconds:
        return fastest
    mean = statistics.fmean(timeline.seconds for timeline in timelines)
    return _scaled(last, mean / last.seconds) if last.seconds > 0 else last


def _with_drive(rates: Rates, results: Sequence[StepResult]) -> Rates:
    """Return rates with the drive's as they were in use.

    They are measured alone, with few bytes, before the first plan; a drive's rate depends on how
    much it is given and on what else it does, and changes.
    """
    changed: dict[str, float] = {}
    for lane in ("write", "read"):
        moved = [result.lanes.get(lane, (0, 0.0)) for result in results]
        nbytes, seconds = sum(m[0] for m in moved), sum(m[1] for m in moved)
        assumed = max(getattr(rates, lane), getattr(rates, f"{lane}_alone"))
        if nbytes < _LEAST_OF_DRIVE or seconds <= 0 or not assumed:
            continue
        factor = min(max(nbytes / seconds / assumed, 1 / _MOST), _MOST)
        if abs(factor - 1) > _DRIVE_TOLERANCE:
            changed |= {n: getattr(rates, n) * factor for n in (lane, f"{lane}_alone")}
    return dataclasses.replace(rates, **changed)


def _with_computation(
    timeline: Timeline, rates: Rates, plan: Plan, measured: float
) -> tuple[Timeline, Rates]:
    """Return a timeline and a contention with which computation takes as long as was measured."""
    played = simulate(timeline, dataclasses.replace(rates, contention=0.0), plan)
    computed = played.prediction.seconds - played.prediction.wait_seconds
    if not (computed > 0 and measured > 0):
        return timeline, rates
    device = ("write", "read") if timeline.device_type == "cpu" else ("d2h", "h2d")
    busy = sum(
        transfer.end - transfer.begin
        for transfer in played.transfers
        if transfer.lane in device and transfer.begin is not None and transfer.end is not None
    )
    contention = rates.contention
    if busy >= _LEAST_BUSY * computed:
        found = max((measured - computed) / busy, 0.0)
        contention = found if found <= _MOST_CONTENTION else contention
    factor = max(measured - contention * busy, 0.5 * measured) / computed
    return _scaled(timeline, factor), dataclasses.replace(rates, contention=contention)


def _with_waits(
    timeline: Timeline, rates: Rates, plan: Plan, waits: float, fastest: Rates
) -> Rates:
    """Return rates with which computation waits as long as was measured, or nearly."""

    def predicted(slower: float) -> float:
        return simulate(timeline, _slower(rates, slower), plan).prediction.wait_seconds

    if abs(predicted(1.0) - waits) < _LEAST_WAIT * timeline.seconds:
        return rates
    most_gained = [
        now / most
        for name in ("d2h", "h2d", "write", "read")
        if (now := getattr(rates, name)) and (most := getattr(fastest, name))
    ]
    low, high = min(max(most_gained, default=1.0), 1.0), _MOST
    if predicted(low) >= waits:
        return _slower(rates, low)
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
        if field.name not in ("overhead", "contention")
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
