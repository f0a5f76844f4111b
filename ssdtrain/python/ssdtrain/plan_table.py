# SPDX-License-Identifier: Apache-2.0
"""A plan for people: a table of runs of groups that do the same, as text or with ``rich``."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .plan import GroupPlan, Plan, Where
from .sizes import size
from .timeline import Timeline

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["plan_lines", "plan_table", "plan_text"]


@dataclass(frozen=True, slots=True)
class _Run:
    """Groups of one size and label, apart from numbers of layers, that go to one place."""

    first: int
    last: int
    count: int
    label: str
    nbytes: int
    where: Where
    drops: tuple[int, ...]
    reads: tuple[int, ...]
    loads: tuple[int, ...]


def plan_text(plan: Plan, timeline: Timeline | None = None) -> str:
    """Return a plan as plain text.

    Parameters
    ----------
    plan : Plan
    timeline : Timeline, optional
        With it, drops are told in milliseconds after the save and loads in milliseconds before
        the need; else in ticks.

    Returns
    -------
    str
    """
    rows = [_columns(timeline), *_rows(plan, timeline)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    return "\n".join([*lines, "", *plan_lines(plan)])


def plan_table(plan: Plan, timeline: Timeline | None = None) -> Table:
    """Return a plan as a ``rich`` table, with prediction and notes as its caption.

    Parameters
    ----------
    plan : Plan
    timeline : Timeline, optional
        As for :func:`plan_text`.

    Returns
    -------
    rich.table.Table

    Raises
    ------
    ImportError
        If ``rich`` is not installed; :func:`plan_text` does without.
    """
    from rich.table import Table
    from rich.text import Text

    # Labels and notes are data, in which brackets are no markup.
    table = Table(title="ssdtrain plan", caption=Text("\n".join(plan_lines(plan))))
    for column in _columns(timeline):
        table.add_column(column, justify="right" if column in ("groups", "bytes") else "left")
    for row in _rows(plan, timeline):
        table.add_row(*(Text(cell) for cell in row))
    return table


def plan_lines(plan: Plan) -> list[str]:
    """Return bytes by place, the prediction and the notes of a plan, a line each."""
    totals = [
        f"{place.value} {size(total)}"
        for place in Where
        if (total := sum(g.nbytes for g in plan.groups if g.where is place))
    ]
    lines = [f"{len(plan.groups)} groups: {', '.join(totals) or 'nothing is saved'}"]
    p = plan.prediction
    if p is None:
        lines.append("no prediction: the plan was edited, or made by hand")
    else:
        more = p.seconds / p.keep_seconds - 1 if p.keep_seconds else 0.0
        less = p.peak_bytes / p.keep_peak_bytes - 1 if p.keep_peak_bytes else 0.0
        lines.append(
            f"predicted: peak {size(p.peak_bytes)} ({less:+.1%} of {size(p.keep_peak_bytes)}),"
            f" step {p.seconds * 1e3:.1f} ms ({more:+.1%}: waits {p.wait_seconds * 1e3:.1f} ms,"
            f" recomputation {p.recompute_seconds * 1e3:.1f} ms),"
            f" pinned {size(p.host_bytes)}, written {size(p.disk_bytes)}"
        )
    return lines + [f"note: {note}" for note in plan.notes]


def _rows(plan: Plan, timeline: Timeline | None) -> Iterable[tuple[str, ...]]:
    for run in _runs(plan.groups, timeline):
        numbers = str(run.first) if run.count == 1 else f"{run.first}-{run.last}"
        if run.last - run.first + 1 != run.count:
            numbers = f"{run.count} of {numbers}"
        unit = "" if timeline is None else " ms"
        yield (
            numbers,
            run.label,
            size(run.nbytes),
            run.where.value,
            _span(run.drops, unit),
            _span(run.reads, unit),
            _span(run.loads, unit),
        )


def _runs(groups: tuple[GroupPlan, ...], timeline: Timeline | None) -> list[_Run]:
    """Fold what has the same size, place and label, apart from numbers of layers."""
    found: dict[tuple[str, Where, int], _Run] = {}
    for index, group in enumerate(groups):
        # Numbers of layers, not those of dtypes and shapes.
        label = re.sub(r"\b\d+\b", "*", group.label)
        drop, read, load = _moments(index, group, timeline)
        key = (label, group.where, group.nbytes)
        known = found.get(key)
        if known is None:
            found[key] = _Run(
                index, index, 1, group.label, group.nbytes, group.where, drop, read, load
            )
        else:
            found[key] = dataclasses.replace(
                known,
                last=index,
                count=known.count + 1,
                label=group.label if group.label == known.label else label,
                nbytes=known.nbytes + group.nbytes,
                drops=known.drops + drop,
                reads=known.reads + read,
                loads=known.loads + load,
            )
    return list(found.values())


def _moments(
    index: int, plan: GroupPlan, timeline: Timeline | None
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    ticks = (plan.drop_at, plan.read_at, plan.load_at)
    if timeline is None:
        drop, read, load = (() if tick is None else (tick,) for tick in ticks)
        return drop, read, load
    group = timeline.groups[index]
    saved = timeline.ticks[group.saved_at].seconds
    need = timeline.seconds if group.needed_at is None else timeline.ticks[group.needed_at].seconds
    at = [None if tick is None else timeline.ticks[tick].seconds for tick in ticks]
    drop = () if at[0] is None else (round((at[0] - saved) * 1e3),)
    read, load = (() if s is None else (round((need - s) * 1e3),) for s in at[1:])
    return drop, read, load


def _columns(timeline: Timeline | None) -> tuple[str, ...]:
    if timeline is None:
        return ("groups", "what", "bytes", "where", "drop tick", "read tick", "load tick")
    after, before = "after save", "before need"
    return ("groups", "what", "bytes", "where", f"drop {after}", f"read {before}", f"load {before}")


def _span(values: tuple[int, ...], unit: str) -> str:
    if not values:
        return ""
    low, high = min(values), max(values)
    return f"{low}{unit}" if low == high else f"{low}-{high}{unit}"
