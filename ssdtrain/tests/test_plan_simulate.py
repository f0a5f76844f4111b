# SPDX-License-Identifier: Apache-2.0
"""Plans played on steps small enough to work out by hand."""

from __future__ import annotations

import pytest
from plan_steps import Builder, gpt

from ssdtrain.plan import GroupPlan, Plan, Where
from ssdtrain.simulate import Simulation, keep_everything, simulate
from ssdtrain.timeline import Rates, Timeline

LINK = Rates(d2h=10.0, h2d=10.0)
HOST, DISK, RECOMPUTE = Where.HOST, Where.DISK, Where.RECOMPUTE


def two_groups(device_type: str = "cuda", **second: object) -> Timeline:
    """Save a (10 bytes) at 1 s, b (20) at 2 s; need b at 3 s, a at 5 s; the step takes 6 s."""
    s = Builder()
    s.now = 1.0
    s.allocate(10)
    s.save("a", 10)
    s.now = 2.0
    s.allocate(20)
    s.save("b", 20, **second)
    s.now = 3.0
    s.need("b")
    s.allocate(4)
    s.release("b")
    s.now = 5.0
    s.need("a")
    s.free(4)
    s.release("a")
    s.now = 6.0
    return s.build(device_type)


def play(timeline: Timeline, a: GroupPlan, b: GroupPlan, rates: Rates = LINK) -> Simulation:
    plan = Plan((a, b))
    plan.check(timeline)
    return simulate(timeline, rates, plan)


A, B = GroupPlan(10), GroupPlan(20)


def test_keeping_everything_is_the_step_as_it_was() -> None:
    timeline = two_groups()
    found = play(timeline, A, B)
    assert found.between.tolist() == [10, 30, 30, 34, 14]
    assert found.tick_seconds.tolist() == [1.0, 2.0, 3.0, 5.0]
    assert found.prediction == keep_everything(timeline)
    assert found.prediction.peak_bytes == 34
    assert not found.transfers


def test_memory_is_free_from_drop_to_load_and_nothing_waits() -> None:
    found = play(two_groups(), GroupPlan(10, HOST, drop_at=1, load_at=2), B)
    assert found.between.tolist() == [10, 30, 20, 34, 14]
    assert found.prediction.seconds == 6.0
    assert not found.waits
    assert [(t.lane, t.begin, t.end) for t in found.transfers] == [
        ("d2h", 1.0, 2.0),
        ("h2d", 3.0, 4.0),
    ]
    assert found.prediction.host_bytes == 10


def test_computation_waits_at_a_drop_that_is_too_early() -> None:
    found = play(two_groups(), GroupPlan(10, HOST, drop_at=0, load_at=2), B)
    assert found.between.tolist() == [10, 20, 20, 34, 14]
    assert [(w.tick, w.group, w.cause, w.seconds) for w in found.waits] == [(0, 0, "drop", 1.0)]
    assert found.tick_seconds.tolist() == [2.0, 3.0, 4.0, 6.0]
    assert found.prediction.seconds == 7.0
    assert found.prediction.wait_seconds == 1.0


def test_computation_waits_for_a_load_that_is_too_late() -> None:
    found = play(two_groups(), GroupPlan(10, HOST, drop_at=1, load_at=3), B)
    assert found.between.tolist() == [10, 30, 20, 24, 14]
    assert [(w.tick, w.group, w.cause, w.seconds) for w in found.waits] == [(3, 0, "load", 1.0)]


def test_a_load_does_not_start_before_its_store_has_ended() -> None:
    rates = Rates(d2h=5.0, h2d=10.0)
    found = play(two_groups(), A, GroupPlan(20, HOST, drop_at=1, load_at=1), rates)
    # Stored from 2 to 6, for which computation waits at the drop; back at 8.
    assert [(t.lane, t.begin, t.end) for t in found.transfers] == [
        ("d2h", 2.0, 6.0),
        ("h2d", 6.0, 8.0),
    ]
    assert found.prediction.seconds == 6.0 + 4.0 + 1.0


def test_what_is_needed_before_its_drop_stays() -> None:
    found = play(two_groups(), A, GroupPlan(20, HOST, drop_at=2, load_at=2))
    assert found.between.tolist() == [10, 30, 30, 34, 14]
    late = Plan((A, GroupPlan(20, HOST, drop_at=3, load_at=3)))
    with pytest.raises(ValueError, match=r"group 1.*drop_at is tick 3"):
        late.check(two_groups())


def test_what_something_else_keeps_alive_frees_nothing() -> None:
    found = play(two_groups(frees=False), A, GroupPlan(20, HOST, drop_at=1, load_at=2))
    assert found.between.tolist() == [10, 30, 30, 34, 14]
    assert [t.lane for t in found.transfers] == ["d2h"]


