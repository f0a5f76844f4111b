# SPDX-License-Identifier: Apache-2.0
"""Rates from transfers with a clock of their own, and from a real volume."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from datapath_core.io import Volume
from ssdtrain import rates as module
from ssdtrain.lanes import LaneName, Lanes, LaneTransfer
from ssdtrain.rates import measure_pair, measure_rates
from ssdtrain.timeline import Rates


class FakeLanes:
    """Lanes whose time passes when somebody looks."""

    def __init__(self, rates: Rates) -> None:
        self.lanes = Lanes(rates)
        self.now = 0.0

    def clock(self) -> float:
        return self.now

    def start(self, lane: LaneName) -> Callable[[int], FakeTicket]:
        return lambda nbytes: FakeTicket(self, self.lanes.submit(lane, 0, nbytes, self.now))


class FakeTicket:
    def __init__(self, owner: FakeLanes, transfer: LaneTransfer) -> None:
        self.owner, self.transfer = owner, transfer

    def done(self) -> bool:
        # A look takes some time.
        self.owner.now += 1e-5
        self.owner.lanes.advance(self.owner.now)
        return self.transfer.end is not None

    def result(self) -> int:
        self.owner.now = max(self.owner.now, self.owner.lanes.finish(self.transfer))
        return self.transfer.nbytes


def test_rates_alone_and_together_are_told_apart() -> None:
    truth = Rates(48e9, 40e9, overhead=15e-6, d2h_alone=55e9, h2d_alone=50e9)
    fake = FakeLanes(truth)
    found = measure_pair(fake.start("d2h"), fake.start("h2d"), 64 << 20, clock=fake.clock)
    assert found == pytest.approx((55e9, 50e9, 48e9, 40e9, 15e-6), rel=0.03)


def test_lanes_that_do_not_disturb_each_other() -> None:
    fake = FakeLanes(Rates(write=2e9, read=1e9, write_alone=2e9, read_alone=1e9))
    found = measure_pair(fake.start("write"), fake.start("read"), 4 << 20, clock=fake.clock)
    assert found[:4] == pytest.approx((2e9, 1e9, 2e9, 1e9), rel=0.02)
    # What is busy is never faster than what is alone.
    assert found[2] <= found[0]
    assert found[3] <= found[1]


@pytest.fixture
def volume(tmp_path: Path) -> Iterator[Volume]:
    made = Volume([str(tmp_path)], 16 << 20)
    yield made
    made.close()


def test_a_real_volume(volume: Volume, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "DRIVE_BYTES", 4 << 20)
    found = measure_rates(torch.device("cpu"), volume=volume)
    assert min(found.write, found.read) > 0
    assert found.write <= found.write_alone
    assert found.read <= found.read_alone
    assert found.overhead > 0
    assert found.d2h == found.h2d == 0
    assert volume.stats()["allocated"] == 0


def test_a_small_volume_is_measured_with_less(tmp_path: Path) -> None:
    made = Volume([str(tmp_path)], 4 << 20)
    found = measure_rates(torch.device("cpu"), volume=made)
    assert found.write > 0
    assert made.stats()["allocated"] == 0
    made.close()
    tiny = Volume([str(tmp_path)], 1 << 20)
    assert measure_rates(torch.device("cpu"), volume=tiny) == Rates()
    tiny.close()


def test_without_anything_to_measure_there_is_no_lane() -> None:
    assert measure_rates(torch.device("cpu")) == Rates()


@pytest.mark.gpu
def test_a_real_link() -> None:
    from datapath_core import PinnedPool
    from datapath_core.streams import Scheduler

    device = torch.device("cuda:0")
    pool = PinnedPool("256MiB")
    scheduler = Scheduler("cuda:0")
    found = measure_rates(device, scheduler=scheduler, pinned=pool.allocate)
    assert min(found.d2h, found.h2d) > 0
    assert found.d2h <= found.d2h_alone
    assert found.h2d <= found.h2d_alone
    assert found.overhead > 0
    scheduler.close()
    pool.close()
