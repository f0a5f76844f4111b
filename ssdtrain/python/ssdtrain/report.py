# SPDX-License-Identifier: Apache-2.0
"""Shows what ``Offloader.report()`` says as tables of 80 columns; measures and adds up nothing.

Sizes are binary (GiB = 2^30 bytes), rates decimal (GB/s = 10^9 bytes a second).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from .accounting import ALIVE_ANYWAY
from .sizes import size

if TYPE_CHECKING:
    from rich.console import RenderableType

__all__ = ["print_report", "table"]

_WIDTH = 80
_PLACES = {
    "host": "pinned host memory",
    "disk": "disk",
    "recompute": "computed again",
    "kept": "kept on the device",
}


class _Reports(Protocol):
    def report(self) -> dict[str, Any]: ...


def print_report(off: _Reports, console: Console | None = None) -> None:
    """Print what happened to the saved tensors of the last step.

    Parameters
    ----------
    off : Offloader
    console : rich.console.Console, optional
        By default the terminal; 80 columns where the output is none.
    """
    if console is None:
        console = Console()
        if not console.is_terminal:
            console = Console(width=_WIDTH)
    console.print(table(off.report()))


def table(report: Mapping[str, Any]) -> Group:
    """Tables of a report, each with its units; parts that the report does not have are left out.

    Parameters
    ----------
    report : dict
        What ``Offloader.report()`` returned.

    Returns
    -------
    rich.console.Group
        For ``rich.print``; fits 80 columns.

    Raises
    ------
    ValueError
        If ``report`` has no ``"bytes"``: it is no report.
    """
    if not isinstance(report, Mapping) or "bytes" not in report:
        raise ValueError("this is no report: it has no 'bytes'; pass what Offloader.report() gives")
    parts: list[RenderableType] = [_title(report), _places(report)]
    for part in (
        _reasons(report.get("kept_by_reason", {})),
        _tiers(report.get("tiers", {})),
        _lanes(report.get("lanes", {})),
        _motion(report),
        _prediction(report.get("steering")),
        _wear(report.get("wear")),
        _faults(report.get("faults", ())),
    ):
        if part is not None:
            parts += [Text(""), part]
    return Group(*parts)


def _seconds(seconds: float) -> str:
    return f"{seconds:.3f} s" if seconds >= 1 else f"{seconds * 1e3:.3f} ms"


def _new(*columns: str) -> Table:
    made = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False, width=_WIDTH)
    for number, column in enumerate(columns):
        # The first column says what; figures stand right.
        if number == 0:
            made.add_column(column, overflow="fold", ratio=1)
        else:
            made.add_column(column, justify="right", no_wrap=True)
    return made


def _title(report: Mapping[str, Any]) -> Text:
    plan = report.get("plan", "?")
    device = report.get("device_type") or "no device yet"
    text = Text("saved tensors of step ", style="bold")
    text.append(f"{report.get('step', '?')}")
    text.append(f"  ({device}, plan {plan})", style="not bold")
    return text


def _places(report: Mapping[str, Any]) -> Table:
    nbytes: Mapping[str, int] = report["bytes"]
    total = sum(nbytes.values())
    made = _new("where", "bytes", "share")
    for name, value in nbytes.items():
        share = f"{100 * value / total:.1f} %" if total else "-"
        made.add_row(_PLACES.get(name, name), size(value), share)
    made.add_section()
    made.add_row("all", size(total), "")
    return made


def _reasons(reasons: Mapping[str, Mapping[str, int]]) -> Table | None:
    if not reasons:
        return None
    made = _new("stayed because", "bytes", "tensors")
    counted = sorted(reasons.items(), key=lambda item: (item[0] in ALIVE_ANYWAY, -item[1]["bytes"]))
    for reason, found in counted:
        # These are not among the bytes kept: nothing would be free without them.
        note = " (in memory anyway)" if reason in ALIVE_ANYWAY else ""
        made.add_row(Text(reason + note), size(found["bytes"]), str(found["tensors"]))
    return made


def _tiers(tiers: Mapping[str, Mapping[str, Any]]) -> Table | None:
    rows = []
    for name, tier in tiers.items():
        stats = tier.get("stats") or {}
        peak = stats.get("peak_allocated")
        used = size(stats["allocated"]) if "allocated" in stats else "-"
        most = size(peak) if peak is not None else "-"
        where = f"{name}: {', '.join(tier['directories'])}" if tier.get("directories") else name
        rows.append((Text(where), size(tier["budget"]), used, most))
    if not rows:
        return None
    made = _new("tier", "ceiling", "used now", "most used")
    for row in rows:
        made.add_row(*row)
    return made


def _lanes(lanes: Mapping[str, Mapping[str, Any]]) -> Table | None:
    moved = {name: lane for name, lane in lanes.items() if lane.get("bytes")}
    if not moved:
        return None
    made = _new("lane", "bytes", "GB/s")
    for name, lane in moved.items():
        rate = lane.get("gb_per_second")
        made.add_row(name, size(lane["bytes"]), "-" if rate is None else f"{rate:.2f}")
    return made


def _motion(report: Mapping[str, Any]) -> Table:
    made = _new("in this step", "")
    saved, shared = report.get("saved_tensors", 0), report.get("shared_tensors", 0)
    made.add_row("tensors saved (of these without a copy of their own)", f"{saved} ({shared})")
    made.add_row("loaded back", size(report.get("loaded_bytes", 0)))
    made.add_row("still alive when asked for", size(report.get("forwarded_bytes", 0)))
    waits, seconds = report.get("waits", 0), report.get("wait_seconds", 0.0)
    made.add_row("waits for a transfer", f"{waits} in {_seconds(seconds)}")
    return made


def _prediction(steering: Mapping[str, Any] | None) -> RenderableType | None:
    """What :meth:`ssdtrain.steering.Steering.describe` says."""
    if not steering:
        return None
    predicted = steering.get("prediction") or {}
    measured = steering.get("measured") or {}
    errors = steering.get("error") or {}
    made = _new("the plan", "predicted", "measured", "error")
    for key, name, unit in (
        ("seconds", "step time", _seconds),
        ("wait_seconds", "of this, waits", _seconds),
        ("peak_bytes", "peak on the device", size),
    ):
        if key in predicted or key in measured:
            made.add_row(
                name,
                unit(predicted[key]) if key in predicted else "-",
                unit(measured[key]) if key in measured else "-",
                f"{100 * errors[key]:+.1f} %" if key in errors else "",
            )
    lines = [f"mode {steering.get('mode', '?')}: {steering.get('reason', '?')}"]
    if plan := steering.get("plan"):
        lines.append(f"{plan['moved']} of {plan['groups']} groups do not stay")
    if steering.get("replans"):
        lines.append(
            f"replanned because of drift: {steering['replans']}; last: {steering['last_replan']}"
        )
    lines += [f"note: {note}" for note in steering.get("notes", ())]
    text = Text("\n".join(lines))
    return Group(made, text) if made.row_count else text


def _wear(wear: Mapping[str, Any] | None) -> Table | None:
    """What :meth:`ssdtrain.wear.WearMeter.report` says."""
    if not wear or not wear.get("bytes_written"):
        return None
    made = _new("wear of the drives", "")
    made.add_row("written in all", size(wear["bytes_written"]))
    made.add_row("written a step", size(wear["bytes_per_step"]))
    made.add_row("written a day at this pace", size(wear["bytes_per_day"]))
    used, days = wear.get("rating_used"), wear.get("lifetime_days")
    made.add_row("of the rating used", "rating unknown" if used is None else f"{100 * used:.2f} %")
    if days is not None:
        made.add_row("rating lasts at this pace", f"{days:.0f} days")
    return made


def _faults(faults: Sequence[str]) -> Text | None:
    if not faults:
        return None
    return Text("\n".join(f"fault: {fault}" for fault in faults), style="bold red")
