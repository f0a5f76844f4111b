# SPDX-License-Identifier: Apache-2.0
"""How often Python collects garbage is the process's business again after each forward pass."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
import torch

import ssdtrain

DEFAULT = (700, 10, 10)


@pytest.fixture(autouse=True)
def thresholds() -> Iterator[None]:
    before = gc.get_threshold()
    gc.set_threshold(*DEFAULT)
    yield
    gc.set_threshold(*before)


def test_within_a_forward_pass_garbage_is_collected_less_often(
    offloader: ssdtrain.Offloader,
) -> None:
    with offloader:
        assert gc.get_threshold() == (10_000, 10, 10)
        with offloader:
            assert gc.get_threshold() == (10_000, 10, 10)
        assert gc.get_threshold() == (10_000, 10, 10)
    assert gc.get_threshold() == DEFAULT


def test_also_after_an_exception(offloader: ssdtrain.Offloader) -> None:
    with pytest.raises(KeyboardInterrupt), offloader:
        raise KeyboardInterrupt
    assert gc.get_threshold() == DEFAULT


@pytest.mark.parametrize("mine", [(50_000, 5, 5), (0, 10, 10)], ids=["seldom", "never"])
def test_what_is_seldom_already_stays(
    offloader: ssdtrain.Offloader, mine: tuple[int, int, int]
) -> None:
    gc.set_threshold(*mine)
    with offloader:
        assert gc.get_threshold() == mine
    assert gc.get_threshold() == mine


def test_what_a_model_sets_stays(offloader: ssdtrain.Offloader) -> None:
    with offloader:
        gc.set_threshold(1234, 5, 6)
    assert gc.get_threshold() == (1234, 5, 6)


def test_cycles_go_within_a_forward_pass(offloader: ssdtrain.Offloader) -> None:
    class Cycle:
        live = 0

        def __init__(self) -> None:
            self.me = self
            Cycle.live += 1

        def __del__(self) -> None:
            Cycle.live -= 1

    with offloader:
        most = 0
        for _ in range(50_000):
            Cycle()
            most = max(most, Cycle.live)
        torch.ones(4, requires_grad=True).exp().sum().backward()
    assert most < 25_000
