# SPDX-License-Identifier: Apache-2.0
"""Pictures are drawn from what was measured or simulated, and from nothing else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from datapath_core import UnsupportedError
from ssdtrain import pictures
from ssdtrain.pictures import draw_plan, draw_trace
from ssdtrain.plan import GroupPlan, Plan, Where
from ssdtrain.simulate import simulate
from ssdtrain.timeline import Rates, SavedGroup, Tick, Timeline
from ssdtrain.trace import Lane, Quantity, Span, Tracer

MIB = 1 << 20
RATES = Rates(d2h=1e9, h2d=1e9)


def timeline() -> Timeline:
    """Three groups of 100 MiB, saved at 1, 2, 3 s, needed in reverse at 4, 5, 6 s."""
    ticks = [Tick("save", n, n + 1.0, 10 * MIB, 20 * MIB) for n in range(3)]
    ticks += [Tick("need", 2 - n, n + 4.0, 10 * MIB, 30 * MIB) for n in range(3)]
    groups = [SavedGroup(100 * MIB, n, 5 - n, 5 - n) for n in range(3)]
    return Timeline(tuple(ticks), tuple(groups), 7.0, 20 * MIB)


def plan() -> Plan:
    first = GroupPlan(100 * MIB, Where.HOST, drop_at=1, load_at=4)
    return Plan((first, GroupPlan(100 * MIB), GroupPlan(100 * MIB)))


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What was to be drawn, as data."""
    found: list[Any] = []
    save = pictures._save

    def remember(picture: Any, path: Any) -> Path:
        found.append(picture)
        return save(picture, path)

    monkeypatch.setattr(pictures, "_save", remember)
    return found


def is_picture(path: Path) -> bool:
    data = path.read_bytes()
    return data.startswith(b"\x89PNG") and len(data) > 5_000


def test_a_plan_beside_keeping(tmp_path: Path, drawn: list[Any]) -> None:
    path = draw_plan(tmp_path / "plan.png", timeline(), RATES, plan())
    assert path == tmp_path / "plan.png"
    assert is_picture(path)
    (picture,) = drawn
    keep, planned = picture.curves
    expected = simulate(timeline(), RATES, plan())
    assert max(keep.values) == expected.prediction.keep_peak_bytes == 330 * MIB
    assert max(planned.values) == expected.prediction.peak_bytes < 330 * MIB
    assert len(planned.times) == len(planned.values) == 7
    assert picture.backward == pytest.approx(4.0)
    assert set(picture.bars) == {Lane.D2H, Lane.H2D}
    ((begin, seconds),) = picture.bars[Lane.D2H]
    assert begin == pytest.approx(1.0)
    assert seconds == pytest.approx(100 * MIB / 1e9)


def test_waits_and_recomputation_are_bars(tmp_path: Path, drawn: list[Any]) -> None:
    groups = list(timeline().groups)
    groups[1] = SavedGroup(
        100 * MIB, 1, 4, 4, recipe="gelu", recompute_seconds=0.25, recompute_inputs=(0,)
    )
    line = Timeline(timeline().ticks, tuple(groups), 7.0, 20 * MIB)
    slow = Rates(d2h=50e6, h2d=50e6)
    mixed = Plan((plan().groups[0], GroupPlan(100 * MIB, Where.RECOMPUTE), GroupPlan(100 * MIB)))
    draw_plan(tmp_path / "plan.png", line, slow, mixed)
    (picture,) = drawn
    expected = simulate(line, slow, mixed)
    assert [seconds for _, seconds in picture.bars[Lane.RECOMPUTE]] == [0.25]
    assert sum(seconds for _, seconds in picture.bars["wait"]) == pytest.approx(
        expected.prediction.wait_seconds
    )
    assert expected.prediction.wait_seconds > 1
    assert picture.end == expected.prediction.seconds


def test_a_plan_of_another_step(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="the plan is for 1 groups, the step has 3"):
        draw_plan(tmp_path / "plan.png", timeline(), RATES, Plan((GroupPlan(5),)))
    assert not (tmp_path / "plan.png").exists()


def test_a_trace(tmp_path: Path, drawn: list[Any]) -> None:
    tracer = Tracer()
    for step in range(2):
        tracer.begin_step(step)
        tracer.counter(Quantity.DEVICE, (step + 1) * MIB)
        token = tracer.begin("forward")
        tracer.end(tracer.begin("wait"), Lane.COMPUTE, "wait", group=0)
        tracer.end(tracer.begin("store"), Lane.WRITE, "store", group=0, nbytes=5)
        tracer.counter(Quantity.DEVICE, (step + 10) * MIB)
        tracer.end(token, Lane.COMPUTE, "forward")
    records = tracer.records()
    assert is_picture(draw_trace(tmp_path / "trace.png", records))
    draw_trace(tmp_path / "first.png", records, step=0, title="the first")
    last, first = drawn
    assert (last.title, first.title) == ("step 1 as it was", "the first")
    (curve,) = last.curves
    assert curve.values == [2 * MIB, 11 * MIB, 11 * MIB]
    assert curve.times[0] == 0
    assert curve.times == sorted(curve.times)
    assert first.curves[0].values == [MIB, 10 * MIB, 10 * MIB]
    assert {row: len(bars) for row, bars in last.bars.items()} == {
        "compute": 1, "wait": 1, "disk write": 1,
    }  # fmt: skip
    assert last.end == pytest.approx(last.bars["compute"][0][1])


def test_a_trace_without_spans(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no spans"):
        draw_trace(tmp_path / "trace.png", Tracer().records())
    with pytest.raises(ValueError, match="no span of step 3"):
        draw_trace(tmp_path / "trace.png", [Span(Lane.D2H, "x", 0, 5, step=2)], step=3)
    # A span alone is enough: no counter, no time.
    assert is_picture(draw_trace(tmp_path / "trace.png", [Span(Lane.D2H, "x", 5, 5)]))


def test_without_matplotlib(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(UnsupportedError, match="needs matplotlib"):
        draw_trace(tmp_path / "trace.png", [Span(Lane.D2H, "x", 0, 5)])


def test_matplotlib_is_not_imported_before() -> None:
    code = "import sys, ssdtrain, ssdtrain.pictures; assert 'matplotlib' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
