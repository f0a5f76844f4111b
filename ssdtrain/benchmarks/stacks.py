# SPDX-License-Identifier: Apache-2.0
"""Stacks of GPT blocks with an input and a loss, for strategies to run."""

from __future__ import annotations

import time

import torch
from strategies import DEVICE, DTYPE, Measured, Strategy, checkpointed, measure
from transformer_blocks import make_blocks

__all__ = ["Stack"]


class Losses:
    """Of micro-batches, whose backward passes follow each other, the last one's first.

    One backward pass of their sum would hold all gradients a second time until its end.
    """

    def __init__(self, losses: list[torch.Tensor]) -> None:
        self._losses = losses

    def backward(self) -> None:
        """All of them; their graphs are gone then."""
        for loss in reversed(self._losses):
            loss.backward()  # type: ignore[no-untyped-call]

    def detach(self) -> torch.Tensor:
        """Their sum."""
        return torch.stack([loss.detach() for loss in self._losses]).sum()


class Stack:
    """Blocks and an input ``[batch, tokens, hidden]`` in bf16, on the CPU in float32.

    With micro-batches the samples pass one after the other, all forward before any backward.

    Attributes
    ----------
    forward_seconds : float
        Of the last forward pass, on the device.
    """

    def __init__(
        self, hidden: int, layers: int, batch: int, tokens: int, micro_batches: int = 1
    ) -> None:
        torch.manual_seed(0)
        self.model = make_blocks(hidden, layers, DEVICE.type, DTYPE)
        self.name = f"hidden {hidden}, {layers} layers"
        if micro_batches > 1:
            self.name += f", {micro_batches} micro-batches of {batch // micro_batches} x {tokens}"
        self.hidden, self.tokens = hidden, tokens
        self._micro_batches = micro_batches
        self._losses: dict[int, dict[str, float]] = {}
        self._marks: tuple[torch.cuda.Event, torch.cuda.Event] | None = None
        self._seconds = 0.0
        self.resize(batch)

    def resize(self, batch: int) -> None:
        """Another batch."""
        self.batch = batch
        shape = (batch, self.tokens, self.hidden)
        self.x = torch.randn(shape, device=DEVICE, dtype=DTYPE)

    def forward(self, recompute: bool) -> Losses:
        """The losses of the present batch's micro-batches."""
        begun = time.perf_counter()
        if DEVICE.type == "cuda":
            self._marks = (torch.cuda.Event(True), torch.cuda.Event(True))
            self._marks[0].record()
        losses = []
        for x in self.x.chunk(self._micro_batches):
            for block in self.model:
                x = checkpointed(block, x, recompute)
            losses.append(x.float().pow(2).mean() / self._micro_batches)
        if self._marks is not None:
            self._marks[1].record()
        self._seconds = time.perf_counter() - begun
        return Losses(losses)

    @property
    def forward_seconds(self) -> float:
        """Of the last forward pass, which the device has ended."""
        if self._marks is None:
            return self._seconds
        return self._marks[0].elapsed_time(self._marks[1]) / 1e3

    def run(self, strategy: Strategy) -> Measured:
        """Measure a strategy and say so."""
        found = measure(strategy, self.model, self.forward)
        self._losses.setdefault(self.batch, {})[found.name] = found.loss
        print(
            f"{self.name}, batch {self.batch}, {found.name}: {found.ms:.1f} ms,"
            f" peak {found.gib:.2f} GiB, loss {found.loss:.6g}, steps"
            f" {' '.join(f'{ms:.0f}' for ms in found.times)}",
            flush=True,
        )
        return found

    def resident(self) -> int:
        """Bytes of weights, gradients and what else stays between steps."""
        if DEVICE.type != "cuda":
            return 0
        missing = [p for p in self.model.parameters() if p.grad is None]
        gradients = sum(p.numel() * p.element_size() for p in missing)
        return torch.cuda.memory_allocated() + gradients

    def check_losses(self) -> None:
        """Raise ``ValueError`` if strategies gave different losses."""
        for batch, losses in self._losses.items():
            if len(set(losses.values())) > 1:
                raise ValueError(f"{self.name}, batch {batch}: losses differ: {losses}")
