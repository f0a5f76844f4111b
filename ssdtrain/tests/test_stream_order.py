# SPDX-License-Identifier: Apache-2.0
"""The ways of GPU tensors, on the null device: order of streams, spill, needs in every state."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from null_streams import NullStreams, phase_of
from torch import nn

import ssdtrain
from datapath_core import Error
from datapath_core.testing import faults

Make = Callable[..., ssdtrain.Offloader]
Check = Callable[..., Any]
KIB = 1 << 10

TIERS = {
    "host": {"host": "16MiB", "spill": None},
    "disk": {"host": 0},
    "disk, a small way": {"host": 0, "backlog": "48KiB"},
    "disk in chunks": {"host": 0, "backlog": 0},
    "host, then disk": {"host": "300KiB"},
    "both full": {"host": "128KiB", "ssd": "128KiB"},
}


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    made = []

    def offloader(
        delay: float = 0.0,
        seed: int = 0,
        runs_ahead: bool = False,
        hold: str = "",
        **options: Any,
    ) -> ssdtrain.Offloader:
        streams = NullStreams(delay, seed, runs_ahead=runs_ahead, hold=hold)
        monkeypatch.setattr(ssdtrain.offloader, "Streams", lambda: streams)
        given = {"spill": tmp_path, "host": 0, "ssd": "32MiB", "min_bytes": 1, "plan": "all"}
        off = ssdtrain.Offloader(**(given | {"backlog": "32KiB"} | options))
        made.append(off)
        return off

    yield offloader
    for off in made:
        off.close()


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(2 * width, width)
        self.norm = nn.LayerNorm(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a, b = self.up(self.norm(x)).chunk(2, -1)
        return x + nn.functional.dropout(self.down(nn.functional.silu(a) * b), 0.1)


@pytest.fixture(scope="module")
def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(*[Block(32) for _ in range(2)])


@pytest.mark.parametrize("runs_ahead", [False, True], ids=["strict", "ahead"])
@pytest.mark.parametrize("prefetch", [0, "100KiB"])
@pytest.mark.parametrize("tiers", TIERS.values(), ids=TIERS)
def test_bit_equal(
    make: Make,
    same_step: Check,
    model: nn.Module,
    tiers: dict[str, Any],
    prefetch: int | str,
    runs_ahead: bool,
) -> None:
    x = torch.randn(64, 32)
    off = make(0.0002, 3, runs_ahead, prefetch=prefetch, checks=True, **tiers)
    for _ in range(2):
        report = same_step(model, lambda: model(x).square().mean(), off)
    moved = report["bytes"]
    assert moved["host"] + moved["disk"] > 0
    assert not report["faults"]
    gc.collect()
    assert off.report()["live_bytes"] == {}
    host = off.report()["tiers"].get("host")
    if host is not None:
        assert host["resident"] == 0
    # Also where groups are larger than the backlog.
    memory = off._parts.memory
    assert memory.stats().get("peak_allocated", 0) <= memory.budget


def test_memory_goes_at_the_drop_and_not_when_the_copy_ends(make: Make) -> None:
    off = make(runs_ahead=True, hold="copying", host="16MiB", backlog=0)
    w = torch.randn(256, 64, requires_grad=True)
    with off:
        loss = (w * 2).square().sum()
    groups = list(off._engine._table)
    assert [group.state.value for group in groups] == ["stored"]
    assert groups[0].source.get() is None
    assert off.report()["live_bytes"] == {"copying": groups[0].nbytes}
    loss.backward()
    assert torch.equal(w.grad, 8 * w.detach())


def test_forwarded_memory_goes_with_the_graph_and_not_when_the_copy_ends(make: Make) -> None:
    off = make(runs_ahead=True, hold="copying", host="16MiB", backlog="16MiB")
    w = torch.randn(256, 64, requires_grad=True)
    with off:
        loss = (w * 2).square().sum()
    (group,) = off._engine._table
    out = group.stored.out
    loss.backward()
    assert not out.done()
    assert group.source.get() is None
    assert off._engine._lingering.ordered == []
    assert torch.equal(w.grad, 8 * w.detach())


def test_memory_that_a_drive_takes_stays_until_it_has_it(make: Make) -> None:
    off = make(runs_ahead=True, hold="copying", host=0, backlog="40KiB")  # In chunks.
    w = torch.randn(256, 64, requires_grad=True)
    with off:
        loss = (w * 2).square().sum()
    (group,) = off._engine._table
    out = group.stored.out
    loss.backward()
    assert not out.done()
    assert group.source.get() is not None
    residency = off._engine.books.residency
    assert residency.settle() == group.nbytes
    off._engine._streams.open_gate()
    off._engine._wait_for_all()
    off.report()
    assert group.source.get() is None
    assert residency.settle() == 0


def test_nothing_is_given_back_out_of_order(make: Make) -> None:
    # Strict streams, long copies: memory reused too early would show.
    off = make(0.01, 5, host="16MiB", backlog="40KiB")
    w = torch.randn(128, 64, requires_grad=True)
    for _ in range(5):
        with off:
            y = w
            for _ in range(8):
                y = (y * 1.5).sin() + 0.1
            loss = y.sum()
        del y
        found = torch.autograd.grad(loss, w)[0]
        y = w
        for _ in range(8):
            y = (y * 1.5).sin() + 0.1
        assert torch.equal(found, torch.autograd.grad(y.sum(), w)[0])


@pytest.mark.parametrize("phase", ["copying", "writing", "stored", "reading", "loading"])
def test_a_need_in_every_state(make: Make, phase: str) -> None:
    off = make(runs_ahead=True, hold=phase, backlog="1MiB")
    w = torch.randn(64, 64, requires_grad=True)
    with off:
        y = w * 2
        loss = (y * y).sum()
    engine = off._engine
    (group,) = engine._table
    engine._carry_out(ssdtrain.policy.Actions(drops=[group]))
    del y
    if phase in ("stored", "reading", "loading"):
        wait_for_write(group)
    if phase == "reading":
        engine._carry_out(ssdtrain.policy.Actions(reads=[group]))
    if phase == "loading":
        engine._carry_out(ssdtrain.policy.Actions(loads=[group]))
    if phase == "writing":
        group.stored.out.result()
    assert list(off.report()["live_bytes"]) == [phase]
    loss.backward()
    assert torch.equal(w.grad, 8 * w.detach())
    del loss
    assert off.report()["live_bytes"] == {}


def wait_for_write(group: Any) -> None:
    """Until a group's bytes are on disk, or could not be written."""
    with contextlib.suppress(Error, OSError):
        group.stored.write.result()


