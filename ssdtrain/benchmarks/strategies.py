# SPDX-License-Identifier: Apache-2.0
"""Ways to live with a step's activations, measured alike: step time, and peak over the rest."""

from __future__ import annotations

import contextlib
import gc
import itertools
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import ssdtrain

__all__ = ["Measured", "Strategy", "checkpointed", "measure", "offloader", "peers", "trl"]

Forward = Callable[[bool], torch.Tensor]

# Steps to wait for a planner that plans again and again.
MOST_SETTLING = 30
SETTLED = 3


@dataclass
class Strategy:
    """A name, a context for the forward pass, and whether blocks are checkpointed.

    ``settle`` steps run before the timed ones; then as many more as it takes until ``is_settled``
    has been true for three in a row: planning, too, stops the step in which it happens.
    """

    name: str
    context: Callable[[], Any] = contextlib.nullcontext
    recompute: bool = False
    settle: int = 2
    steps: int = 5
    is_settled: Callable[[], bool] | None = None
    close: Callable[[], None] = lambda: None
    report: Callable[[], dict[str, Any]] = dict


@dataclass
class Measured:
    """Milliseconds a step (median), bytes of the peak over those resident between steps."""

    name: str
    ms: float
    peak: int
    resident: int
    loss: float
    report: dict[str, Any] = field(default_factory=dict)

    @property
    def gib(self) -> float:
        """The peak in GiB."""
        return self.peak / 2**30


def measure(strategy: Strategy, model: nn.Module, forward: Forward) -> Measured:
    """Run a strategy's steps; ``forward(recompute)`` gives the loss.

    The peak is the highest of the timed steps, over what is resident between steps: weights and
    gradients, which are added to from step to step.
    """
    model.zero_grad(set_to_none=True)
    gc.collect()
    torch.cuda.empty_cache()
    loss = torch.empty(0)

    def step() -> torch.Tensor:
        with strategy.context():
            loss = forward(strategy.recompute)
        loss.backward()
        return loss.detach()

    try:
        for _ in range(strategy.settle):
            step()
        settled = 0 if strategy.is_settled else SETTLED
        while strategy.is_settled and settled < SETTLED:
            step()
            settled = settled + 1 if strategy.is_settled() else 0
        torch.cuda.synchronize()
        resident = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        peak = 0
        # Steps follow each other as in training: the host does not wait for one to end.
        marks = [torch.cuda.Event(enable_timing=True) for _ in range(strategy.steps + 1)]
        marks[0].record()
        for mark in marks[1:]:
            loss = step()
            mark.record()
            # Each step: one that the offloader profiles starts the counter again.
            peak = max(peak, torch.cuda.max_memory_allocated() - resident)
        torch.cuda.synchronize()
        times = [a.elapsed_time(b) for a, b in itertools.pairwise(marks)]
        report = strategy.report()
    finally:
        strategy.close()
    return Measured(strategy.name, statistics.median(times), peak, resident, loss.item(), report)


def offloader(
    name: str, model: nn.Module, *, settle: int = 4, steps: int = 5, **arguments: Any
) -> Strategy:
    """One of ssdtrain's; arguments are ``ssdtrain.Offloader``'s."""
    off = ssdtrain.Offloader(**arguments)
    handle = off.attach(model)

    plans: list[Any] = []

    def is_settled() -> bool:
        plans.append(off.plan)
        same = len(plans) > 1 and plans[-1] is not None and plans[-1] is plans[-2]
        return same or len(plans) > MOST_SETTLING

    def close() -> None:
        handle.remove()
        off.close()

    return Strategy(
        name,
        lambda: off,
        settle=settle,
        steps=steps,
        is_settled=is_settled if arguments.get("plan", "auto") == "auto" else None,
        close=close,
        report=off.report,
    )


def peers() -> Iterator[Strategy]:
    """Keep, full recomputation of each block, and the offloading contexts of others."""
    yield Strategy("keep")
    yield Strategy("full recompute", recompute=True)
    yield Strategy(
        "save_on_cpu",
        lambda: torch.autograd.graph.save_on_cpu(pin_memory=True),
        settle=1,
        steps=3,
    )


def trl(model: nn.Module) -> Strategy | None:
    """TRL's offloading context, where TRL is installed; its backward runs inside."""
    try:
        from trl.models.activation_offloading import OffloadActivations
    except ImportError:
        return None
    context = OffloadActivations()
    context.update_model_params(model)
    return Strategy("TRL OffloadActivations", lambda: context, steps=3)


def checkpointed(block: nn.Module, x: torch.Tensor, recompute: bool) -> torch.Tensor:
    """A block's output, its inside computed again in backward if asked for."""
    if recompute:
        found: torch.Tensor = checkpoint(block, x, use_reentrant=False)
        return found
    result: torch.Tensor = block(x)
    return result
