# SPDX-License-Identifier: Apache-2.0
"""One layer on one graph, compiled by hector and measured on a GPU; says nothing of peers."""

from __future__ import annotations

import contextlib
import hashlib
from dataclasses import dataclass, field

import torch
from torch import Tensor

import hector
from hector.explain import Explanation
from hector.measure.bounds import gather_bytes, memory_bytes
from hector.measure.layers import LAYERS, Layer
from hector.measure.profile import KernelTime, kernel_times
from hector.measure.shapes import SHAPES, Shape
from hector.measure.timing import (
    Run,
    backward_milliseconds,
    milliseconds,
    peak_bytes,
    queued,
    replayed,
    runner,
)

__all__ = [
    "BF16", "DEVICE", "HIGH", "HIGHEST", "Cell", "Measured", "Setting", "cell", "measure",
    "prepare",
]  # fmt: skip

DEVICE = torch.device("cuda")
REPLAYED = 6 << 20
"""Edges up to which a layer is also replayed as a CUDA graph: there the host sets the time."""


@dataclass(frozen=True)
class Setting:
    """How a layer is run.

    Attributes
    ----------
    width, heads : int
    dtype : torch.dtype
    precision : str
        Of fp32 products, as ``torch.set_float32_matmul_precision`` takes it.
    forms : hector.Forms or None
        None for what the cost model chooses.
    """

    width: int = 64
    heads: int = 1
    dtype: torch.dtype = torch.float32
    precision: str = "high"
    forms: hector.Forms | None = None

    def __str__(self) -> str:
        kind = str(self.dtype).removeprefix("torch.")
        if self.dtype is torch.float32:
            kind += f" {self.precision}"
        heads = f", {self.heads} heads" if self.heads > 1 else ""
        return f"width {self.width}{heads}, {kind}"


HIGH = Setting()
HIGHEST = Setting(precision="highest")
BF16 = Setting(dtype=torch.bfloat16)


@dataclass(frozen=True)
class Cell:
    """One layer on one graph."""

    layer: Layer
    shape: Shape
    graph: hector.Graph

    def __str__(self) -> str:
        return f"{self.layer.name}, {self.shape}"

    @property
    def label(self) -> str:
        """Layer and graph."""
        return f"{self.layer.name}, {self.shape.name}"


def cell(layer: str, graph: str) -> Cell:
    """The cell of these names; the graph is drawn on the GPU."""
    chosen = LAYERS[layer]
    return Cell(chosen, SHAPES[graph], chosen.draw(SHAPES[graph], DEVICE))


@dataclass
class Measured:
    """What was measured of a cell.

    Attributes
    ----------
    milliseconds : float
        Called, or replayed where that was tried and is faster.
    called : float
    forms : str
    program : str
        The same for the same emitted text.
    peak, formula : int
        Bytes beside the inputs: measured, and what ``memory_bytes`` says.
    bound : int
        ``gather_bytes`` of the section, for training of both.
    launches : int or None
        Kernels, copies and fills of one call; None if the profiler saw none.
    section_ms : float or None
        GPU time of the section alone: of forward, or of backward without its forward.
    section_bytes, section_bound : int
        What the section's kernels move as predicted, and ``gather_bytes`` of it.
    kernels : list of (name, milliseconds, bytes)
        Of the call, in order of launches; 0 bytes for what no kernel of the program explains.
    """

    milliseconds: float
    called: float
    forms: str
    program: str
    peak: int
    formula: int
    bound: int
    section_bytes: int
    section_bound: int
    launches: int | None = None
    section_ms: float | None = None
    kernels: list[tuple[str, float, int]] = field(default_factory=list)


@dataclass(frozen=True)
class Prepared:
    """A setting's compiled layer, its tensors, and the account of what a call runs."""

    compiled: hector.Compiled
    inputs: tuple[Tensor, ...]
    run: Run
    account: Explanation


def prepare(chosen: Cell, setting: Setting, training: bool) -> Prepared:
    """Compile a setting and run it once."""
    torch.set_float32_matmul_precision(setting.precision)
    inputs = chosen.layer.inputs(chosen.graph, setting.width, setting.heads, setting.dtype)
    forms = "auto" if setting.forms is None else setting.forms
    compiled = hector.compile(chosen.layer.function, emitter="triton", forms=forms)
    run = runner(compiled, (chosen.graph, *inputs), inputs, training)
    run()
    torch.cuda.synchronize()
    with torch.set_grad_enabled(training):
        account = compiled.explain(chosen.graph, *inputs)
    return Prepared(compiled, inputs, run, account)


def measure(
    chosen: Cell, setting: Setting, training: bool, *, section: bool = True, detail: bool = True
) -> Measured:
    """Measure one setting of a cell.

    Parameters
    ----------
    chosen : Cell
    setting : Setting
    training : bool
        Forward and backward, or forward alone.
    section : bool
        Whether forward, or backward without its forward, is timed by itself too.
    detail : bool
        Whether memory, launches and kernels are looked at too.
    """
    made = prepare(chosen, setting, training)
    counts, element = made.account.counts, made.inputs[0].element_size()
    bounds = [gather_bytes(counts, setting.width, element, backward=b) for b in (False, True)]
    peak = peak_bytes(made.run) if detail else 0
    called = best = milliseconds(made.run, DEVICE, budget=0.15, most=20)
    if chosen.shape.edges <= REPLAYED:
        with contextlib.suppress(RuntimeError):  # not every program can be captured
            best = min(called, replayed(made.run))
    found = Measured(
        milliseconds=best, called=called, forms=str(made.account.forms),
        program=hashlib.sha256(made.account.source.encode()).hexdigest()[:12], peak=peak,
        formula=memory_bytes(
            chosen.layer.name, counts, setting.width, setting.heads, element, made.account.forms,
            training=training,
        ),
        bound=sum(bounds) if training else bounds[0],
        section_bytes=0, section_bound=bounds[training],
    )  # fmt: skip
    if section or detail:
        _time_section(found, made, chosen, training)
    if detail:
        _look(found, made)
    return found


def _time_section(found: Measured, made: Prepared, chosen: Cell, training: bool) -> None:
    found.section_bytes = made.account.programs["backward" if training else "forward"].bytes
    if training:
        arguments = (chosen.graph, *made.inputs)
        found.section_ms = backward_milliseconds(made.compiled, arguments, made.inputs)
    else:
        found.section_ms = queued(made.run)


def _look(found: Measured, made: Prepared) -> None:
    with contextlib.suppress(RuntimeError):  # where the machine lets no profiler in
        seen = kernel_times(made.run)
        found.launches = len(seen) or None
        known = {k.name: k.bytes for each in made.account.programs.values() for k in each.kernels}
        found.kernels = attributed(seen, known)


def attributed(seen: list[KernelTime], known: dict[str, int]) -> list[tuple[str, float, int]]:
    """Launches with the bytes of the kernels that they are of; a second pass has none of its own.

    Parameters
    ----------
    seen : list of KernelTime
    known : dict of str to int
        Bytes by name of kernel.
    """
    return [(each.name[:120], each.milliseconds, known.get(each.name, 0)) for each in seen]
