# SPDX-License-Identifier: Apache-2.0
"""Each fault that a drive can have ends in equal gradients or in an error that names it."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

import ssdtrain
from datapath_core import Error, IoError
from datapath_core.testing import faults


def make_model() -> nn.Module:
    torch.manual_seed(3)
    layers = [nn.Sequential(nn.Linear(48, 48), nn.GELU(), nn.LayerNorm(48)) for _ in range(4)]
    return nn.Sequential(*layers)


def plain_gradient(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    model(x).square().mean().backward()
    gradient = model[0][0].weight.grad.clone()
    model.zero_grad()
    return gradient


def step(model: nn.Module, x: torch.Tensor, off: ssdtrain.Offloader) -> torch.Tensor:
    with off:
        loss = model(x).square().mean()
    loss.backward()
    gradient = model[0][0].weight.grad.clone()
    model.zero_grad()
    return gradient


@pytest.fixture
def open_with(tmp_path: Path) -> Callable[..., ssdtrain.Offloader]:
    def make(plan: str, **options: object) -> ssdtrain.Offloader:
        arguments: dict[str, object] = {
            "spill": tmp_path, "host": 0, "ssd": "64MiB", "min_bytes": 1, "plan": "all",
            "prefetch": 0, "backlog": 0,
        }  # fmt: skip
        with faults(plan):
            return ssdtrain.Offloader(**(arguments | options))

    return make


@pytest.mark.parametrize(
    "plan",
    [
        "write:enospc", "write:enospc@after=3", "write:eio@every=2", "any:eintr@p=0.3,seed=1",
        "any:short@p=0.5,seed=2", "any:slow@ms=3", "any:reorder@window=4",
    ],
)  # fmt: skip
def test_faults_that_cost_no_step(plan: str, open_with: Callable[..., ssdtrain.Offloader]) -> None:
    model, x = make_model(), torch.randn(64, 48)
    expected = plain_gradient(model, x)
    off = open_with(plan)
    for _ in range(3):
        assert torch.equal(expected, step(model, x, off))
    report = off.report()
    if "enospc" in plan or "eio" in plan:
        assert report["faults"]
        assert report["bytes"]["kept"] > 0
    else:
        assert not report["faults"]
        assert report["bytes"]["disk"] > 0
    off.close()


def test_read_error_raises_in_backward_with_its_cause(
    open_with: Callable[..., ssdtrain.Offloader],
) -> None:
    model, x = make_model(), torch.randn(64, 48)
    off = open_with("read:eio")
    with off:
        loss = model(x).square().mean()
    with pytest.raises(IoError, match=r"could not be read back from disk.*run the step again") as e:
        loss.backward()
    assert e.value.errno == errno.EIO
    assert isinstance(e.value.__cause__, IoError)
    off.close()


def test_a_read_that_fails_once_succeeds_on_the_next_try(
    open_with: Callable[..., ssdtrain.Offloader],
) -> None:
    w = torch.randn(4096, requires_grad=True)
    off = open_with("read:eio@nth=1")
    with off:
        loss = (w * 2).square().sum()
    with pytest.raises(IoError):
        loss.backward(retain_graph=True)
    loss.backward()
    assert torch.allclose(w.grad, 8 * w.detach())
    off.close()


@pytest.mark.parametrize("operation", ["write", "read"])
def test_completion_that_never_comes_raises_within_the_deadline(
    tmp_path: Path, operation: str
) -> None:
    # In a process of its own: the buffers of a lost request are held until the process ends.
    code = f"""
import os, torch, ssdtrain
from datapath_core import Error
from datapath_core.testing import faults
with faults("{operation}:lost"):
    off = ssdtrain.Offloader({str(tmp_path)!r}, 0, "16MiB", 1, "all", backlog=0, prefetch=0)
w = torch.randn(4096, requires_grad=True)
try:
    with off:
        loss = (w * 2).sin().cos().sum()
    loss.backward()
except (Error, TimeoutError) as error:
    print(error, flush=True)  # os._exit flushes nothing
    os._exit(7)
"""
    environment = {**os.environ, "DATAPATH_WAIT_DEADLINE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 7, done.stderr
    assert "disk" in done.stdout
    assert "did not end within 1 s" in done.stdout


def test_full_volume_keeps_what_does_not_fit(tmp_path: Path) -> None:
    model, x = make_model(), torch.randn(256, 48)
    expected = plain_gradient(model, x)
    off = ssdtrain.Offloader(tmp_path, 0, "128KiB", min_bytes=1, plan="all", backlog=0)
    assert torch.equal(expected, step(model, x, off))
    report = off.report()
    assert report["kept_by_reason"]["disk full"]["bytes"] > 0
    assert report["bytes"]["disk"] > 0
    assert not report["faults"]
    off.close()


def test_checks_find_a_changed_byte(open_with: Callable[..., ssdtrain.Offloader]) -> None:
    w = torch.randn(4096, requires_grad=True)
    off = open_with("", checks=True)
    with off:
        loss = (w * 2).square().sum()
    groups = list(off._engine._table)
    for group in groups:
        stored = bytearray(group.nbytes)
        group.stored.extent.read(stored).result()
        stored[777] ^= 1
        group.stored.extent.write(stored).result()
    assert groups
    with pytest.raises(Error, match="came back changed"):
        loss.backward()
    off.close()


def test_checks_pass_on_good_bytes(open_with: Callable[..., ssdtrain.Offloader]) -> None:
    model, x = make_model(), torch.randn(64, 48)
    expected = plain_gradient(model, x)
    off = open_with("any:slow@ms=1", checks=True)
    assert torch.equal(expected, step(model, x, off))
    off.close()


def test_missing_directory_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(IoError, match="nowhere"):
        ssdtrain.Offloader(spill=tmp_path / "nowhere", ssd="1MiB")


def test_files_have_no_name(tmp_path: Path, open_with: Callable[..., ssdtrain.Offloader]) -> None:
    model, x = make_model(), torch.randn(64, 48)
    off = open_with("")
    with off:
        loss = model(x).square().mean()
    assert list(tmp_path.iterdir()) == []
    loss.backward()
    off.close()


def test_auto_stores_a_tensor_larger_than_the_backlog_when_nothing_is_on_its_way(
    tmp_path: Path,
) -> None:
    w = torch.randn(4096, requires_grad=True)
    off = ssdtrain.Offloader(tmp_path, host=0, ssd="1MiB", min_bytes=1, plan="auto", backlog=1000)
    with off:
        loss = (w * 2).square().sum()
    assert "drives behind" not in off.report()["kept_by_reason"]
    loss.backward()
    assert torch.equal(w.grad, 8 * w.detach())
    off.close()
