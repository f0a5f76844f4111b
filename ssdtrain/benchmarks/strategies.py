# SPDX-License-Identifier: Apache-2.0
"""Ways to live with a step's activations, measured alike: step time, and peak over the rest."""

from __future__ import annotations

import contextlib
import gc
import itertools
import math
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import ssdtrain
from ssdtrain.live_bytes import DevicePeak, peak_over_resident

__all__ = [
    "DEVICE", "DTYPE", "Measured", "Strategy", "checkpointed", "empty_device", "measure",
    "offloader", "peers", "trl",
]  # fmt: skip

# On a machine without a GPU the same programs run at small sizes, to see that they do.
DEVICE = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
DTYPE = torch.bfloat16 if DEVICE.type == "cuda" else torch.float32
if DEVICE.type == "cpu":
    torch.set_num_threads(1)  # Others' spinning would be measured.

Forward = Callable[[bool], torch.Tensor]

# Steps to wait for a planner that plans again and again.
MOST_SETTLING = 40
# The first two steps under a plan do not count, predictions are compared with the next six
# together, and results come a step or two late.
SETTLED = 10


@dataclass
class Strategy:
    """A name, a context for the forward pass, and whether blocks are checkpointed.

    ``settle`` steps run before the timed ones; then as many more as it takes until ``is_settled``
    has been true for ``settled`` in a row, but for no more than ``patience`` seconds: planning,
    too, stops the step in which it happens. ``watch`` sees the step, after the timed ones; ``look``
    says what there is to say after each one before them.
    """

    name: str
    context: Callable[[], Any] = contextlib.nullcontext
    recompute: bool = False
    settle: int = 2
    steps: int = 5
    is_settled: Callable[[], bool] | None = None
    settled: int = SETTLED
    patience: float = math.inf
    close: Callable[[], None] = lambda: None
    report: Callable[[], dict[str, Any]] = dict
    watch: Callable[[Callable[[], object]], None] | None = None
    look: Callable[[], dict[str, Any]] = dict


@dataclass
class Measured:
    """Milliseconds a step (median), bytes of the peak over those resident between steps.

    ``expected`` is what the planner predicted before the timed steps, ``planned`` how often it had
    planned by then and by their end. ``history`` has the milliseconds of all steps from the first
    on, those in which the host was busy with them and with garbage, and what the strategy said.
    """

    name: str
    ms: float
    peak: int
    resident: int
    loss: float
    report: dict[str, Any] = field(default_factory=dict)
    expected: dict[str, float] | None = None
    planned: tuple[int, int] = (0, 0)
    times: list[float] = field(default_factory=list)
    history: list[dict[str, Any]] = field(default_factory=list)

    @property
    def gib(self) -> float:
        """The peak in GiB."""
        return self.peak / 2**30


def measure(strategy: Strategy, model: nn.Module, forward: Forward) -> Measured:
    """Run a strategy's steps; ``forward(recompute)`` gives the loss.

    The peak is the highest of the timed steps, over what is resident between steps: weights and
    gradients, which are added to from step to step. (On the CPU it is that of one more step.)
    """
    model.zero_grad(set_to_none=True)
    empty_device()
    losses: list[torch.Tensor] = []
    history: list[dict[str, Any]] = []
    marks = [_mark()]
    garbage = GarbageCollection()

    def step() -> None:
        collecting, begun = garbage.seconds, time.perf_counter()
        with strategy.context():
            loss = forward(strategy.recompute)
        turn = time.perf_counter()
        loss.backward()  # type: ignore[no-untyped-call]
        losses[:] = [loss.detach()]
        host = 1e3 * (turn - begun), 1e3 * (time.perf_counter() - turn)
        history.append(
            {
                "host_forward_ms": host[0],
                "host_backward_ms": host[1],
                "garbage_ms": 1e3 * (garbage.seconds - collecting),
            }
        )

    def settling_step() -> None:
        step()
        marks.append(_mark())
        history[-1] |= strategy.look()

    try:
        for _ in range(strategy.settle):
            settling_step()
        settled = 0 if strategy.is_settled else strategy.settled
        begun = time.perf_counter()
        while strategy.is_settled and settled < strategy.settled:
            if time.perf_counter() - begun > strategy.patience:
                print(f"{strategy.name}: not settled after {strategy.patience:.0f} s", flush=True)
                break
            settling_step()
            settled = settled + 1 if strategy.is_settled() else 0
        before = strategy.report()
        resident, peak, times = _timed(step, strategy.steps)
        settling = [_between(a, b) for a, b in itertools.pairwise(marks)]
        for entry, ms in zip(history, [*settling, *times], strict=True):
            entry["ms"] = ms
        told = list(history)
        if DEVICE.type == "cpu":
            peak = peak_over_resident(step, DEVICE)
        report = strategy.report()
        if strategy.watch is not None:
            strategy.watch(step)
    finally:
        garbage.close()
        strategy.close()
    return Measured(
        strategy.name,
        statistics.median(times),
        peak,
        resident,
        losses[0].item(),
        report,
        (before.get("steering") or {}).get("prediction"),
        (_plans(before), _plans(report)),
        times,
        told,
    )


