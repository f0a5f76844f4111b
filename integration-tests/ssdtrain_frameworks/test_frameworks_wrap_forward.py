# SPDX-License-Identifier: Apache-2.0
"""``wrap_forward`` does what ``with off: model(x)`` does, and comes off again."""

from __future__ import annotations

import copy
import inspect
import io
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest
import torch
from frameworks_support import Model, assert_equal, assert_same, batch, gradients, seeded

from ssdtrain.integrations import wrap_forward


def _step(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    torch.manual_seed(5)
    loss = model(batch()).square().mean()
    loss.backward()
    found = {"loss": loss.detach(), **gradients(model)}
    model.zero_grad()
    return found


def _saved(off: Any) -> int:
    return int(off.report()["saved_tensors"])


def test_same_as_the_context(offloader: Any) -> None:
    def run(context: AbstractContextManager[Any]) -> dict[str, torch.Tensor]:
        model = seeded(Model)
        wrapped = not isinstance(context, nullcontext)
        with wrap_forward(model, offloader) if wrapped else nullcontext():
            return _step(model)

    assert_same(run, offloader)


def test_nothing_is_left_after_remove(offloader: Any) -> None:
    model = Model()
    before = dict(model.__dict__)
    handle = wrap_forward(model, offloader)
    handle.remove()
    handle.remove()
    assert model.__dict__ == before
    _step(model)
    assert _saved(offloader) == 0


def test_removed_below_a_later_wrapper(offloader: Any) -> None:
    """A framework that patched forward later keeps its patch; only the offloading ends."""
    model = Model()
    handle = wrap_forward(model, offloader)
    inner, calls = model.forward, []

    def later(x: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        return inner(x)

    model.forward = later
    _step(model)
    saved = _saved(offloader)
    assert saved > 0
    handle.remove()
    assert model.forward is later
    with offloader:
        pass
    _step(model)
    assert _saved(offloader) == 0
    assert len(calls) == 2


def test_around_an_earlier_wrapper(offloader: Any) -> None:
    model = Model()
    plain = model.forward
    earlier = model.forward = lambda x: plain(x) * 2
    handle = wrap_forward(model, offloader)
    _step(model)
    assert _saved(offloader) > 0
    handle.remove()
    assert model.forward is earlier


def test_two_handles_in_either_order(offloader: Any) -> None:
    model = seeded(Model)
    expected = _step(model)
    first, second = wrap_forward(model, offloader), wrap_forward(model, offloader)
    assert_equal(_step(model), expected)
    first.remove()
    assert_equal(_step(model), expected)
    assert offloader.report()["bytes"]["disk"] > 0
    second.remove()
    with offloader:
        pass
    assert_equal(_step(model), expected)
    assert _saved(offloader) == 0


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_passes_without_gradients_are_no_steps(mode: Any, offloader: Any) -> None:
    model = Model()
    with wrap_forward(model, offloader):
        _step(model)
        before = offloader.report()
        with mode():
            model(batch())
        assert offloader.report() == before


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_an_exception_leaves_the_offloader(error: type[BaseException], offloader: Any) -> None:
    model = Model()

    def fail(block: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
        raise error

    with wrap_forward(model, offloader):
        model.around = fail
        with pytest.raises(error):
            model(batch())
        saved = _saved(offloader)
        y = batch().requires_grad_().exp()
        assert _saved(offloader) == saved
        y.sum().backward()


def test_a_copy_runs_its_own_weights_and_offloads(offloader: Any) -> None:
    model = seeded(Model)
    with wrap_forward(model, offloader), wrap_forward(model, offloader):
        twin = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    fresh = seeded(Model)
    assert_equal(_step(twin), _step(fresh))
    assert _saved(offloader) > 0


class Tiny(torch.nn.Linear):
    """Without a lambda in it, so that it can be pickled."""


def test_a_pickle_is_plain(offloader: Any) -> None:
    model = seeded(lambda: Tiny(32, 32))
    file = io.BytesIO()
    with wrap_forward(model, offloader), wrap_forward(model, offloader):
        torch.save(model, file)
    file.seek(0)
    loaded = torch.load(file, weights_only=False)
    assert_equal(_step(loaded), _step(model))
    assert _saved(offloader) == 0


def test_signature_and_hooks_survive(offloader: Any) -> None:
    model, calls = Model(), []
    model.register_forward_hook(lambda *_: calls.append("after"))
    signature = inspect.signature(model.forward)
    with wrap_forward(model, offloader):
        assert inspect.signature(model.forward) == signature
        assert list(model.state_dict()) == list(Model().state_dict())
        _step(model)
    assert calls == ["after"]


def test_other_methods(offloader: Any) -> None:
    model = Model()
    model.training_step = lambda x: model(x).square().mean()
    with wrap_forward(model, offloader, "training_step"):
        model.training_step(batch()).backward()
        saved = _saved(offloader)
        model(batch())
        assert _saved(offloader) == saved > 0


def test_wrong_arguments(offloader: Any) -> None:
    with pytest.raises(TypeError, match=r"takes a torch\.nn\.Module, not function"):
        wrap_forward(lambda x: x, offloader)
    with pytest.raises(TypeError, match="takes an Offloader, not NoneType"):
        wrap_forward(Model(), None)
    with pytest.raises(AttributeError, match=r"Model has no method training_step\(\)"):
        wrap_forward(Model(), offloader, "training_step")
