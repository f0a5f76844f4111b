# SPDX-License-Identifier: Apache-2.0
"""The short way through a save: what goes it, and that the long way gives the same."""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import ssdtrain
import ssdtrain.saved
import ssdtrain.storage
from ssdtrain.saving import Saving

Check = Callable[..., Any]
WIDTH = 16


@pytest.fixture
def long_way(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """Shapes of tensors that went the long way."""
    shapes: list[tuple[int, ...]] = []
    save = Saving.save

    def watched(self: Saving, tensor: torch.Tensor) -> Any:
        shapes.append(tuple(tensor.shape))
        return save(self, tensor)

    monkeypatch.setattr(Saving, "save", watched)
    return shapes


class Layers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(3):
            x = (x * self.weight).sin()
            x = x * x  # Saved twice.
            x = x * x.view(WIDTH, WIDTH).t().contiguous() + x[: WIDTH // 2].repeat(2, 1)
        return x.tanh().sum()


def test_most_tensors_go_it(
    long_way: list[Any], offloader: ssdtrain.Offloader, same_step: Check
) -> None:
    model, x = Layers(), torch.randn(WIDTH, WIDTH, requires_grad=True)
    report = same_step(model, lambda: model(x), offloader)
    # The first of its size, a parameter, and the leaf that is the input.
    assert long_way.count((WIDTH, WIDTH)) < report["saved_tensors"] - long_way.count((WIDTH,))
    assert long_way.count((WIDTH,)) == 3
    first = len(long_way)
    same_step(model, lambda: model(x), offloader)
    assert set(long_way[first:]) == {(WIDTH,), (WIDTH, WIDTH)}
    assert long_way[first:].count((WIDTH, WIDTH)) == 1


@pytest.mark.parametrize("inside", [False, True])
def test_both_give_the_same(
    offloader: ssdtrain.Offloader, same_step: Check, nothing_left: Check, inside: bool
) -> None:
    model = Layers()
    x = torch.randn(WIDTH, WIDTH, requires_grad=True)
    reports = []
    for is_unusual in (False, True, False):
        offloader._engine._is_unusual = is_unusual
        found = same_step(model, lambda: model(x), offloader, inside=inside)
        nothing_left(offloader)
        reports.append({
            key: found[key]
            for key in (
                "bytes", "kept_by_reason", "saved_tensors", "shared_tensors", "loaded_bytes",
                "forwarded_bytes", "live_bytes", "faults", "deviated",
            )
        })  # fmt: skip
    assert reports[0] == reports[1] == reports[2]
    assert reports[0]["shared_tensors"] > 0


def save(off: ssdtrain.Offloader, tensor: torch.Tensor) -> Any:
    return off._engine.save(tensor)


@pytest.mark.parametrize(
    ("make", "is_long"),
    [
        (lambda: torch.randn(WIDTH, WIDTH, requires_grad=True) * 2, False),
        (lambda: (torch.randn(2 * WIDTH, WIDTH, requires_grad=True) * 2)[:WIDTH], False),
        (lambda: torch.randn(WIDTH, WIDTH), True),
        (lambda: torch.randn(WIDTH, WIDTH).t(), True),
        (lambda: torch.randn(WIDTH + 1, WIDTH)[1:], True),
        (lambda: nn.Parameter(torch.randn(WIDTH, WIDTH)), True),
        (lambda: nn.Parameter(torch.randn(WIDTH, WIDTH), requires_grad=False)[:], True),
        (lambda: nn.Parameter(torch.randn(WIDTH, WIDTH))[:], True),
        (lambda: torch.randn(WIDTH, WIDTH, requires_grad=True), True),
        (lambda: torch.randn(WIDTH, WIDTH).to_sparse(), True),
        (lambda: torch.randn(WIDTH, WIDTH // 2, dtype=torch.complex64).conj(), True),
        (lambda: torch.randn(WIDTH - 1, WIDTH), True),
    ],
    ids="plain first constant transposed offset parameter frozen view leaf sparse conj new".split(),
)
def test_which_way(
    long_way: list[Any],
    offloader: ssdtrain.Offloader,
    make: Callable[[], torch.Tensor],
    is_long: bool,
) -> None:
    tensor = make()
    with offloader:
        save(offloader, torch.randn(WIDTH, WIDTH)).get()
        assert len(long_way) == 1  # The first of its size.
        saved = save(offloader, tensor)
    assert len(long_way) == 1 + is_long
    assert torch.equal(saved.get().to_dense(), tensor.to_dense())


def test_other_bytes_of_a_storage(offloader: ssdtrain.Offloader) -> None:
    """Of a storage that was seen already: at another version, or in part."""
    with offloader:
        save(offloader, torch.randn(WIDTH, WIDTH)).get()
        x = torch.randn(WIDTH, WIDTH)
        half = save(offloader, x[: WIDTH // 2])
        whole = save(offloader, x)
        expected = x.clone()
        x.add_(1)
        changed = save(offloader, x)
        alias = save(offloader, x.data)  # Has a counter of its own.
    assert torch.equal(changed.get(), expected + 1)
    assert torch.equal(alias.get(), expected + 1)
    for saved in (half, whole):
        with pytest.raises(RuntimeError, match="modified by an inplace"):
            saved.get()


def test_room_of_dropped_tensors_comes_back(tmp_path: Path) -> None:
    """Those that were asked for may wait for the next; the last ones wait for nothing."""
    off = ssdtrain.Offloader(tmp_path, 0, min_bytes=1, plan="all", backlog=0)
    with off:
        saved = [save(off, torch.randn(WIDTH, WIDTH)) for _ in range(40)]
    off.report()
    engine = off._engine
    volume = off._parts.disk.volume

    def allocated() -> int:
        return int(volume.stats()["allocated"])

    assert allocated() > 0
    for one in reversed(saved):
        one.get()
    del one
    waiting = []
    while len(saved) > 4:
        saved.pop()
        waiting.append(len(engine._dropped))
    assert 1 < max(waiting) < 20
    saved.clear()
    assert not engine._dropped
    assert allocated() == 0
    gc.collect()
    assert off.report()["live_bytes"] == {}
    off.close()


def test_memory_that_waits_for_nobody(tmp_path: Path) -> None:
    """A dropped tensor that keeps memory of the device gives it back at once."""
    off = ssdtrain.Offloader(tmp_path, 0, 0, min_bytes=1, plan="all")  # Nowhere to go.
    with off:
        saved = [save(off, torch.randn(WIDTH, WIDTH)) for _ in range(4)]
    assert sum(off.report()["live_bytes"].values()) == 4 * WIDTH * WIDTH * 4
    while saved:
        saved.pop()
        assert not off._engine._dropped
    off.close()


def test_without_the_shortcut_of_torch(
    offloader: ssdtrain.Offloader, same_step: Check, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (ssdtrain.saved, ssdtrain.storage):
        monkeypatch.setattr(module, "reinterpret", ssdtrain.storage.strided)
    model, x = Layers(), torch.randn(WIDTH, WIDTH, requires_grad=True)
    report = same_step(model, lambda: model(x), offloader)
    assert report["loaded_bytes"] > 0