class GarbageCollection:
    """Adds up the seconds that Python's garbage collection takes, until it is closed."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._begun = 0.0
        gc.callbacks.append(self._called)

    def _called(self, phase: str, _: object) -> None:
        if phase == "start":
            self._begun = time.perf_counter()
        else:
            self.seconds += time.perf_counter() - self._begun

    def close(self) -> None:
        """Count no more."""
        gc.callbacks.remove(self._called)


def _mark() -> Any:
    """Now, in the order of the device's current stream."""
    if DEVICE.type != "cuda":
        return time.perf_counter()
    mark = torch.cuda.Event(enable_timing=True)
    mark.record()
    return mark


def _between(begin: Any, end: Any) -> float:
    """Milliseconds between two marks that have passed."""
    if DEVICE.type != "cuda":
        return float(1e3 * (end - begin))
    return float(begin.elapsed_time(end))


def _timed(step: Callable[[], None], steps: int) -> tuple[int, int, list[float]]:
    """Resident bytes, peak over them, milliseconds of each step.

    Steps follow each other as in training: the host does not wait for one to end.
    """
    resident = highest = 0
    with contextlib.ExitStack() as stack:
        if DEVICE.type == "cuda":
            torch.cuda.synchronize()
            resident = torch.cuda.memory_allocated()
            # Of an offloader's own steps, too, that start the allocator's counter anew.
            peak = stack.enter_context(DevicePeak(DEVICE))
        marks = [_mark()]
        for _ in range(steps):
            step()
            marks.append(_mark())
        if DEVICE.type == "cuda":
            torch.cuda.synchronize()
            highest = peak.nbytes()
    return resident, highest - resident, [_between(a, b) for a, b in itertools.pairwise(marks)]


def _plans(report: dict[str, Any]) -> int:
    steering = report.get("steering") or {}
    return int(steering.get("plans", 0)) + int(steering.get("replans", 0))


def empty_device() -> None:
    """Give back what nothing holds."""
    gc.collect()
    if DEVICE.type == "cuda":
        torch.cuda.empty_cache()


def offloader(
    name: str,
    model: nn.Module | None,
    *,
    settle: int = 4,
    settled: int = SETTLED,
    patience: float = math.inf,
    steps: int = 5,
    watch: Callable[[ssdtrain.Offloader, Callable[[], object]], None] | None = None,
    **arguments: Any,
) -> Strategy:
    """One of ssdtrain's; arguments are ``ssdtrain.Offloader``'s.

    Without a model nothing is computed again: the offloader is not attached.
    """
    off = ssdtrain.Offloader(**arguments)
    handle = None if model is None else off.attach(model)
    plans: list[Any] = []

    def is_settled() -> bool:
        # A prediction that is corrected leaves the plan's groups as they are.
        plans.append(None if off.plan is None else off.plan.groups)
        same = len(plans) > 1 and plans[-1] is not None and plans[-1] is plans[-2]
        return same or len(plans) > MOST_SETTLING

    def look() -> dict[str, Any]:
        told = off.report()["steering"] or {}
        prediction, measured = told.get("prediction") or {}, told.get("measured") or {}
        return {
            "mode": told.get("mode"),
            "predicted_ms": 1e3 * prediction.get("seconds", 0.0),
            "predicted_wait_ms": 1e3 * prediction.get("wait_seconds", 0.0),
            "wait_ms": 1e3 * measured.get("wait_seconds", 0.0),
            "replans": told.get("replans"),
            "why": told.get("last_replan"),
        }

    def close() -> None:
        if handle is not None:
            handle.remove()
        off.close()

    return Strategy(
        name,
        lambda: off,
        settle=settle,
        steps=steps,
        is_settled=is_settled if arguments.get("plan", "auto") == "auto" else None,
        settled=settled,
        patience=patience,
        close=close,
        report=off.report,
        look=look,
        watch=None if watch is None else lambda step: watch(off, step),
    )


def peers() -> Iterator[Strategy]:
    """Keep, full recomputation of each block, and the offloading contexts of others."""
    yield Strategy("keep")
    yield Strategy("full recompute", recompute=True)
    pinned = DEVICE.type == "cuda"
    yield Strategy(
        "save_on_cpu",
        lambda: torch.autograd.graph.save_on_cpu(pin_memory=pinned),
        settle=1,
        steps=3,
    )


def trl(model: nn.Module) -> Strategy | None:
    """TRL's offloading context, where TRL is installed; its backward runs inside."""
    if DEVICE.type != "cuda":
        return None
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