def test_disk_goes_through_pinned_buffers() -> None:
    rates = Rates(d2h=10.0, h2d=10.0, write=20.0, read=20.0)
    plan = GroupPlan(10, DISK, drop_at=1, read_at=2, load_at=2)
    found = play(two_groups(), plan, B, rates)
    assert [(t.lane, t.begin, t.end) for t in found.transfers] == [
        ("d2h", 1.0, 2.0),
        ("write", 2.0, 2.5),
        ("read", 3.0, 3.5),
        ("h2d", 3.5, 4.5),
    ]
    # The host would block at the load until the read has ended.
    assert [(w.tick, w.cause, w.seconds) for w in found.waits] == [(2, "read", 0.5)]
    p = found.prediction
    assert (p.host_bytes, p.disk_bytes, found.disk_peak) == (10, 10, 10)


def test_on_the_cpu_the_drive_takes_tensors_as_they_are() -> None:
    rates = Rates(write=10.0, read=5.0)
    plan = GroupPlan(10, DISK, drop_at=1, load_at=2)
    found = play(two_groups("cpu"), plan, B, rates)
    assert [(t.lane, t.begin, t.end) for t in found.transfers] == [
        ("write", 1.0, 2.0),
        ("read", 3.0, 5.0),
    ]
    assert not found.waits
    assert found.prediction.host_bytes == 0
    with pytest.raises(ValueError, match="is in host memory already"):
        Plan((GroupPlan(10, HOST, drop_at=1), B)).check(two_groups("cpu"))


def test_a_recomputation_takes_time_and_needs_its_input() -> None:
    timeline = two_groups(recipe="gelu", recompute_seconds=0.25, inputs=("a",))
    found = play(timeline, A, GroupPlan(20, RECOMPUTE))
    assert found.between.tolist() == [10, 30, 10, 34, 14]
    assert found.recomputed == ((1, 2, 3.0),)
    assert found.prediction.seconds == 6.25
    assert found.prediction.recompute_seconds == 0.25
    # Its input has to be there at tick 2, two seconds before its own need.
    found = play(timeline, GroupPlan(10, HOST, drop_at=1, load_at=3), GroupPlan(20, RECOMPUTE))
    assert [(w.tick, w.group, w.seconds) for w in found.waits] == [(2, 0, 1.0)]
    assert found.recomputed == ((1, 2, 4.0),)


def test_loads_that_begin_at_one_tick_come_in_the_order_of_their_needs() -> None:
    s = Builder()
    for name in ("a", "b", "c"):
        s.allocate(10)
        s.save(name, 10)
    s.now = 10.0
    for name in ("c", "a", "b"):
        s.need(name)
        s.release(name)
        s.now += 1.0
    plan = Plan((*(GroupPlan(10, HOST, drop_at=2, load_at=3) for _ in "ab"), GroupPlan(10)))
    found = simulate(s.build(), LINK, plan)
    # Against the order of saving b would come first, and a be waited for.
    assert [t.group for t in found.transfers if t.lane == "h2d"] == [0, 1]
    assert not [w for w in found.waits if w.cause == "load"]


def test_an_input_is_held_until_it_was_used() -> None:
    s = Builder()
    s.allocate(3)
    s.save("early", 3)
    s.allocate(5)
    s.save("late", 5, recipe="gelu", recompute_seconds=1.0, inputs=("early",))
    s.need("early")
    s.release("early")
    s.need("late")
    s.release("late")
    s.now = 1.0
    timeline = s.build()
    kept = simulate(timeline, LINK, Plan((GroupPlan(3), GroupPlan(5))))
    assert kept.between.tolist() == [3, 8, 8, 8, 5]
    found = simulate(timeline, LINK, Plan((GroupPlan(3), GroupPlan(5, RECOMPUTE))))
    assert found.between.tolist() == [3, 8, 3, 3, 8]


def test_recomputations_in_a_circle_are_refused() -> None:
    s = Builder()
    for name, source in (("a", "b"), ("b", "a")):
        s.allocate(1)
        s.save(name, 1, recipe="copy")
        s.groups[name]["inputs"] = (source,)
    for name in ("b", "a"):
        s.need(name)
        s.release(name)
    plan = Plan((GroupPlan(1, RECOMPUTE), GroupPlan(1, RECOMPUTE)))
    with pytest.raises(ValueError, match="computed from each other"):
        simulate(s.build(), LINK, plan)


def test_a_plan_for_another_step_is_refused() -> None:
    with pytest.raises(ValueError, match="for 1 groups, the step has 2"):
        simulate(two_groups(), LINK, Plan((A,)))


def test_the_steps_of_gpt_blocks_have_the_peaks_that_were_measured() -> None:
    # On an H200: 21.77 GiB over what is resident, and 18.52.
    assert keep_everything(gpt(12288, 3, 0.8248)).peak_bytes == pytest.approx(
        21.77 * 2**30, rel=0.01
    )
    assert keep_everything(gpt(8192, 4, 0.5091)).peak_bytes == pytest.approx(
        18.52 * 2**30, rel=0.01
    )
