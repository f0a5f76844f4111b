# SPDX-License-Identifier: Apache-2.0
"""Simulated lanes: order, overhead, and the slower rate while the opposite lane is busy."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ssdtrain.lanes import Lanes
from ssdtrain.timeline import Rates


def test_transfers_of_a_lane_end_in_order() -> None:
    lanes = Lanes(Rates(d2h=10.0, overhead=0.5))
    first = lanes.submit("d2h", 0, 20, 1.0)
    second = lanes.submit("d2h", 1, 10, 1.0)
    assert lanes.finish(second) == pytest.approx(5.0)
    assert (first.begin, first.end) == pytest.approx((1.0, 3.5))
    assert second.begin == first.end


def test_opposite_lanes_slow_each_other_only_while_both_are_busy() -> None:
    lanes = Lanes(Rates(d2h=5.0, h2d=5.0, d2h_alone=10.0, h2d_alone=10.0))
    out = lanes.submit("d2h", 0, 100, 0.0)
    back = lanes.submit("h2d", 1, 20, 2.0)
    # 20 bytes alone until 2, then 5 a second for 4 seconds, then the last 60 alone again.
    assert lanes.finish(back) == pytest.approx(6.0)
    assert lanes.finish(out) == pytest.approx(12.0)


def test_the_drive_does_not_slow_the_link() -> None:
    lanes = Lanes(Rates(5.0, 5.0, 5.0, 5.0, d2h_alone=10.0, read_alone=5.0))
    out = lanes.submit("d2h", 0, 10, 0.0)
    lanes.submit("read", 1, 100, 0.0)
    assert lanes.finish(out) == pytest.approx(1.0)


def test_a_transfer_waits_for_the_one_before_it_on_its_way() -> None:
    lanes = Lanes(Rates(d2h=10.0, write=2.0))
    out = lanes.submit("d2h", 0, 10, 0.0)
    write = lanes.submit("write", 0, 10, 0.0, out)
    assert lanes.finish(write) == pytest.approx(6.0)
    assert write.begin == pytest.approx(1.0)


def test_the_devices_busy_lanes_are_counted() -> None:
    lanes = Lanes(Rates(10.0, 10.0, 1.0, 1.0))
    lanes.submit("d2h", 0, 10, 1.0)
    write = lanes.submit("write", 1, 100, 1.0)
    assert lanes.device_busy(0.5 + 1.0) == pytest.approx(0.5)
    assert lanes.device_busy(3.0) == pytest.approx(1.0)
    lanes.submit("d2h", 2, 20, 3.0)
    lanes.submit("h2d", 3, 10, 4.0)
    assert lanes.device_busy(4.5) == pytest.approx(1.0 + 1.5 + 0.5)
    lanes.finish(write)
    assert lanes.device_busy(200.0) == pytest.approx(4.0)


def test_without_a_link_the_drives_lanes_are_the_devices() -> None:
    lanes = Lanes(Rates(write=10.0, read=10.0))
    lanes.submit("write", 0, 10, 0.0)
    assert lanes.device_busy(5.0) == pytest.approx(1.0)


def test_a_lane_that_is_not_there_is_named() -> None:
    with pytest.raises(ValueError, match=r"group 3 .*no h2d lane"):
        Lanes(Rates(d2h=1.0)).submit("h2d", 3, 1, 0.0)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(["d2h", "h2d"]), st.integers(1, 30), st.integers(0, 5)),
        min_size=1,
        max_size=8,
    )
)
def test_lanes_agree_with_small_steps_of_time(jobs: list[tuple[str, int, int]]) -> None:
    lanes = Lanes(Rates(4.0, 4.0, d2h_alone=8.0, h2d_alone=8.0))
    now = 0.0
    for lane, nbytes, pause in jobs:
        now += pause
        lanes.submit(lane, 0, nbytes, now)  # type: ignore[arg-type]
    for transfer in lanes.transfers:
        lanes.finish(transfer)
    # The same, byte by byte: all events fall on multiples of a small step.
    queues = {name: [t for t in lanes.transfers if t.lane == name] for name in ("d2h", "h2d")}
    left = {id(t): float(t.nbytes) for t in lanes.transfers}
    step, clock = 1 / 64, 0.0
    ends: dict[int, float] = {}
    while any(queues.values()):
        active = [q[0] for q in queues.values() if q and q[0].ready <= clock + 1e-9]
        rate = 4.0 if len(active) == 2 else 8.0
        clock += step
        for transfer in active:
            left[id(transfer)] -= rate * step
            if left[id(transfer)] <= 1e-9:
                ends[id(transfer)] = clock
                queues[transfer.lane].pop(0)
    for transfer in lanes.transfers:
        assert transfer.end == pytest.approx(ends[id(transfer)], abs=len(jobs) * 2 * step)