def test_a_write_that_fails_keeps_the_bytes_on_the_host(make: Make) -> None:
    with faults("write:eio"):
        off = make(backlog="1MiB", runs_ahead=True)
    w = torch.randn(64, 64, requires_grad=True)
    with off:
        loss = (w * 2).square().sum()
    (group,) = off._engine._table
    off._engine._carry_out(ssdtrain.policy.Actions(drops=[group]))
    wait_for_write(group)
    report = off.report()
    assert report["bytes"]["host"] == group.nbytes
    assert "kept in host memory instead" in report["faults"][0]
    loss.backward()
    assert torch.equal(w.grad, 8 * w.detach())


def test_a_read_that_fails_is_tried_again(make: Make) -> None:
    with faults("read:eio@nth=1"):
        off = make(backlog="1MiB", runs_ahead=True, prefetch=0)
    w = torch.randn(64, 64, requires_grad=True)
    with off:
        loss = (w * 2).square().sum()
    (group,) = off._engine._table
    off._engine._carry_out(ssdtrain.policy.Actions(drops=[group]))
    wait_for_write(group)
    with pytest.raises(ssdtrain.faults.IoError, match="could not be read back from disk"):
        loss.backward(retain_graph=True)
    loss.backward()
    assert torch.equal(w.grad, 8 * w.detach())


