# SPDX-License-Identifier: Apache-2.0
"""Shared fixtures: an offloader that moves all it may, and a comparison with plain training."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import ssdtrain

Step = Callable[[], torch.Tensor]


@pytest.fixture(scope="session", autouse=True)
def only_new_objects() -> Iterator[None]:
    """``gc.collect()`` in a test looks at what tests have made, not at all that PyTorch imports."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture
def offloader(tmp_path: Path) -> Iterator[ssdtrain.Offloader]:
    """Moves every tensor that may go, whatever its size, and has moved it when forward goes on."""
    off = ssdtrain.Offloader(tmp_path, 0, "256MiB", min_bytes=1, plan="all", backlog=0)
    yield off
    off.close()


def gradients(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Copies of a model's gradients, which are reset."""
    found = {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}
    model.zero_grad(set_to_none=True)
    return found


def assert_same_step(
    model: torch.nn.Module, forward: Step, off: ssdtrain.Offloader, *, inside: bool = False
) -> dict[str, Any]:
    """One step plain and one offloaded, equal to the last bit. Returns the report."""
    torch.manual_seed(0)
    plain = forward()
    plain.backward()
    expected = gradients(model)
    torch.manual_seed(0)
    with off:
        loss = forward()
        if inside:
            loss.backward()
    if not inside:
        loss.backward()
    report = off.report()
    assert torch.equal(plain, loss)
    found = gradients(model)
    assert expected.keys() == found.keys()
    assert expected
    for name, gradient in expected.items():
        assert torch.equal(gradient, found[name]), name
    return report


@pytest.fixture
def same_step() -> Callable[..., dict[str, Any]]:
    """``assert_same_step``."""
    return assert_same_step


@pytest.fixture
def nothing_left() -> Callable[[ssdtrain.Offloader], None]:
    """``assert_nothing_left``."""
    return assert_nothing_left


def assert_nothing_left(off: ssdtrain.Offloader) -> None:
    """No saved bytes are live in any state, and no extent."""
    gc.collect()
    report = off.report()
    assert report["live_bytes"] == {}
    assert report["tiers"]["disk"]["stats"]["allocated"] == 0
