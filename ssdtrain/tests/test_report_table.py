# SPDX-License-Identifier: Apache-2.0
"""The report as tables: every figure with its unit, 80 columns, nothing made up."""

from __future__ import annotations

import io
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

import ssdtrain
from ssdtrain.plan import Limits
from ssdtrain.report import print_report, table
from ssdtrain.sizes import size
from ssdtrain.steering import Steering, StepResult
from ssdtrain.timeline import Rates
from ssdtrain.wear import WearMeter

GIB = 1 << 30


def shown(report: dict[str, Any], width: int = 80) -> str:
    console = Console(file=io.StringIO(), width=width)
    console.print(table(report))
    output = console.file
    assert isinstance(output, io.StringIO)
    return output.getvalue()


def line(text: str, begin: str) -> list[str]:
    """The words of the one line that begins so, without its beginning."""
    (found,) = [row for row in text.splitlines() if row.startswith(begin)]
    return found.removeprefix(begin).split()


def report(**more: Any) -> dict[str, Any]:
    return {
        "step": 12,
        "bytes": {"host": 6 * GIB, "disk": 3 * GIB, "recompute": 2 * GIB, "kept": GIB},
        "kept_by_reason": {
            "parameter": {"bytes": 5 * GIB, "tensors": 40},
            "smaller than min_bytes": {"bytes": 300, "tensors": 7},
        },
        "saved_tensors": 100,
        "shared_tensors": 30,
        "forwarded_bytes": 512,
        "loaded_bytes": 9 * GIB,
        "waits": 4,
        "wait_seconds": 0.0125,
        "faults": [],
        "plan": "auto",
        "device_type": "cuda",
        **more,
    }


def test_bytes_have_shares_and_reasons() -> None:
    text = shown(report())
    assert text.splitlines()[0] == "saved tensors of step 12  (cuda, plan auto)"
    assert line(text, "pinned host memory") == ["6.00", "GiB", "50.0", "%"]
    assert line(text, "disk") == ["3.00", "GiB", "25.0", "%"]
    assert line(text, "computed again") == ["2.00", "GiB", "16.7", "%"]
    assert line(text, "kept on the device") == ["1.00", "GiB", "8.3", "%"]
    assert line(text, "all") == ["12.00", "GiB"]
    assert line(text, "parameter (in memory anyway)") == ["5.00", "GiB", "40"]
    assert line(text, "smaller than min_bytes") == ["300", "B", "7"]
    assert line(text, "waits for a transfer") == ["4", "in", "12.500", "ms"]
    assert line(text, "loaded back") == ["9.00", "GiB"]
    for absent in ("predicted", "GB/s", "wear", "fault", "ceiling"):
        assert absent not in text


def test_tiers_lanes_and_wear() -> None:
    tiers = {
        "host": {"budget": 8 * GIB, "stats": {"allocated": GIB, "peak_allocated": 7 * GIB}},
        "disk": {"budget": 200 * GIB, "directories": ["/a", "/b"], "stats": {}},
    }
    lanes = {"d2h": {"bytes": 5 * GIB, "gb_per_second": 51.234}, "read": {"bytes": 0}}
    wear = WearMeter("600TBW")
    for _ in range(10):
        wear.step(GIB, 10.0)
    text = shown(report(tiers=tiers, lanes=lanes, wear=wear.report()))
    assert line(text, "host") == ["8.00", "GiB", "1.00", "GiB", "7.00", "GiB"]
    assert line(text, "disk: /a, /b") == ["200.0", "GiB", "-", "-"]
    assert line(text, "d2h") == ["5.00", "GiB", "51.23"]
    assert "GB/s" in text
    assert "\nread" not in text
    assert line(text, "written in all") == ["10.00", "GiB"]
    assert line(text, "written a step") == ["1.00", "GiB"]
    assert line(text, "written a day at this pace") == ["8.44", "TiB"]
    assert line(text, "of the rating used") == ["0.00", "%"]
    assert line(text, "rating lasts at this pace") == ["65", "days"]
    wear = WearMeter()
    wear.step(GIB, 10.0)
    assert line(shown(report(wear=wear.report())), "of the rating used") == ["rating", "unknown"]
    assert "wear" not in shown(report(wear=WearMeter().report()))


