# SPDX-License-Identifier: Apache-2.0
"""Ratings, budgets, projections and warnings, and what drives say of themselves."""

from __future__ import annotations

import logging
import os
import struct
from pathlib import Path

import pytest

from ssdtrain.drives import capacity_of, drive_states, parse_smart_log
from ssdtrain.wear import (
    DAY,
    WearMeter,
    parse_decimal_bytes,
    parse_rating,
    parse_write_budget,
    write_budget_per_step,
)


@pytest.mark.parametrize(
    ("rating", "capacity", "expected"),
    [
        (600e12, None, 600e12),
        ("600TBW", None, 600e12),
        ("14 PB", None, 14e15),
        ("1TiB", None, 2.0**40),
        ("1DWPD", 7.68e12, 7.68e12 * 1825),
        ("3 DWPD x 6.4TB", None, 3 * 6.4e12 * 1825),
        ("1DWPD x 1TB, 3 years", None, 1e12 * 1095),
    ],
)
def test_ratings(rating: float | str, capacity: float | None, expected: float) -> None:
    assert parse_rating(rating, capacity) == pytest.approx(expected)


@pytest.mark.parametrize("rating", ["", "600", "TBW", "1DWPD", "-1TB", "0TBW", "1.2.3TB", 0, -5.0])
def test_ratings_that_cannot_be_read_are_refused(rating: float | str) -> None:
    with pytest.raises(ValueError, match=r"rating|number"):
        parse_rating(rating)


@pytest.mark.parametrize(
    ("budget", "capacity", "expected"),
    [
        (1e12, None, 1e12),
        ("20TiB/day", None, 20 * 2.0**40),
        ("20TiB per day", None, 20 * 2.0**40),
        ("1GiB/hour", None, 24 * 2.0**30),
        ("1MiB/s", None, DAY * 2.0**20),
        ("512GiB", None, 2.0**39),
        ("1DWPD", 7.68e12, 7.68e12),
        ("0.5DWPD x 2TB", None, 1e12),
    ],
)
def test_budgets(budget: float | str, capacity: float | None, expected: float) -> None:
    assert parse_write_budget(budget, capacity) == pytest.approx(expected)


@pytest.mark.parametrize("budget", ["", "fast", "1TiB/week", "1DWPD", "1DWPD x 1TB 3 years", 0])
def test_budgets_that_cannot_be_read_are_refused(budget: float | str) -> None:
    with pytest.raises(ValueError):
        parse_write_budget(budget)


def test_bools_are_no_sizes() -> None:
    with pytest.raises(TypeError):
        parse_rating(True)
    with pytest.raises(TypeError):
        parse_write_budget(True)


def test_errors_name_the_argument_that_was_given() -> None:
    for rating in ("1DWPD", "much", "0TBW", -1.0):
        with pytest.raises(ValueError, match=r"^drive_rating"):
            parse_rating(rating, name="drive_rating")
    with pytest.raises(ValueError, match=r"^write_budget.*how large a drive"):
        parse_write_budget("1DWPD")
    for what in ([1], None):
        with pytest.raises(TypeError, match=r"^rating"):
            parse_rating(what)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match=r"^write_budget"):
            parse_write_budget(what)  # type: ignore[arg-type]


def test_sizes_as_devices_are_sold() -> None:
    assert parse_decimal_bytes("--gpu-memory", "80GB") == 80e9
    assert parse_decimal_bytes("--gpu-memory", "75 GiB") == 75 * 2.0**30
    for text in ("0GB", "80", "1DWPD"):
        with pytest.raises(ValueError, match=r"^--gpu-memory"):
            parse_decimal_bytes("--gpu-memory", text)


def test_a_day_of_steps_writes_the_budget() -> None:
    assert write_budget_per_step("86400GiB/day", 2.0) == 2 * 2**30
    with pytest.raises(ValueError, match="seconds"):
        write_budget_per_step("1TiB/day", 0.0)


def test_a_meter_projects_the_pace_so_far() -> None:
    meter = WearMeter("600TBW", written_before=100e12)
    assert meter.report()["lifetime_days"] is None
    for _ in range(4):
        meter.step(10**9, 0.5)
    report = meter.report()
    assert report["bytes_written"] == 4 * 10**9
    assert report["bytes_per_step"] == 1e9
    assert report["bytes_per_day"] == pytest.approx(2e9 * DAY)
    assert report["lifetime_days"] == pytest.approx((500e12 - 4e9) / (2e9 * DAY))
    assert report["rating_used"] == pytest.approx((100e12 + 4e9) / 600e12)
    assert not report["warned"]  # Two seconds are no pace.


