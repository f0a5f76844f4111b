# SPDX-License-Identifier: Apache-2.0
"""Trains a small byte-level transformer on the standard library's source.

In mode ``plain`` autograd keeps the activations; in mode ``datapath`` an ``ssdtrain.Offloader``
around the forward pass moves them to disk (and, on a GPU, to host memory) and back. Losses must be
equal to the last bit. Not a library, and not a program either: a module of demo.py to read from top
to bottom.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from stdlib_corpus import VOCABULARY, Corpus
from torch import nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from ssdtrain.live_bytes import peak_over_resident

# cuBLAS repeats its sums bit by bit only with a fixed workspace, and reads this when it starts.
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

__all__ = ["History", "LanguageModel", "Settings", "train"]


@dataclass(frozen=True)
class Settings:
    """What is trained and for how long; ``min_bytes`` is the smallest tensor that is offloaded."""

    layers: int = 4
    width: int = 128
    heads: int = 4
    length: int = 256
    batch_size: int = 8
    steps: int = 150
    learning_rate: float = 3e-3
    seed: int = 0
    min_bytes: int = 256 << 10


@dataclass
class History:
    """What a run measured.

    Attributes
    ----------
    losses : list of float
        Training loss in nats a byte, one a step.
    held_out_loss : float
        Loss on text that training never saw.
    seconds : float
        Time in training steps.
    peak_bytes : int
        Peak of tensor memory during one step (see ssdtrain.live_bytes).
    offload : dict
        ``ssdtrain.Offloader.report()`` after the last training step; empty in the plain run.
    """

    losses: list[float] = field(default_factory=list)
    held_out_loss: float = 0.0
    seconds: float = 0.0
    peak_bytes: int = 0
    offload: dict[str, Any] = field(default_factory=dict)


class TransformerLayer(nn.Module):
    """Pre-norm attention and feed-forward, causal (Radford et al., 2019)."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_attention = nn.LayerNorm(width)
        self.query_key_value = nn.Linear(width, 3 * width)
        self.output = nn.Linear(width, width)
        self.norm_feed_forward = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return float32 [batch, length, width] for x of that shape."""
        batch, length, width = x.shape
        projected = self.query_key_value(self.norm_attention(x))
        query, key, value = (
            part.view(batch, length, self.heads, width // self.heads).transpose(1, 2)
            for part in projected.chunk(3, dim=-1)
        )
        # The one backend whose backward pass gives the same bits every time on every device.
        with sdpa_kernel(SDPBackend.MATH):
            mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.output(mixed.transpose(1, 2).reshape(batch, length, width))
        fed: torch.Tensor = self.down(functional.gelu(self.up(self.norm_feed_forward(x))))
        return x + fed


class LanguageModel(nn.Module):
    """Bytes in, logits of the next byte out."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.token = nn.Embedding(VOCABULARY, settings.width)
        self.position = nn.Embedding(settings.length, settings.width)
        self.layers = nn.ModuleList(
            TransformerLayer(settings.width, settings.heads) for _ in range(settings.layers)
        )
        self.norm = nn.LayerNorm(settings.width)
        self.head = nn.Linear(settings.width, VOCABULARY)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return float32 [batch, length, 256] for tokens, int64 [batch, length]."""
        places = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.token(tokens) + self.position(places)
        for layer in self.layers:
            x = layer(x)
        logits: torch.Tensor = self.head(self.norm(x))
        return logits


def _loss(model: nn.Module, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    loss: torch.Tensor = functional.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())
    return loss


@contextlib.contextmanager
def _deterministic() -> Iterator[None]:
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)


def _offloader(mode: str, spill: Path | None, device: torch.device, min_bytes: int) -> Any:
    if mode == "plain":
        return contextlib.nullcontext()
    if mode != "datapath":
        raise ValueError(f"mode is {mode!r}; 'plain' or 'datapath' wanted")
    import ssdtrain

    # Moving CPU tensors to host memory would free nothing, so the CPU spills to disk only; on a
    # GPU the small host budget makes both tiers carry something.
    host = "48MiB" if device.type == "cuda" else 0
    # Bytes on their way out or back still take memory: small ceilings keep the peak low on a slow
    # drive, where the step waits instead.
    return ssdtrain.Offloader(
        spill=str(spill),
        host=host,
        ssd="8GiB",
        min_bytes=min_bytes,
        plan="all",
        backlog="16MiB",
        prefetch="16MiB",
    )


def train(
    corpus: Corpus,
    settings: Settings,
    *,
    mode: str = "plain",
    device: torch.device | str = "cpu",
    spill: Path | None = None,
    on_step: Callable[[float], None] = lambda loss: None,
) -> tuple[LanguageModel, History]:
    """Train from scratch, then measure one more step's memory without changing the model.

    Parameters
    ----------
    corpus : Corpus
        The text.
    settings : Settings
        Equal settings give equal batches, initial parameters and losses in both modes.
    mode : str
        "plain" or "datapath", see the module.
    device : torch.device or str
        Where to compute.
    spill : Path or None
        Folder for the activations; "datapath" needs one.
    on_step : callable
        Called with the loss after each step.
    """
    device = torch.device(device)
    torch.manual_seed(settings.seed)
    model = LanguageModel(settings).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=settings.learning_rate)
    history = History()
    shape = (settings.batch_size, settings.length)
    inputs = targets = torch.empty(0)
    offloader = _offloader(mode, spill, device, settings.min_bytes)
    with _deterministic(), contextlib.ExitStack() as stack:
        if mode == "datapath":
            stack.callback(offloader.close)
        for inputs, targets in corpus.batches(settings.steps, *shape, settings.seed):
            begin = time.perf_counter()
            inputs, targets = inputs.to(device), targets.to(device)
            with offloader:
                loss = _loss(model, inputs, targets)
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            optimizer.zero_grad()
            history.losses.append(float(loss.detach()))
            history.seconds += time.perf_counter() - begin
            on_step(history.losses[-1])
        if mode == "datapath":
            history.offload = offloader.report()

        def measured_step() -> None:
            with offloader:
                loss = _loss(model, inputs, targets)
            loss.backward()  # type: ignore[no-untyped-call]

        history.peak_bytes = peak_over_resident(measured_step, device)
        optimizer.zero_grad()
    text = corpus.held_out[: settings.length * 32 + 1].long()
    count = (len(text) - 1) // settings.length
    windows = text[: count * settings.length].view(count, -1)
    following = text[1 : count * settings.length + 1].view(count, -1)
    with torch.no_grad():
        history.held_out_loss = float(_loss(model, windows.to(device), following.to(device)))
    return model, history
