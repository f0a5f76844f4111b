# SPDX-License-Identifier: Apache-2.0
"""The printed plan."""

from __future__ import annotations

import io

import pytest
from plan_steps import LINK, gpt
from rich.console import Console

from ssdtrain.optimise import optimise
from ssdtrain.plan import GroupPlan, Limits, Plan, Prediction, Where
from ssdtrain.plan_table import plan_lines, plan_table, plan_text

HOST, DISK = Where.HOST, Where.DISK


def test_groups_are_folded_by_label_and_place() -> None:
    groups = (
        GroupPlan(1024, HOST, 2, None, 9, "up 0"),
        GroupPlan(512, label="norm"),
        GroupPlan(1024, HOST, 4, None, 7, "up 1"),
        GroupPlan(1024, HOST, 5, None, 6, "up 2"),
        GroupPlan(1024, label="up 3"),
        GroupPlan(1 << 30, DISK, 5, 6, 7, "x"),
    )
    lines = plan_text(Plan(groups, notes=("something",))).splitlines()
    cells = [line.split() for line in lines[1:5]]
    assert cells == [
        ["3", "of", "0-3", "up", "*", "3.00", "KiB", "host", "2-5", "6-9"],
        ["1", "norm", "512", "B", "keep"],
        ["4", "up", "3", "1.00", "KiB", "keep"],
        ["5", "x", "1.00", "GiB", "disk", "5", "6", "7"],
    ]
    assert lines[6] == "6 groups: keep 1.50 KiB, host 3.00 KiB, disk 1.00 GiB"
    assert lines[7].startswith("no prediction")
    assert lines[8] == "note: something"


def test_shapes_and_dtypes_are_not_folded() -> None:
    groups = tuple(GroupPlan(8, label=f"bfloat16 16x{n} layers.{n % 2}.norm1") for n in (4, 5, 4))
    text = plan_text(Plan(groups))
    assert "2 of 0-2  bfloat16 16x4 layers.0.norm1" in text
    assert "bfloat16 16x5 layers.1.norm1" in text
    groups = tuple(GroupPlan(8, label=f"bfloat16 16x4 layers.{n}.norm1") for n in range(3))
    assert "bfloat16 16x4 layers.*.norm1" in plan_text(Plan(groups))


def test_the_prediction_in_words() -> None:
    prediction = Prediction(1.05, 1.0, 3 << 30, 4 << 30, 0.02, 0.03, 1 << 30, 0)
    text = plan_lines(Plan((), prediction))[1]
    assert text == (
        "predicted: peak 3.00 GiB (-25.0% of 4.00 GiB), step 1050.0 ms (+5.0%: waits 20.0 ms,"
        " recomputation 30.0 ms), pinned 1.00 GiB, written 0 B"
    )


def test_every_byte_is_in_the_table() -> None:
    timeline = gpt(8192, 4, 0.5091)
    plan = optimise(timeline, LINK, Limits(host_bytes=64 << 30))
    text = plan_text(plan, timeline)
    assert "drop after save" in text
    assert " ms" in text.splitlines()[2]
    sums = [line.split() for line in text.splitlines()[1:] if " GiB " in line or " MiB " in line]
    total = 0.0
    for row in sums:
        for unit, scale in (("GiB", 1.0), ("MiB", 1 / 1024)):
            if unit in row and row[0] not in ("predicted:", "32"):
                total += float(row[row.index(unit) - 1]) * scale
    assert total == pytest.approx(sum(g.nbytes for g in timeline.groups) / 2**30, rel=0.01)


def test_as_a_rich_table() -> None:
    plan = Plan((GroupPlan(1024, HOST, 2, None, 9, "a [b] c"),), notes=("[red]",))
    out = io.StringIO()
    Console(file=out, width=120).print(plan_table(plan))
    # Brackets are data.
    assert "a [b] c" in out.getvalue()
    assert "note: [red]" in out.getvalue()
