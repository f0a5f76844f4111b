# SPDX-License-Identifier: Apache-2.0
"""Writes records of a trace in Chrome's trace-event format, which Perfetto reads; records nothing.

Source: "Trace Event Format", the Chromium project.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from .trace_records import Counter, Instant, Lane, Record, Span, moment

__all__ = ["rows", "trace_events", "write"]

_STORES = (Lane.D2H, Lane.WRITE)
_LOADS = (Lane.READ, Lane.H2D)
# A lane whose transfers overlap gets rows of its own for these, next to each other.
_ROWS_PER_LANE = 1000


def write(records: Sequence[Record], path: str | os.PathLike[str]) -> None:
    """Write records to a file; raises ``OSError`` if it cannot be written."""
    document = {
        "traceEvents": trace_events(records),
        "displayTimeUnit": "ms",
        "otherData": {"producer": "ssdtrain", "clock": "host, monotonic, 0 at the first record"},
    }
    Path(path).write_text(json.dumps(document, separators=(",", ":")), encoding="utf-8")


def trace_events(records: Sequence[Record]) -> list[dict[str, Any]]:
    """Events of the format: lanes are threads, counters are counters, arrows follow a group.

    Parameters
    ----------
    records : sequence of Span, Instant or Counter

    Returns
    -------
    list of dict
        Times in microseconds since the first record.
    """
    process = os.getpid()
    begin = min((moment(record) for record in records), default=0)

    def at(nanoseconds: int) -> float:
        return round((nanoseconds - begin) / 1000, 3)

    events = [_name("process_name", process, 0, "ssdtrain")]
    arrows: dict[tuple[int, int], list[tuple[Span, int]]] = defaultdict(list)
    lanes = list(Lane)
    for number, lane in enumerate(lanes):
        spans = [record for record in records if isinstance(record, Span) and record.lane is lane]
        marks = [r for r in records if isinstance(r, Instant) and r.lane is lane]
        if not spans and not marks:
            continue
        first = 1 + number * _ROWS_PER_LANE
        for row, placed in enumerate(rows(spans, nested=lane is Lane.COMPUTE) or [[]]):
            thread = first + row
            events += [
                _name("thread_name", process, thread, lane.value if row == 0 else f"{lane} +{row}"),
                _sort_index(process, thread),
            ]
            for span in placed:
                events.append(
                    {
                        "name": span.label,
                        "cat": lane.value,
                        "ph": "X",
                        "ts": at(span.begin),
                        "dur": round((span.end - span.begin) / 1000, 3),
                        "pid": process,
                        "tid": thread,
                        "args": _arguments(span),
                    }
                )
                if span.group >= 0 and lane in _STORES + _LOADS:
                    arrows[span.step, span.group].append((span, thread))
        for mark in marks:
            events.append(
                {
                    "name": mark.label,
                    "cat": lane.value,
                    "ph": "i",
                    "s": "t",
                    "ts": at(mark.time),
                    "pid": process,
                    "tid": first,
                    "args": _arguments(mark),
                }
            )
    for record in records:
        if isinstance(record, Counter):
            events.append(
                {
                    "name": record.quantity.value,
                    "ph": "C",
                    "ts": at(record.time),
                    "pid": process,
                    "tid": 0,
                    "args": {"bytes": record.value},
                }
            )
    for identifier, (key, path) in enumerate(sorted(arrows.items())):
        for phase, span, thread in _arrow(path):
            event = {
                "name": f"group {key[1]}",
                "cat": "group",
                "ph": phase,
                "id": identifier,
                "ts": at(span.begin),
                "pid": process,
                "tid": thread,
            }
            # Bind to the span that begins here, not to the next one.
            events.append(event if phase == "s" else {**event, "bp": "e"})
    return events


def rows(spans: Iterable[Span], *, nested: bool) -> list[list[Span]]:
    """Distribute spans over as few rows as it takes for none to overlap in a row.

    Parameters
    ----------
    spans : iterable of Span
    nested : bool
        Whether one may lie within another in a row.
    """
    placed: list[list[Span]] = []
    open_spans: list[list[int]] = []  # ends of the spans that are open in a row, innermost last
    for span in sorted(spans, key=lambda span: (span.begin, -span.end)):
        for row, ends in zip(placed, open_spans, strict=True):
            while ends and ends[-1] <= span.begin:
                ends.pop()
            if not ends or (nested and span.end <= ends[-1]):
                row.append(span)
                ends.append(span.end)
                break
        else:
            placed.append([span])
            open_spans.append([span.end])
    return placed


def _arrow(path: list[tuple[Span, int]]) -> list[tuple[str, Span, int]]:
    """One arrow through the transfers of a group, from its first store to its last load."""
    path = sorted(path, key=lambda step: step[0].begin)
    # Pieces of one transfer on a lane are one stop.
    stops: list[tuple[Span, int]] = []
    for span, thread in path:
        if not stops or (stops[-1][0].lane, stops[-1][0].sequence) != (span.lane, span.sequence):
            stops.append((span, thread))
    lanes = [span.lane for span, _ in stops]
    if len(stops) < 2 or lanes[0] not in _STORES or lanes[-1] not in _LOADS:
        return []
    phases = ["s"] + ["t"] * (len(stops) - 2) + ["f"]
    return [(phase, *stop) for phase, stop in zip(phases, stops, strict=True)]


def _arguments(record: Span | Instant) -> dict[str, Any]:
    found: dict[str, Any] = {"step": record.step}
    if record.group >= 0:
        found["group"] = record.group
    if record.nbytes:
        found["bytes"] = record.nbytes
    if isinstance(record, Span):
        if record.nbytes and record.end > record.begin:
            found["GB/s"] = round(record.nbytes / (record.end - record.begin), 3)
        if record.failed:
            found["failed"] = True
    return found


def _name(kind: str, process: int, thread: int, name: str) -> dict[str, Any]:
    return {"name": kind, "ph": "M", "pid": process, "tid": thread, "args": {"name": name}}


def _sort_index(process: int, thread: int) -> dict[str, Any]:
    arguments = {"sort_index": thread}
    return {
        "name": "thread_sort_index", "ph": "M", "pid": process, "tid": thread, "args": arguments,
    }  # fmt: skip
