# SPDX-License-Identifier: Apache-2.0
"""An exception at any line of the offloader leaves nothing behind once the next step has run."""

from __future__ import annotations

import gc
import linecache
import random
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from null_streams import NullStreams
from torch import nn

import ssdtrain

FOLDER = str(Path(ssdtrain.__file__).parent)
Check = Callable[..., Any]


class Interrupt:
    """Raises ``KeyboardInterrupt`` at the n-th line that runs in the package on this thread."""

    def __init__(self, line: int) -> None:
        self.left = line
        self.where = ""

    def __enter__(self) -> Interrupt:
        sys.settrace(self._trace)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)

    def _trace(self, frame: Any, event: str, argument: Any) -> Any:
        if not frame.f_code.co_filename.startswith(FOLDER):
            return None
        # What is raised in a finaliser is only printed.
        if frame.f_code.co_name in ("__del__", "drop"):
            return None
        # Python visits a with statement again before it leaves, and could not leave then; a real
        # interrupt does not come there.
        line = linecache.getline(frame.f_code.co_filename, frame.f_lineno)
        if event == "line" and not line.lstrip().startswith("with "):
            self.left -= 1
            if self.left == 0:
                sys.settrace(None)
                self.where = f"{frame.f_code.co_filename}:{frame.f_lineno}"
                raise KeyboardInterrupt
        return self._trace


@pytest.fixture(params=["cpu", "strict", "planned"])
def off(
    request: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[ssdtrain.Offloader]:
    plan: Any = "all"
    if request.param == "strict":
        streams = NullStreams(0.0001, 1)
        monkeypatch.setattr(ssdtrain.offloader, "Streams", lambda: streams)
    if request.param == "planned":
        group = ssdtrain.GroupPlan(8192, ssdtrain.Where.DISK, 3, None, 8)
        plan = ssdtrain.Plan((group, group, group))
    made = ssdtrain.Offloader(tmp_path, "256KiB", "4MiB", 1024, plan, backlog="8KiB")
    yield made
    made.close()


def step(model: nn.Module, x: torch.Tensor, off: ssdtrain.Offloader) -> torch.Tensor:
    with off:
        loss = model(x).square().mean()
    loss.backward()
    gradient = model[0].weight.grad.clone()
    model.zero_grad()
    return gradient


def leave_contexts(off: ssdtrain.Offloader) -> None:
    """Take away hooks whose ``with`` statement was interrupted at its very begin or end."""
    off._entered.hooks.clear()
    while torch._C._autograd._top_saved_tensors_default_hooks(True) is not None:
        torch._C._autograd._pop_saved_tensors_default_hooks()


def left_over(off: ssdtrain.Offloader) -> list[object]:
    """What is still there, once the writes that were on their way have ended."""
    until = time.monotonic() + 20
    while True:
        report = off.report()
        found = [
            report["live_bytes"],
            report["tiers"]["disk"]["stats"]["allocated"],
            report["tiers"]["host"]["resident"],
            off._engine._stores.nbytes,
        ]
        if not any(found) or time.monotonic() > until:
            return [value for value in found if value]
        time.sleep(0.01)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_interrupts(off: ssdtrain.Offloader) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh())
    x = torch.randn(64, 32)
    model(x).square().mean().backward()
    expected = model[0].weight.grad.clone()
    model.zero_grad()
    with Interrupt(1 << 40) as counting:
        step(model, x, off)
    lines = (1 << 40) - counting.left
    assert lines > 300
    chosen = random.Random(4).sample(range(1, lines + 1), 24)
    interrupted = 0
    for line in chosen:
        try:
            with Interrupt(line) as interrupt:
                step(model, x, off)
        except KeyboardInterrupt:
            interrupted += 1
            leave_contexts(off)
        model.zero_grad()
        assert torch.equal(step(model, x, off), expected), interrupt.where
        gc.collect()
        step(model, x, off)
        assert left_over(off) == [], interrupt.where
    assert interrupted > 12
