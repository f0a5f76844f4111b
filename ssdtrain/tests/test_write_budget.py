# SPDX-License-Identifier: Apache-2.0
"""``write_budget`` and ``drive_rating`` from the offloader's arguments to plans and the report."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch
from plan_steps import LINK, gpt

import ssdtrain
from ssdtrain.plan import Limits
from ssdtrain.wear import DAY

GIB = 1 << 30
RATES = dataclasses.replace(LINK, write=10e9, read=10e9)
LIMITS = Limits(max_slowdown=0.02, host_bytes=8 * GIB, disk_bytes=100 * GIB)


@pytest.mark.parametrize("budget", ["1DWPD", "1DWPD x {tb:.9f}TB", "{gib:.6f}GiB/day", None])
def test_a_step_writes_its_share_of_the_day(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, budget: str | None
) -> None:
    timeline = gpt(8192, 12, 3 * 0.5091)
    a_day = 2 * GIB * DAY / timeline.seconds
    monkeypatch.setattr(ssdtrain.assembly, "capacity_of", lambda directories: a_day)
    if budget is not None:
        budget = budget.format(tb=a_day / 1e12, gib=a_day / GIB)
    off = ssdtrain.Offloader(tmp_path, write_budget=budget)
    steering = off._engine.steps.steering
    assert steering is not None
    prediction = steering._planner(timeline, RATES, LIMITS).prediction
    off.close()
    assert prediction is not None
    # Without a budget the drive takes more than that.
    share = prediction.disk_bytes / (2 * GIB)
    assert 0 < share <= 1 if budget is not None else share > 1


def test_drive_writes_need_a_drive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ssdtrain.assembly, "capacity_of", lambda directories: None)
    for name in ("write_budget", "drive_rating"):
        with pytest.raises(ValueError, match=f"^{name} '1DWPD' .*how large a drive"):
            ssdtrain.Offloader(tmp_path, **{name: "1DWPD"})  # type: ignore[arg-type]


def test_a_rating_in_drive_writes_is_of_the_drives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ssdtrain.assembly, "capacity_of", lambda directories: 2e12)
    off = ssdtrain.Offloader(tmp_path, drive_rating="1DWPD")
    assert off.report()["wear"]["rating_bytes"] == pytest.approx(2e12 * 5 * 365)
    off.close()


@pytest.mark.parametrize("spill", [True, False])
@pytest.mark.parametrize("name", ["write_budget", "drive_rating"])
def test_what_cannot_be_read_is_refused(tmp_path: Path, name: str, spill: bool) -> None:
    with pytest.raises(ValueError, match=f"^{name} 'much'"):
        ssdtrain.Offloader(tmp_path if spill else None, **{name: "much"})  # type: ignore[arg-type]


@pytest.mark.parametrize("given", [{"max_memory": 1}, {"max_slowdown": 0.1}, {"write_budget": 1}])
def test_a_wish_that_nobody_would_hear_is_refused(tmp_path: Path, given: dict[str, float]) -> None:
    (name,) = given
    for plan in ("all", ssdtrain.Plan(())):
        with pytest.raises(ValueError, match=f"^{name} steers the planner"):
            ssdtrain.Offloader(tmp_path, plan=plan, **given)  # type: ignore[arg-type]


def test_bytes_written_show_in_the_report(tmp_path: Path) -> None:
    off = ssdtrain.Offloader(tmp_path, 0, "16MiB", 1, "all", backlog=0, drive_rating="600TBW")
    w = torch.randn(64, 64, requires_grad=True)
    for _ in range(3):
        with off:
            loss = (w * 2).sin().sum()
        loss.backward()
    with off:
        pass
    wear = off.report()["wear"]
    off.close()
    assert wear["steps"] == 3
    assert wear["bytes_written"] == 3 * wear["bytes_last_step"] >= 3 * w.nbytes
    assert wear["bytes_per_day"] == pytest.approx(wear["bytes_written"] / wear["seconds"] * DAY)
    assert wear["lifetime_days"] == pytest.approx(
        (600e12 - wear["bytes_written"]) / wear["bytes_per_day"]
    )
