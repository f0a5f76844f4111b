# SPDX-License-Identifier: Apache-2.0
"""The benchmark's arithmetic of what a drive moved in the time that it had."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))

from drive_use import Drive, DriveMeter, Use, moved


def test_bytes_within_a_time() -> None:
    # Handed over at once, written one after the other.
    spans = [(0.0, 1.0, 100), (0.0, 2.0, 100), (0.0, 4.0, 100)]
    assert moved(iter(spans), 0.0, 4.0) == pytest.approx(300)
    assert moved(iter(spans), 0.0, 2.0) == pytest.approx(200)
    assert moved(iter(reversed(spans)), 1.5, 3.0) == pytest.approx(100)
    assert moved(iter(spans), 5.0, 6.0) == 0
    # Two that ended at one moment share the time up to it.
    assert moved(iter([(0.0, 1.0, 100), (0.0, 1.0, 50)]), 0.0, 1.0) == pytest.approx(150)


def test_shares_are_of_each_directions_own_time() -> None:
    drive = Drive.mean(Drive(write=3e9, read=1e9), Drive(write=5e9, read=3e9))
    use = Use(written=1e9, read=1e9, forward=0.5, backward=1.0, drive=drive)
    assert use.shares == (0.5, 0.5)


def test_a_drive_has_both_rates(tmp_path: Path) -> None:
    with DriveMeter(str(tmp_path), 1 << 20, 4) as meter:
        for seconds in (0.0, 0.01):
            found = meter.measure(seconds)
            assert found.write > 0
            assert found.read > 0
    assert list(tmp_path.iterdir()) == []
