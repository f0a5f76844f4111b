# SPDX-License-Identifier: Apache-2.0
"""Memory that changes below a saved tensor: never torn bytes, never another tensor's."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import ssdtrain
from datapath_core.testing import faults

N = 1 << 16


@pytest.fixture
def slow(tmp_path: Path) -> Any:
    """Stores that take so long that everything below happens while they run."""
    with faults("write:slow@ms=300"):
        off = ssdtrain.Offloader(spill=tmp_path, host=0, ssd="64MiB", min_bytes=1, backlog="32MiB")
    yield off
    off.close()


def saved_and_dead(
    off: ssdtrain.Offloader, before_it_dies: Callable[[torch.Tensor], object]
) -> tuple[torch.Tensor, torch.Tensor]:
    w = torch.randn(N, requires_grad=True)
    with off:
        y = w * 2
        loss = (y * y).sum()
    before_it_dies(y)
    return w, loss


def outlast_the_store(off: ssdtrain.Offloader) -> None:
    while off.report()["live_bytes"].get("storing"):
        time.sleep(0.02)


def test_memory_that_moves_during_the_store(slow: ssdtrain.Offloader) -> None:
    w, loss = saved_and_dead(slow, lambda y: y.detach().untyped_storage().share_memory_())
    outlast_the_store(slow)
    assert "memory replaced while it was stored" in slow.report()["kept_by_reason"]
    loss.backward()
    assert torch.equal(w.grad, 8 * w.detach())


@pytest.mark.parametrize("wait", [False, True])
def test_memory_taken_away_during_the_store_raises(slow: ssdtrain.Offloader, wait: bool) -> None:
    _, loss = saved_and_dead(slow, lambda y: y.untyped_storage().resize_(0))
    junk = torch.full((N,), 7.0)
    if wait:
        outlast_the_store(slow)
    with pytest.raises(RuntimeError, match="storage was resized to 0 bytes after the save"):
        loss.backward()
    assert junk.sum() == 7 * N


def test_memory_refilled_before_backward(slow: ssdtrain.Offloader) -> None:
    def drop_and_refill(y: torch.Tensor) -> None:
        values, storage = y.detach().clone(), y.untyped_storage()
        storage.resize_(0)
        slow.report()
        storage.resize_(4 * N)
        y.data.copy_(values)

    w, loss = saved_and_dead(slow, drop_and_refill)
    outlast_the_store(slow)
    loss.backward()
    assert torch.equal(w.grad, 8 * w.detach())


def test_counters_of_two_tensors_over_one_storage(offloader: ssdtrain.Offloader) -> None:
    w = torch.randn(16, requires_grad=True)
    with offloader:
        buffer = torch.zeros(16)
        first = (w * buffer).sum()
        buffer.fill_(5)
        second = (w * buffer.data).sum()  # A counter of its own, at zero as the first one was.
    del buffer
    second.backward()
    assert torch.equal(w.grad, torch.full((16,), 5.0))
    del first


def test_checks_notice_a_change_that_no_version_shows(tmp_path: Path) -> None:
    off = ssdtrain.Offloader(
        spill=tmp_path, host=0, ssd="16MiB", min_bytes=1, plan="all", backlog=0, checks=True
    )
    w = torch.randn(16, requires_grad=True)
    with off:
        buffer = torch.zeros(16)
        first = (w * buffer).sum()
        buffer.data.fill_(5)
        second = (w * buffer).sum()
    del buffer
    second.backward()
    assert torch.equal(w.grad, torch.full((16,), 5.0))
    del first
    off.close()


def test_parameter_whose_memory_is_swapped(offloader: ssdtrain.Offloader) -> None:
    w, v = nn.Parameter(torch.zeros(64)), nn.Parameter(torch.zeros(64))
    with offloader:
        loss = (w * v).sum()
    w.data = torch.ones(64)
    loss.backward()
    assert torch.equal(v.grad, torch.ones(64))


@pytest.mark.parametrize("shift", [0, 4, 8, 16, 48])
def test_copies_lie_as_the_original_lay(tmp_path: Path, shift: int) -> None:
    # The order in which a product adds depends on the alignment of what it reads.
    raw = torch.randn(17 * 4097 + 64).numpy()
    first = (-raw.ctypes.data % 64 + shift) // 4
    a = torch.from_numpy(raw[first : first + 17 * 4097]).view(17, 4097)
    assert a.data_ptr() % 64 == shift
    results = []
    for spill in (None, tmp_path):
        off = ssdtrain.Offloader(
            spill=spill, host=0, ssd="16MiB", min_bytes=1, plan="all", backlog=0
        )
        w = torch.ones(4097, 3, requires_grad=True)
        with off:
            x = torch.from_numpy(raw[first : first + 17 * 4097]).view(17, 4097)
            loss = (x @ w).sum()
        del x
        addresses: list[int] = []
        node = loss.grad_fn.next_functions[0][0]
        addresses.append(node._saved_self.data_ptr() % 64)
        assert addresses == [shift]
        loss.backward()
        results.append(w.grad)
        off.close()
    assert torch.equal(*results)


def test_windows_that_overlap_are_not_stored_again_and_again(
    offloader: ssdtrain.Offloader,
) -> None:
    w = torch.randn(1 << 14, requires_grad=True)
    with offloader:
        y = w * 2
        loss = sum((y[i : i + 512] ** 2).sum() for i in range(0, (1 << 14) - 511, 128))
    del y
    loss.backward()
    assert torch.isfinite(w.grad).all()
    stats = offloader.report()["tiers"]["disk"]["stats"]
    assert stats["bytes_written"] <= 4 * 4 * (1 << 14)
