# SPDX-License-Identifier: Apache-2.0
"""Odd tensors, odd callers, wrong arguments: plain's result, or an error that says why."""

from __future__ import annotations

import copy
import gc
import logging
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import ssdtrain
from datapath_core.testing import faults


def test_nested_tensor(offloader: ssdtrain.Offloader) -> None:
    a, b = torch.randn(3, 5, requires_grad=True), torch.randn(4, 5, requires_grad=True)
    with offloader:
        n = torch.nested.as_nested_tensor([a * 2, b * 2])
        loss = torch.nested.to_padded_tensor(n * n, 0.0).sum()
    loss.backward()
    assert torch.allclose(a.grad, 8 * a.detach())
    assert offloader.report()["kept_by_reason"]["nested tensor"]["tensors"] > 0


def test_zero_tensor_without_memory(offloader: ssdtrain.Offloader) -> None:
    w = torch.randn(64, requires_grad=True)
    with offloader:
        loss = (w.sin() * torch._efficientzerotensor(64) + w).sum()
    loss.backward()
    assert torch.equal(w.grad, torch.ones(64))


def test_log_handler_that_asks_for_the_report(tmp_path: Path) -> None:
    seen = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            seen.append(off.report()["faults"])

    with faults("write:eio"):
        off = ssdtrain.Offloader(tmp_path, 0, "16MiB", min_bytes=1, plan="all", backlog=0)
    handler = Handler()
    logging.getLogger("ssdtrain").addHandler(handler)
    try:
        w = torch.randn(64, requires_grad=True)
        with off:
            loss = (w * 2).sin().sum()
        loss.backward()
        off.close()
    finally:
        logging.getLogger("ssdtrain").removeHandler(handler)
    assert len(seen) == 1
    assert seen[0]


def test_call_from_inside_the_offloader_raises(offloader: ssdtrain.Offloader) -> None:
    with offloader._engine._lock.free(), pytest.raises(RuntimeError, match="signal handler"):
        offloader.report()
    assert offloader.report()["live_bytes"] == {}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("lock_is_held", [False, True])
def test_forked_child_leaves_the_parent_alone(
    offloader: ssdtrain.Offloader, lock_is_held: bool
) -> None:
    w = torch.randn(1024, requires_grad=True)
    with offloader:
        loss = (w * 2).square().sum()
    held, release = threading.Event(), threading.Event()

    def hold() -> None:
        with offloader._engine._lock.free():
            held.set()
            release.wait(20)

    holder = threading.Thread(target=hold)
    if lock_is_held:
        holder.start()
        held.wait(20)
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        status = 1
        try:
            unraisable: list[Any] = []
            sys.unraisablehook = unraisable.append
            v = w.detach().clone().requires_grad_()
            with offloader:
                own = (v * 2).square().sum()
            own.backward()
            del loss, own
            gc.collect()
            offloader.close()
            status = 0 if torch.allclose(v.grad, 8 * v.detach()) and not unraisable else 2
        finally:
            if status:
                traceback.print_exc()
            os._exit(status)
    release.set()
    if lock_is_held:
        holder.join()
    assert os.waitpid(child, 0)[1] == 0
    loss.backward()
    assert torch.allclose(w.grad, 8 * w.detach())


def test_close_goes_on_after_an_interrupt(tmp_path: Path) -> None:
    with faults("write:slow@ms=1000"):
        off = ssdtrain.Offloader(spill=tmp_path, host=0, ssd="16MiB", min_bytes=1, backlog="8MiB")
    w = torch.randn(1024, requires_grad=True)
    with off:
        loss = (w * 2).square().sum()
    # Whoever started the tests in the background may have them ignore it.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    timer = threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT))
    timer.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            off.close()
    finally:
        timer.join()
        signal.signal(signal.SIGINT, before)
    off.close()
    assert off.report()["live_bytes"] == {}
    assert off.report()["tiers"]["disk"]["stats"] == {}
    with pytest.raises(RuntimeError, match="closed before this backward"):
        loss.backward()


def test_a_closed_offloader_cannot_be_entered(offloader: ssdtrain.Offloader) -> None:
    w = torch.randn(64, requires_grad=True)
    offloader.close()
    with pytest.raises(ValueError, match="closed; make a new one"), offloader:
        raise AssertionError("the block ran")
    (w * 2).square().sum().backward()
    assert torch.allclose(w.grad, 8 * w.detach())


def test_left_without_being_entered(offloader: ssdtrain.Offloader) -> None:
    with pytest.raises(RuntimeError, match="has not entered it"):
        offloader.__exit__(None, None, None)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"spill": b"/tmp"}, "spill must be a path"),
        ({"spill": 3}, "spill must be a path"),
        ({"spill": [3]}, "which is no path"),
        ({"host": True}, "not a bool"),
        ({"checks": "no"}, "checks must be True or False"),
    ],
)
def test_arguments_of_a_wrong_type(arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(TypeError, match=text):
        ssdtrain.Offloader(**arguments)


@pytest.mark.parametrize("model", [None, 3, nn.Linear])
def test_attach_to_something_else(offloader: ssdtrain.Offloader, model: Any) -> None:
    attach: Callable[..., Any] = offloader.attach
    with pytest.raises(TypeError, match=r"torch\.nn\.Module"):
        attach(model)


def test_attached_models_are_copied_and_pickled(tmp_path: Path) -> None:
    off = ssdtrain.Offloader(tmp_path, 0, "16MiB", min_bytes=1)
    model, x = nn.Sequential(nn.Linear(8, 8), nn.Tanh()), torch.randn(4, 8)
    off.attach(model)
    torch.save(model, tmp_path / "model.pt")
    pickled = torch.load(tmp_path / "model.pt", weights_only=False)
    for other in (copy.deepcopy(model), pickled):
        with off:
            loss = other(x).square().sum()
        loss.backward()
        assert torch.equal(other[0].weight, model[0].weight)
    off.close()


def test_removing_the_last_handle_ends_recording(tmp_path: Path) -> None:
    off = ssdtrain.Offloader(tmp_path, 0, "16MiB")
    handles = [off.attach(nn.Linear(2, 2)), off.attach(nn.Linear(2, 2))]
    handles[0].remove()
    handles[0].remove()
    assert off._engine.recomputation.recorder() is not None
    handles[1].remove()
    assert off._engine.recomputation.recorder() is None
    off.close()
