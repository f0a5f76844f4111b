# SPDX-License-Identifier: Apache-2.0
"""``torch.compile``: what compiled graphs save passes by the offloader like everything else.

The plain run is compiled too: compiled kernels round differently from eager ones.
"""

from __future__ import annotations

import functools
import os
import shutil
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest
import torch
from frameworks_support import Model, assert_equal, assert_same, batch, gradients, seeded
from torch.utils.checkpoint import checkpoint

from ssdtrain.integrations import wrap_forward

COMPILER = shutil.which(os.environ.get("CXX", "g++"))
BACKENDS = [
    "eager",
    "aot_eager",
    pytest.param("inductor", marks=pytest.mark.skipif(not COMPILER, reason="no C++ compiler")),
]


@pytest.fixture(autouse=True)
def _fresh_compiler() -> Iterator[None]:
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def _model() -> Model:
    # Dropout draws other numbers in a compiled kernel than in an eager one, hence none here.
    return seeded(lambda: Model(dropout=0.0))


def _run(
    backend: str, inside: bool, checkpointed: bool, context: AbstractContextManager[Any]
) -> dict[str, torch.Tensor]:
    model = _model()
    if checkpointed:
        model.around = lambda block, x: checkpoint(block, x, use_reentrant=False)
    torch.compiler.reset()
    compiled = torch.compile(model, backend=backend)
    losses = []
    for step in range(2):
        with context:
            loss = compiled(batch(step)).square().mean()
            if inside:
                loss.backward()
        if not inside:
            loss.backward()
        losses.append(loss.detach())
    return {"losses": torch.stack(losses), **gradients(model)}


@pytest.mark.parametrize("backend", BACKENDS)
def test_compiled_model(backend: str, offloader: Any) -> None:
    report = assert_same(functools.partial(_run, backend, False, False), offloader)
    # The compiled graph's own tensors go, not only what the loss saves outside it.
    assert report["bytes"]["disk"] > 10 * batch().nbytes


def test_backward_inside(offloader: Any) -> None:
    assert_same(functools.partial(_run, "aot_eager", True, False), offloader)


@pytest.mark.parametrize("backend", ["aot_eager"])
def test_checkpoint_in_a_compiled_model(backend: str, offloader: Any) -> None:
    assert_same(functools.partial(_run, backend, False, True), offloader)


def test_compiled_blocks_in_an_eager_model(offloader: Any) -> None:
    def run(context: AbstractContextManager[Any]) -> dict[str, torch.Tensor]:
        model = _model()
        torch.compiler.reset()
        for block in model.blocks:
            block.compile(backend="aot_eager")
        with context:
            loss = model(batch()).square().mean()
        loss.backward()
        return {"loss": loss, **gradients(model)}

    assert_same(run, offloader)


def test_shapes_that_change_compile_again(offloader: Any) -> None:
    def run(context: AbstractContextManager[Any]) -> dict[str, torch.Tensor]:
        model = _model()
        torch.compiler.reset()
        compiled = torch.compile(model, backend="aot_eager", dynamic=True)
        for tokens in (8, 12, 6):
            with context:
                loss = compiled(batch(tokens=tokens)).square().mean()
            loss.backward()
        return {"loss": loss, **gradients(model)}

    assert_same(run, offloader)


@pytest.mark.parametrize("when", ["wrapped, then compiled", "compiled, then wrapped", "in place"])
def test_wrapped_and_compiled(when: str, offloader: Any) -> None:
    """In whichever order: the offloader stays out of the graph, the model stays in it."""

    def run(offload: bool) -> tuple[dict[str, torch.Tensor], int]:
        model = _model()
        torch.compiler.reset()
        graphs: list[torch.fx.GraphModule] = []

        def backend(graph: torch.fx.GraphModule, inputs: Any) -> Any:
            graphs.append(graph)
            return torch._dynamo.lookup_backend("aot_eager")(graph, inputs)

        called: torch.nn.Module = model
        if when == "compiled, then wrapped":
            called = torch.compile(model, backend=backend)
        with wrap_forward(called, offloader) if offload else nullcontext():
            if when == "wrapped, then compiled":
                called = torch.compile(model, backend=backend)
            elif when == "in place":
                model.compile(backend=backend)
            for step in range(2):
                loss = called(batch(step)).square().mean()
                loss.backward()
        nodes = sum(len(graph.graph.nodes) for graph in graphs)
        return {"loss": loss.detach(), **gradients(model)}, nodes

    plain, plain_nodes = run(False)
    moved, moved_nodes = run(True)
    assert_equal(moved, plain)
    assert offloader.report()["bytes"]["disk"] > 0
    assert moved_nodes == plain_nodes
