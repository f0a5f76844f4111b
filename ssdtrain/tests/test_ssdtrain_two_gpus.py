# SPDX-License-Identifier: Apache-2.0
"""Work on a device that is not the current one, and a model over two devices."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest
import torch
from torch import nn

import ssdtrain

pytestmark = [pytest.mark.gpu, pytest.mark.multigpu]


class OverTwo(nn.Module):
    """Layers whose devices alternate as ``devices`` says; dropout on each of them."""

    def __init__(self, devices: list[str]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.devices = devices
        self.layers = nn.ModuleList(
            nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.Dropout(0.1), nn.Linear(1024, 256))
            for _ in devices
        )
        for layer, device in zip(self.layers, devices, strict=True):
            layer.to(device)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer, device in zip(self.layers, self.devices, strict=True):
            x = x.to(device)
            x = x + layer(x)
        return x


def run(model: nn.Module, x: torch.Tensor, off: ssdtrain.Offloader | None) -> list[torch.Tensor]:
    torch.manual_seed(1)
    model.zero_grad(set_to_none=True)
    if off is None:
        loss = model(x).square().mean()
    else:
        with off:
            loss = model(x).square().mean()
    loss.backward()
    return [loss.detach(), *(p.grad.clone() for p in model.parameters())]


@pytest.mark.parametrize("plan", ["all", "auto"])
@pytest.mark.parametrize(
    ("host", "disk"),
    [("1GiB", False), (0, True), ("8MiB", True)],
    ids=["host", "disk", "both"],
)
@pytest.mark.parametrize(
    "devices", [["cuda:1"] * 4, ["cuda:0", "cuda:1"] * 2], ids=["second", "both"]
)
def test_bit_equal(
    tmp_path: Path, devices: list[str], host: str | int, disk: bool, plan: str
) -> None:
    assert torch.cuda.current_device() == 0
    model = OverTwo(devices)
    x = torch.randn(4096, 256, device=devices[0])
    expected = run(model, x, None)
    off = ssdtrain.Offloader(
        tmp_path if disk else None, host, "1GiB", "64KiB", plan, checks=True, backlog="16MiB"
    )
    for _ in range(8):
        found = run(model, x, off)
        assert all(torch.equal(a, b) for a, b in zip(expected, found, strict=True))
        assert off.report()["faults"] == []
    assert torch.cuda.current_device() == 0
    if plan == "all":
        assert sum(off.report()["bytes"][tier] for tier in ("host", "disk")) > 0
    del found
    gc.collect()
    assert off.report()["live_bytes"] == {}
    off.close()
