# SPDX-License-Identifier: Apache-2.0
"""Operators that fill what they have saved already: the bytes at the save are not those meant."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

import ssdtrain

Check = Callable[..., Any]


def function(x: torch.Tensor) -> torch.Tensor:
    return torch.rrelu(x, training=True)


WAYS = {
    "module": nn.RReLU(),
    "in place": nn.RReLU(inplace=True),
    "functional": functools.partial(F.rrelu, training=True),
    "function": function,
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("plan", ["all", "auto"])
@pytest.mark.parametrize("attached", [False, True])
def test_noise_that_is_filled_after_its_save(
    tmp_path: Path, same_step: Check, way: str, plan: str, attached: bool
) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 64), nn.Tanh(), nn.Linear(64, 64))
    last, x = nn.Linear(64, 8), torch.randn(48, 32)
    off = ssdtrain.Offloader(tmp_path, 0, "64MiB", 1, plan, backlog=0, prefetch=0)
    if attached:
        off.attach(model)
    for _ in range(4):
        report = same_step(model, lambda: last(WAYS[way](model(x))).square().mean(), off)
    assert report["bytes"]["disk"] > 0 or plan == "auto"
    off.close()


def test_what_is_not_written_to_goes(offloader: ssdtrain.Offloader) -> None:
    """Tensors of 32 bits that require no gradient, such as frozen tables, are not left alone."""
    weight = torch.randn(64, 64, requires_grad=True)
    with offloader:
        loss = (weight * torch.randn(64, 64)).sum()
    loss.backward()
    assert offloader.report()["bytes"]["disk"] == 64 * 64 * 4
