# SPDX-License-Identifier: Apache-2.0
"""Plans for the disk alone: all of the drive's time is used in which storing lowers the peak."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from plan_steps import LINK, gpt, micro_batches

from ssdtrain.lanes import LaneTransfer
from ssdtrain.optimise import optimise
from ssdtrain.plan import Limits, Where
from ssdtrain.simulate import kept_memory, simulate
from ssdtrain.timeline import Timeline

GIB = 1 << 30
# 16 micro-batches of 1 x 1024 tokens, hidden 8192, 4 layers: half a second on an H200.
STEP = micro_batches(gpt(8192, 4, 0.51 / 16, tokens=1024), 16)


def limits(staging: float) -> Limits:
    nbytes = int(staging * GIB)
    return Limits(None, 0.01, nbytes, 100 * GIB, allow_host=False, staging_bytes=nbytes,
                  allow_recompute=False)  # fmt: skip


def turn_of(step: Timeline) -> float:
    """When everything kept would need the most memory."""
    return step.ticks[int(np.argmax(kept_memory(step))) - 1].seconds


def moved_before(transfer: LaneTransfer, second: float) -> float:
    begin, end = transfer.begin or 0.0, transfer.end or 0.0
    return transfer.nbytes * min(max((second - begin) / (end - begin), 0.0), 1.0)


@pytest.mark.parametrize("staging", [0.25, 1.0])
@pytest.mark.parametrize(
    ("write", "read"), [(1.2e9, 2e9), (3.3e9, 2.2e9), (4.5e9, 30e9), (6e9, 6e9), (10e9, 5e9)]
)
def test_the_drive_writes_from_the_first_save_to_the_turn(
    write: float, read: float, staging: float
) -> None:
    rates = dataclasses.replace(LINK, write=write, read=read)
    plan = optimise(STEP, rates, limits(staging))
    found = simulate(STEP, rates, plan)
    assert {group.where for group in plan.groups} == {Where.KEEP, Where.DISK}
    turn = turn_of(STEP)
    written = sum(moved_before(t, turn) for t in found.transfers if t.lane == "write")
    available = write * (turn - STEP.ticks[STEP.groups[0].saved_at].seconds)
    assert written >= 0.95 * available
    assert found.prediction.seconds <= 1.01 * STEP.seconds
    assert found.prediction.host_bytes <= staging * GIB
    # What has left lowers the peak, all of it.
    less = found.prediction.keep_peak_bytes - found.prediction.peak_bytes
    assert less >= 0.97 * written


@pytest.mark.parametrize("staging", [0.25, 1.0])
def test_the_drive_is_shared_by_reads_only_while_there_are_any(staging: float) -> None:
    alone = {"write_alone": 3.3e9, "read_alone": 2.2e9}
    rates = dataclasses.replace(LINK, write=1.6e9, read=1.1e9, **alone)
    found = simulate(STEP, rates, optimise(STEP, rates, limits(staging)))
    turn = turn_of(STEP)
    written = sum(moved_before(t, turn) for t in found.transfers if t.lane == "write")
    assert written >= 0.9 * 3.3e9 * turn
    assert found.prediction.seconds <= 1.01 * STEP.seconds
    assert found.prediction.host_bytes <= staging * GIB


def test_a_write_budget_is_the_limit_where_it_is_less() -> None:
    rates = dataclasses.replace(LINK, write=6e9, read=6e9)
    plan = optimise(STEP, rates, dataclasses.replace(limits(0.5), write_bytes=GIB // 2))
    assert plan.prediction is not None
    assert 0.9 * GIB / 2 <= plan.prediction.disk_bytes <= GIB / 2


def test_a_drive_that_reads_slowly_is_written_no_more_than_it_can_read() -> None:
    rates = dataclasses.replace(LINK, write=10e9, read=1e9)
    plan = optimise(STEP, rates, limits(0.5))
    found = simulate(STEP, rates, plan)
    back = STEP.seconds - turn_of(STEP)
    assert found.prediction.seconds <= 1.01 * STEP.seconds
    # Some of it is read before the turn, and little less than what there is time for.
    assert 0.8e9 * back <= found.prediction.disk_bytes <= 1e9 * STEP.seconds


def test_micro_batches_are_steps_in_another_order() -> None:
    one = gpt(1024, 2, 0.1, tokens=1024)
    both = micro_batches(one, 2)
    both.check()
    assert both.seconds == pytest.approx(2 * one.seconds)
    saved = sum(group.nbytes for group in one.groups)
    assert kept_memory(both).max() >= kept_memory(one).max() + saved
    assert both.ticks[len(both.ticks) // 2].group >= len(one.groups)