def test_prediction_against_measurement() -> None:
    steering = {
        "mode": "planned",
        "reason": "plan made from measured steps",
        "plan": {"bytes": {}, "groups": 40, "moved": 11},
        "prediction": {"seconds": 2.0, "peak_bytes": 10 * GIB, "wait_seconds": 0.001},
        "measured": {"seconds": 1.9, "peak_bytes": 11 * GIB, "wait_seconds": 0.002},
        "error": {"seconds": -0.05, "peak_bytes": 0.1},
        "replans": 2,
        "last_replan": "step time +4.0%",
        "notes": ["max_memory=4GiB is out of reach"],
    }
    text = shown(report(steering=steering))
    assert line(text, "step time") == ["2.000", "s", "1.900", "s", "-5.0", "%"]
    assert line(text, "peak on the device") == ["10.00", "GiB", "11.00", "GiB", "+10.0", "%"]
    assert line(text, "of this, waits") == ["1.000", "ms", "2.000", "ms"]
    assert "mode planned: plan made from measured steps" in text
    assert "11 of 40 groups do not stay" in text
    assert "replanned because of drift: 2; last: step time +4.0%" in text
    assert "note: max_memory=4GiB is out of reach" in text


def test_steering_that_has_measured_nothing_yet() -> None:
    steering = Steering(Limits(), Rates)
    steering.begin_step()
    text = shown(report(steering=steering.describe()))
    assert "mode stream: first step" in text
    assert "predicted" not in text
    steering.end_step(steering.begin_step(), StepResult([GIB], 1.0, 2 * GIB))
    assert "predicted" not in shown(report(steering=steering.describe()))


def test_everything_is_shown_as_it_is_within_80_columns() -> None:
    name = "subclass [bold]Odd[/bold] with a name that is far longer than the column can ever be"
    text = shown(
        report(
            kept_by_reason={name: {"bytes": 1 << 50, "tensors": 10**9}},
            faults=["storing 5 bytes to disk: [red] No space left on device" + " x" * 60],
            steering={"mode": "planned", "prediction": {"seconds": 10.0**5}, "notes": [name]},
        )
    )
    assert all(len(row) <= 80 for row in text.splitlines())
    assert "[bold]Odd[/bold]" in text
    assert "fault: storing 5 bytes to disk: [red] No space" in text


def test_a_real_report_prints(
    offloader: ssdtrain.Offloader, capsys: pytest.CaptureFixture[str]
) -> None:
    x = torch.randn(64, 64, requires_grad=True)
    with offloader:
        loss = x.exp().sin().sum()
    loss.backward()  # type: ignore[no-untyped-call]
    found = offloader.report()
    print_report(offloader)
    text = capsys.readouterr().out
    assert all(len(row) <= 80 for row in text.splitlines())
    assert line(text, "disk  ")[:2] == size(found["bytes"]["disk"]).split()
    assert found["bytes"]["disk"] > 0


def test_a_step_without_bytes() -> None:
    empty = {"bytes": dict.fromkeys(("host", "disk", "recompute", "kept"), 0)}
    assert line(shown(empty), "kept on the device") == ["0", "B", "-"]


@pytest.mark.parametrize("wrong", [{}, {"host": 3}, None])
def test_no_report(wrong: Any) -> None:
    with pytest.raises(ValueError, match="no 'bytes'"):
        table(wrong)


@given(st.integers(0, 1 << 55))
def test_size_is_within_a_percent_and_short(nbytes: int) -> None:
    figure, unit = size(nbytes).split()
    factor = 1024 ** ("B", "KiB", "MiB", "GiB", "TiB").index(unit)
    assert abs(float(figure) * factor - nbytes) <= 0.01 * nbytes
    assert unit == "TiB" or float(figure) < 1024
    assert size(-nbytes) == ("-" if nbytes else "") + size(nbytes)