def test_a_meter_without_rating_projects_nothing() -> None:
    meter = WearMeter()
    meter.step(10**9, 1.0)
    report = meter.report()
    assert report["rating_bytes"] is report["rating_used"] is report["lifetime_days"] is None
    assert report["bytes_per_day"] == pytest.approx(1e9 * DAY)


@pytest.mark.parametrize("rating", [None, "600TBW"])
def test_a_short_life_is_warned_of_once(
    rating: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    meter = WearMeter(rating)
    with caplog.at_level(logging.WARNING, logger="ssdtrain"):
        for _ in range(30):
            meter.step(5 * 10**9, 6.0)  # 72 TB a day: 8 days.
    assert len(caplog.records) == 1
    text = caplog.text
    assert "8 days" in text
    assert ("assumed" in text) == (rating is None)
    assert meter.report()["warned"]


def test_a_long_life_is_not_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    meter = WearMeter("292PB")
    for _ in range(30):
        meter.step(5 * 10**9, 6.0)
    assert not caplog.records


def test_steps_that_cannot_be_are_refused() -> None:
    meter = WearMeter()
    for nbytes, seconds in ((-1, 1.0), (1, -1.0), (1, float("nan")), (1, float("inf"))):
        with pytest.raises(ValueError, match="cannot be"):
            meter.step(nbytes, seconds)
    assert meter.report()["steps"] == 0


def test_a_smart_log_is_read_by_the_specification() -> None:
    log = bytearray(512)
    log[5] = 103
    log[48:64] = struct.pack("<QQ", 7, 1)
    assert parse_smart_log(bytes(log)) == (103, (7 + 2**64) * 512_000)
    with pytest.raises(ValueError, match="512"):
        parse_smart_log(bytes(100))


def fake_sysfs(root: Path, path: Path, mapped: bool) -> None:
    """Two drives, a partition of the first, and a RAID of that and the second."""
    blocks = root / "devices"
    for index in (0, 1):
        disk = blocks / f"sd{index}"
        (disk / "device").mkdir(parents=True)
        (disk / "device" / "model").write_text(f"Model {index}\n")
        (disk / "size").write_text("2000\n")
        (disk / "stat").write_text("1 2 3 4 5 6 70 8\n")
    part = blocks / "sd0" / "sd0p1"
    part.mkdir()
    (part / "partition").write_text("1\n")
    raid = blocks / "md0"
    (raid / "slaves").mkdir(parents=True)
    (raid / "slaves" / "sd0p1").symlink_to(part)
    (raid / "slaves" / "sd1").symlink_to(blocks / "sd1")
    device = path.stat().st_dev
    node = root / "dev" / "block" / f"{os.major(device)}:{os.minor(device)}"
    node.parent.mkdir(parents=True)
    node.symlink_to(raid if mapped else part)


@pytest.mark.parametrize(("mapped", "names"), [(False, ["sd0"]), (True, ["sd0", "sd1"])])
def test_drives_are_found_through_partitions_and_raid(
    tmp_path: Path, mapped: bool, names: list[str]
) -> None:
    fake_sysfs(tmp_path / "sys", tmp_path, mapped)
    states = drive_states(tmp_path, tmp_path / "sys")
    assert [state.device for state in states] == names
    assert states[0].model == "Model 0"
    assert states[0].capacity == 2000 * 512
    assert states[0].written_since_boot == 70 * 512
    assert "no NVMe" in states[0].reason


@pytest.mark.parametrize(("mapped", "drives"), [(False, 1), (True, 2)])
def test_capacity_counts_each_drive_once(tmp_path: Path, mapped: bool, drives: int) -> None:
    sysfs = tmp_path / "sys"
    fake_sysfs(sysfs, tmp_path, mapped)
    assert capacity_of([tmp_path], sysfs) == drives * 2000 * 512
    assert capacity_of([tmp_path, sysfs], sysfs) == drives * 2000 * 512
    assert capacity_of([tmp_path, tmp_path / "missing"], sysfs) is None
    assert capacity_of([], sysfs) is None
    (sysfs / "devices" / "sd0" / "size").write_text("")
    assert capacity_of([tmp_path], sysfs) is None
    assert capacity_of([tmp_path], tmp_path) is None


def test_a_directory_on_no_drive_says_so(tmp_path: Path) -> None:
    (state,) = drive_states(tmp_path, tmp_path)
    assert state.device == ""
    assert "no block device" in state.reason


def test_this_machine_answers(tmp_path: Path) -> None:
    for state in drive_states(tmp_path):
        assert state.reason or state.percentage_used is not None