def test_a_read_that_has_failed_by_the_time_it_is_needed_is_an_error(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    with faults("read:eio@nth=1"):
        off = make(backlog="1MiB", runs_ahead=True, prefetch=0)
    move = NullStreams.move

    def move_and_wait_for_reads(self: NullStreams, into: Any, source: Any, *more: Any, **most: Any):
        ticket = move(self, into, source, *more, **most)
        if phase_of(into, source) == "reading":
            with contextlib.suppress(Error, OSError):
                ticket.result()
        return ticket

    monkeypatch.setattr(NullStreams, "move", move_and_wait_for_reads)
    w = torch.randn(64, 64, requires_grad=True)
    with off:
        loss = (w * 2).square().sum()
    (group,) = off._engine._table
    off._engine._carry_out(ssdtrain.policy.Actions(drops=[group]))
    wait_for_write(group)
    with pytest.raises(ssdtrain.faults.IoError, match="could not be read back from disk"):
        loss.backward(retain_graph=True)
    loss.backward()
    assert torch.equal(w.grad, 8 * w.detach())


def test_auto_keeps_what_the_drive_cannot_take_in_time(make: Make, model: nn.Module) -> None:
    with faults("write:slow@ms=500"):
        off = make(plan="auto", backlog="64KiB")
    with off:
        loss = model(torch.randn(64, 32)).square().mean()
    assert off.report()["kept_by_reason"]["drives behind"]["bytes"] > 0
    loss.backward()


def chain(w: torch.Tensor, count: int = 8) -> torch.Tensor:
    """Saves so many tensors as large as `w`."""
    y = w
    for _ in range(count):
        y = (y * 1.5).sin()
    return y.sum()


def assert_gradient_of_chain(w: torch.Tensor, count: int = 8) -> None:
    assert torch.equal(w.grad, torch.autograd.grad(chain(w, count), w)[0])


@pytest.mark.parametrize("runs_ahead", [False, True], ids=["strict", "ahead"])
def test_a_host_ahead_of_its_device_waits_for_room_to_pass_through(
    make: Make, runs_ahead: bool
) -> None:
    # Four groups fit on their way. None of them is written before the host has to wait.
    off = make(runs_ahead=runs_ahead, hold="writing", plan="auto", backlog="64KiB", prefetch=0)
    streams, looks = off._engine._streams, []

    def look() -> None:
        looks.append(None)
        if len(looks) == 5:
            streams.open_gate()

    streams.busy, streams.on_look = True, look
    w = torch.randn(64, 64, requires_grad=True)
    with off:
        loss = chain(w)
    report = off.report()
    assert len(looks) >= 5
    assert "drives behind" not in report["kept_by_reason"]
    assert report["waits"] == 0  # The device has not stood still.
    assert all(group.stored.tier == "disk" for group in off._engine._table)
    loss.backward()
    assert_gradient_of_chain(w)


def test_a_device_that_stands_still_is_not_kept_waiting_for_room(make: Make) -> None:
    off = make(runs_ahead=True, hold="writing", plan="auto", backlog="64KiB", prefetch=0)
    w = torch.randn(64, 64, requires_grad=True)
    with off:
        loss = chain(w)
    kept = off.report()["kept_by_reason"]
    assert kept["drives behind"]["bytes"] == 4 * w.nbytes
    assert "disk full" not in kept
    loss.backward()
    assert_gradient_of_chain(w)


def test_a_device_that_waits_for_its_host_is_not_waited_for_without_end(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ssdtrain.stores, "_LONGEST_WAIT_NS", 20_000_000)
    off = make(runs_ahead=True, hold="writing", plan="auto", backlog="64KiB", prefetch=0)
    off._engine._streams.busy = True  # And the gate opens after the forward pass only.
    w = torch.randn(64, 64, requires_grad=True)
    with off:
        loss = chain(w)
    assert off.report()["kept_by_reason"]["drives behind"]["bytes"] == 4 * w.nbytes
    loss.backward()
    assert_gradient_of_chain(w)


@pytest.mark.parametrize("busy", [False, True], ids=["idle", "busy"])
def test_room_that_the_last_step_still_has_is_waited_for(make: Make, busy: bool) -> None:
    off = make(runs_ahead=True, plan="auto", backlog="64KiB", prefetch=0)
    streams, memory = off._engine._streams, off._parts.memory
    taken = [memory.allocate(16 * KIB, resident=False) for _ in range(4)]

    class Load:
        def done(self) -> bool:
            return not taken

    memory.passes(Load())
    streams.busy, streams.on_look = busy, taken.clear if busy else lambda: None
    w = torch.randn(64, 64, requires_grad=True)
    with off:
        loss = chain(w, 2)
    # Nothing is on the disk yet: whatever the reason, it is not full.
    kept = off.report()["kept_by_reason"]
    assert "disk full" not in kept
    assert kept.get("drives behind", {"bytes": 0})["bytes"] == (0 if busy else 2 * w.nbytes)
    loss.backward()
    assert_gradient_of_chain(w, 2)


def test_an_offloader_that_is_forgotten_leaves_no_copy_in_flight(make: Make) -> None:
    off = make(runs_ahead=True, hold="copying", host="16MiB", backlog="16MiB")
    w = torch.randn(64, 64, requires_grad=True)
    with off:
        loss = (w * 2).square().sum()
    out = [group.stored.out for group in off._engine._table]
    engine = off._engine
    del loss
    assert not all(ticket.done() for ticket in out)
    engine.__del__()
    assert all(ticket.done() for ticket in out)


def test_a_graph_that_is_dropped_while_it_is_stored(make: Make) -> None:
    # Extents are freed before their writes begin; close() waits for what is left of those.
    for options in TIERS.values():
        off = make(0.02, 4, True, **options)
        w = torch.randn(64, 64, requires_grad=True)
        with off:
            loss = (w * 2).sin().cos().sin().sum()
        del loss
        assert off.report()["live_bytes"] == {}
        off.close()


def test_a_graph_that_another_thread_drops_while_its_store_is_waited_for(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    off = make(0.05, 5, host=0, backlog=1)  # In chunks: extents are written to directly.
    streams, w = off._engine._streams, torch.randn(64, 64, requires_grad=True)
    losses = []
    order = streams.order

    def drop_and_wait(ticket: Any, stream: int | None, timeout: float | None = None) -> None:
        losses.clear()
        order(ticket, stream, timeout)

    with off:
        losses.append((w * 2).square().sum())
    monkeypatch.setattr(streams, "order", drop_and_wait)
    with off:
        loss = (w * 3).sin().cos().sum()
    loss.backward()
    assert torch.isfinite(w.grad).all()
