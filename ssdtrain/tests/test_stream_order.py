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
