# SPDX-License-Identifier: Apache-2.0
"""``checks=True``: what is given back is overwritten, and pauses change nothing but the time."""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from null_streams import NullStreams
from torch import nn

import ssdtrain
import ssdtrain.stores
from ssdtrain.checks import poison
from ssdtrain.delays import Delays
from ssdtrain.group import STORED
from ssdtrain.plan import GroupPlan, Plan, Where
from ssdtrain.storage import ByteRange

Check = Callable[..., Any]


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("kind", ["cpu", "strict", "ahead"])
def test_pauses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, same_step: Check, kind: str, seed: int
) -> None:
    monkeypatch.setenv("SSDTRAIN_DELAYS", f"{seed}:2")
    if kind != "cpu":
        streams = NullStreams(0.0002, seed, runs_ahead=kind == "ahead")
        monkeypatch.setattr(ssdtrain.offloader, "Streams", lambda: streams)
    off = ssdtrain.Offloader(
        tmp_path, "128KiB", "8MiB", 1, "all", checks=True, backlog="16KiB", prefetch="32KiB"
    )
    model = nn.Sequential(*[nn.Sequential(nn.Linear(32, 32), nn.GELU()) for _ in range(4)])
    x = torch.randn(64, 32)
    for _ in range(2):
        same_step(model, lambda: model(x).square().mean(), off)
    assert off._engine._delays is not None
    assert off._engine._delays.count > 0
    gc.collect()
    assert off.report()["live_bytes"] == {}
    off.close()


@pytest.mark.parametrize("text", ["x", "1", "1:-2", "1:nan", "a:3"])
def test_pauses_that_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setenv("SSDTRAIN_DELAYS", text)
    assert isinstance(ssdtrain.Offloader(tmp_path, 0, "1MiB"), ssdtrain.Offloader)
    with pytest.raises(ValueError, match="SEED:MILLISECONDS"):
        ssdtrain.Offloader(tmp_path, 0, "1MiB", checks=True)


def test_no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SSDTRAIN_DELAYS", raising=False)
    assert Delays.from_environment() is None


def test_poison_spares_what_others_hold() -> None:
    tensor = torch.zeros(64, dtype=torch.uint8)
    poison(tensor.untyped_storage(), ByteRange(0, 64))
    assert tensor.sum() == 0
    storage = torch.zeros(64, dtype=torch.uint8).untyped_storage()
    poison(storage, ByteRange(16, 64))
    assert list(storage)[:18] == [0] * 16 + [255] * 2


def test_memory_is_overwritten_at_the_drop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A copy that nobody waited for brings back what it must not.
    streams = NullStreams(hold="copying")
    monkeypatch.setattr(streams, "order", lambda ticket, stream, timeout=None: None)
    monkeypatch.setattr(ssdtrain.offloader, "Streams", lambda: streams)

    def overwrite_and_copy_then(storage: torch.UntypedStorage, span: ByteRange) -> None:
        poison(storage, span)
        late = list(streams._held)
        streams.open_gate()
        for transfer in late:
            transfer.result()
        streams._hold = "copying"

    monkeypatch.setattr(ssdtrain.stores, "poison", overwrite_and_copy_then)
    off = ssdtrain.Offloader(tmp_path, "1MiB", "1MiB", 1, "all", checks=True, backlog="16KiB")
    w = torch.randn(64, 64, requires_grad=True)
    with off:
        loss = (w * 2).sin().cos().sin().cos().sum()
    stored = [group.stored for group in off._engine._table if group.state is STORED]
    back = [torch.frombuffer(copy._buffer, dtype=torch.float32) for copy in stored]
    # The other copies that were late at the first drop were in time for their own.
    assert [bool(torch.isnan(tensor).all()) for tensor in back][:2] == [True, False]
    del loss
    off.close()


def test_memory_that_was_handed_out_is_not_overwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    streams = NullStreams()
    monkeypatch.setattr(ssdtrain.offloader, "Streams", lambda: streams)
    plan = Plan((GroupPlan(64 * 64 * 4, Where.DISK, 1, 1, 1),))  # Dropped when it is needed.
    off = ssdtrain.Offloader(tmp_path, 0, "1MiB", 1, plan, checks=True)
    w = torch.randn(64, 64, requires_grad=True)
    with off:
        loss = (w * 2).square().sum()
    loss.backward()
    assert torch.equal(w.grad, 8 * w.detach())
    off.close()
