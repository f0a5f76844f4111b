# SPDX-License-Identifier: Apache-2.0
"""The strategies that ``rok`` measures, each ready to run a step of its own in any order.

What they take turns on is one model: whatever a strategy puts on it is there for its own steps.
"""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.checkpoint import checkpoint

from .live_bytes import peak_over_resident
from .offloader import Offloader

if TYPE_CHECKING:
    from .rok import Work

__all__ = ["Keeping", "Offloading", "Recomputing"]

# The first makes gradients and the optimizer's states, the second is warm.
WARM = 2
# A plan that so many steps in a row ran under will stay: two do not count, three may differ.
SETTLED = 5


class Keeping:
    """Plain training.

    Parameters
    ----------
    work : Work

    Attributes
    ----------
    bytes : dict
        Where saved bytes of the last step went; empty without an offloader.
    """

    def __init__(self, work: Work) -> None:
        self._work = work
        self.bytes: dict[str, int] = {}

    def warm_up(self, batch: Any, steps: int) -> None:
        """Run steps that do not count, no more than that takes."""
        for _ in range(max(1, min(steps, WARM))):
            self._uncounted(batch)

    def _uncounted(self, batch: Any) -> None:
        """Run a step that does not count."""
        with self._around():
            self._step(batch)

    def peak(self, batch: Any) -> int:
        """Run a step; its peak of bytes over those that were there before."""
        with self._around():
            return peak_over_resident(functools.partial(self._step, batch), self._work.device)

    def timed(self, batch: Any) -> float:
        """Run a step; its seconds, from an idle device to an idle one."""
        with self._around():
            begun = _now(self._work.device)
            self._step(batch)
            return _now(self._work.device) - begun

    def close(self) -> None:
        """Give everything back."""

    @contextlib.contextmanager
    def _around(self) -> Iterator[None]:
        """What is put on the model for a step, and taken from it: not a part of its time."""
        yield

    def _forward(self) -> contextlib.AbstractContextManager[Any]:
        return contextlib.nullcontext()

    def _step(self, batch: Any) -> None:
        work = self._work
        with self._forward():
            loss = work.loss(work.model, batch)
        loss.backward()  # type: ignore[no-untyped-call]
        if work.optimizer is not None:
            work.optimizer.step()
        # Gradients stay allocated: they belong to what is resident, not to activations.
        for parameter in work.model.parameters():
            if parameter.grad is not None:
                parameter.grad.zero_()


class Recomputing(Keeping):
    """Every block is computed again in backward, as a whole."""

    def __init__(self, work: Work, blocks: Sequence[torch.nn.Module]) -> None:
        super().__init__(work)
        self._blocks = list(blocks)

    @contextlib.contextmanager
    def _around(self) -> Iterator[None]:
        own = [block.__dict__.get("forward") for block in self._blocks]
        for block in self._blocks:
            block.forward = functools.partial(checkpoint, block.forward, use_reentrant=False)
        try:
            yield
        finally:
            for block, forward in zip(self._blocks, own, strict=True):
                if forward is None:
                    del block.forward
                else:
                    block.forward = forward


class Offloading(Keeping):
    """An offloader; arguments are those of :class:`ssdtrain.Offloader`."""

    def __init__(self, work: Work, **arguments: Any) -> None:
        super().__init__(work)
        self._plans = arguments.get("plan") != "all"
        self._off = Offloader(**arguments)

    def warm_up(self, batch: Any, steps: int) -> None:
        """Run steps that do not count: with a planner until its plan stays, three times as many."""
        if not self._plans:
            super().warm_up(batch, steps)
            return
        same = 0
        last = None
        for number in range(3 * max(1, steps)):
            if number >= steps and same >= SETTLED:
                break
            self._uncounted(batch)
            plan = self._off.plan
            groups = None if plan is None else plan.groups
            same = same + 1 if groups is not None and groups is last else 0
            last = groups

    def close(self) -> None:
        """Give everything back."""
        self._off.close()

    @contextlib.contextmanager
    def _around(self) -> Iterator[None]:
        attached = self._off.attach(self._work.model)
        try:
            yield
        finally:
            attached.remove()
        self.bytes = dict(self._off.report()["bytes"])
        # It ends the step: what others compute now is no part of it.
        with self._off:
            pass

    def _forward(self) -> contextlib.AbstractContextManager[Any]:
        return self._off


def _now(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()
