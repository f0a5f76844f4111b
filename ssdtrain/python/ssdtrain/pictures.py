# SPDX-License-Identifier: Apache-2.0
"""Draws a step: memory over time, and below it what each lane was doing. Measures nothing.

Needs matplotlib, which is imported when a picture is drawn and not before.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from datapath_core import UnsupportedError

from .trace_records import Counter, Lane, Quantity, Record, Span, moment

if TYPE_CHECKING:
    from .plan import Plan
    from .simulate import Simulation
    from .timeline import Rates, Timeline

__all__ = ["draw_plan", "draw_trace"]

_WAIT = "wait"
_ROWS = (Lane.COMPUTE.value, _WAIT, *(lane.value for lane in Lane if lane is not Lane.COMPUTE))
_COLOURS = {
    Lane.COMPUTE.value: "tab:gray",
    Lane.RECOMPUTE.value: "tab:purple",
    Lane.D2H.value: "tab:blue",
    Lane.H2D.value: "tab:green",
    Lane.WRITE.value: "tab:cyan",
    Lane.READ.value: "tab:olive",
    _WAIT: "tab:red",
}
_LANES = {"d2h": Lane.D2H, "h2d": Lane.H2D, "write": Lane.WRITE, "read": Lane.READ}


@dataclass
class _Curve:
    """A quantity over time: ``values[i]`` bytes up to (``pre``) or from (``post``) ``times[i]``."""

    label: str
    times: list[float]
    values: list[float]
    style: dict[str, Any]
    steps: str


@dataclass
class _Picture:
    title: str
    end: float  # seconds
    curves: list[_Curve] = field(default_factory=list)
    bars: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    backward: float | None = None

    def bar(self, row: str, begin: float, seconds: float) -> None:
        self.bars.setdefault(row, []).append((begin, seconds))


def draw_plan(
    path: str | os.PathLike[str],
    timeline: Timeline,
    rates: Rates,
    plan: Plan,
    *,
    title: str = "a step under the plan",
) -> Path:
    """Draw the memory of a step under a plan beside that with everything kept, as simulated.

    Parameters
    ----------
    path : path
        Where to put the PNG.
    timeline : Timeline
        The measured step.
    rates : Rates
    plan : Plan
    title : str

    Returns
    -------
    Path
        The file.

    Raises
    ------
    ValueError
        If the plan is for another step than the timeline.
    UnsupportedError
        Without matplotlib.
    """
    from .simulate import kept_memory, simulate

    simulation = simulate(timeline, rates, plan)
    prediction = simulation.prediction
    picture = _Picture(title, max(prediction.seconds, prediction.keep_seconds))
    picture.curves = [
        _Curve(
            "everything kept",
            [tick.seconds for tick in timeline.ticks] + [timeline.seconds],
            [float(value) for value in kept_memory(timeline)],
            {"color": "tab:gray", "linestyle": "--"},
            "pre",
        ),
        _Curve(
            "plan",
            [float(second) for second in simulation.tick_seconds] + [prediction.seconds],
            [float(value) for value in simulation.between],
            {"color": "tab:blue", "linewidth": 1.8},
            "pre",
        ),
    ]
    needs = [index for index, tick in enumerate(timeline.ticks) if tick.kind == "need"]
    if needs:
        picture.backward = float(simulation.tick_seconds[needs[0]])
    _add_lanes(picture, timeline, simulation)
    return _save(picture, path)


def _add_lanes(picture: _Picture, timeline: Timeline, simulation: Simulation) -> None:
    for transfer in simulation.transfers:
        if transfer.begin is not None and transfer.end is not None:
            picture.bar(_LANES[transfer.lane], transfer.begin, transfer.end - transfer.begin)
    for wait in simulation.waits:
        picture.bar(_WAIT, wait.begin, wait.seconds)
    for group, _, begin in simulation.recomputed:
        picture.bar(Lane.RECOMPUTE, begin, timeline.groups[group].recompute_seconds)


def draw_trace(
    path: str | os.PathLike[str],
    records: Sequence[Record],
    *,
    step: int | None = None,
    title: str | None = None,
) -> Path:
    """Draw the memory of a step as it was, and what the lanes did.

    Parameters
    ----------
    path : path
        Where to put the PNG.
    records : sequence of Span, Instant or Counter
        ``Tracer.records()``.
    step : int, optional
        By default the last one that has spans.
    title : str, optional

    Returns
    -------
    Path
        The file.

    Raises
    ------
    ValueError
        If the records have no span of such a step.
    UnsupportedError
        Without matplotlib.
    """
    spans = [record for record in records if isinstance(record, Span)]
    if not spans:
        raise ValueError("the trace has no spans: run a step while it is on")
    if step is None:
        step = max(span.step for span in spans)
    spans = [span for span in spans if span.step == step]
    if not spans:
        raise ValueError(f"the trace has no span of step {step}; it was forgotten, or never ran")
    begin, end = min(span.begin for span in spans), max(span.end for span in spans)
    picture = _Picture(title or f"step {step} as it was", (end - begin) / 1e9)
    for span in spans:
        row = _WAIT if span.label.startswith(_WAIT) else span.lane.value
        picture.bar(row, (span.begin - begin) / 1e9, (span.end - span.begin) / 1e9)
    counters = sorted((r for r in records if isinstance(r, Counter)), key=moment)
    for quantity in Quantity:
        known = [c for c in counters if c.quantity is quantity and c.time <= end]
        # The last value before the step is what it began with.
        first = sum(c.time <= begin for c in known) - 1
        known = known[max(first, 0) :]
        if known:
            picture.curves.append(
                _Curve(
                    quantity.value,
                    [max(c.time - begin, 0) / 1e9 for c in known] + [picture.end],
                    [float(c.value) for c in known] + [float(known[-1].value)],
                    {"linewidth": 1.8 if quantity is Quantity.DEVICE else 1.0},
                    "post",
                )
            )
    return _save(picture, path)


def _save(picture: _Picture, path: str | os.PathLike[str]) -> Path:
    try:
        # Not pyplot: it would choose a backend for the whole process.
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UnsupportedError(
            f"a picture needs matplotlib, which is not here ({error})"
        ) from error
    rows = [row for row in _ROWS if row in picture.bars]
    figure = Figure(figsize=(10, 4 + 0.35 * len(rows)), layout="constrained", dpi=120)
    FigureCanvasAgg(figure)
    memory, lanes = figure.subplots(2, 1, sharex=True, height_ratios=[8, 1 + len(rows)])
    most = max((max(curve.values) for curve in picture.curves), default=0.0)
    factor, unit = next(
        (f, u)
        for f, u in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"), (1, "B"))
        if most >= f or f == 1
    )
    for curve in picture.curves:
        times, values = curve.times, curve.values
        if curve.steps == "pre":
            times, values = [0.0, *times], [values[0], *values]
        memory.step(
            [1e3 * time for time in times],
            [value / factor for value in values],
            where=curve.steps,
            label=f"{curve.label} (at most {max(values) / factor:.3g} {unit})",
            **curve.style,
        )
    memory.set(title=picture.title, ylabel=f"memory, {unit}")
    memory.set_ylim(bottom=0)
    memory.grid(alpha=0.3)
    if picture.backward is not None:
        dotted = {"color": "black", "linestyle": ":", "linewidth": 0.8}
        memory.axvline(1e3 * picture.backward, label="backward begins", **dotted)
        lanes.axvline(1e3 * picture.backward, **dotted)
    if picture.curves:
        memory.legend(fontsize="small")
    for place, row in enumerate(rows):
        spans = [(1e3 * begin, 1e3 * seconds) for begin, seconds in picture.bars[row]]
        lanes.broken_barh(spans, (place - 0.4, 0.8), color=_COLOURS[row], linewidth=0)
    lanes.set_yticks(range(len(rows)), rows)
    lanes.set_ylim(len(rows) - 0.5, -0.5)
    lanes.set(xlabel="time, ms", xlim=(0, 1e3 * max(picture.end, 1e-9)))
    figure.savefig(path)
    return Path(path)
