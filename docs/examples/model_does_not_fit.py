# SPDX-License-Identifier: Apache-2.0
"""Trains a model that plain PyTorch cannot hold under a memory cap.

Three runs of the same byte-level transformer on the standard library's source, with the same seed:
plain without the cap (the losses to compare with), plain under the cap (must fail), and under the
cap with an ``ssdtrain.Offloader`` (must end with losses equal to the last bit).

    python docs/examples/model_does_not_fit.py --out does-not-fit

On a GPU the cap is the caching allocator's own (``torch.cuda.set_per_process_memory_fraction``).
On the CPU nobody enforces one, so it is played: the bytes of all tensors that operators returned
are counted after each operator, parameters and optimizer included, and ``MemoryError`` is raised
when the sum is above the cap. What an operator takes and gives back inside itself is not seen.

The folder gets the table (``report.txt``), a trace of the last steps for ui.perfetto.dev
(``trace.json``) and memory over time (``memory.png``). Status 1 if one of the promises is broken.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# Threads that wait by spinning make a busy machine many times slower; read when torch is loaded.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import torch
from rich.console import Console, Group
from rich.table import Table
from torch.nn import functional

import ssdtrain
from datapath_core.settings import parse_bytes
from ssdtrain.live_bytes import LiveBytes
from ssdtrain.report import table
from ssdtrain.sizes import size

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "integration-tests" / "data")]

from language_model import LanguageModel, Settings  # noqa: E402
from stdlib_corpus import Corpus  # noqa: E402

CPU_SIZES = {"cap": "96MiB", "layers": 8, "width": 128, "length": 256, "batch": 8}
GPU_SIZES = {"cap": "6GiB", "layers": 12, "width": 1024, "length": 512, "batch": 16}
STYLES: tuple[dict[str, Any], ...] = (
    {"color": "tab:gray", "alpha": 0.6},
    {"color": "tab:red", "linewidth": 2.0},
    {"color": "tab:blue"},
)
OUT_OF_MEMORY = (MemoryError, torch.OutOfMemoryError)


class Meter(LiveBytes):
    """Looks at memory after each operator; on the CPU it also plays the cap.

    Attributes
    ----------
    samples : list of (float, int)
        Seconds since the run began, and bytes.
    """

    def __init__(self, device: torch.device, cap: int | None) -> None:
        super().__init__()
        self.samples: list[tuple[float, int]] = []
        self._on_cpu = device.type == "cpu"
        self._cap = cap
        self._begin = time.perf_counter()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run the operator, then look."""
        result = super().__torch_dispatch__(func, types, args, kwargs)
        nbytes = self.live if self._on_cpu else torch.cuda.memory_allocated()
        if self._on_cpu and self._cap is not None and nbytes > self._cap:
            raise MemoryError(f"{func}: {size(nbytes)} of tensors, the cap is {size(self._cap)}")
        # What was refused is gone when the error is caught, as if it had never been.
        self.samples.append((time.perf_counter() - self._begin, nbytes))
        return result


@dataclass
class Run:
    """What became of one training.

    Attributes
    ----------
    name : str
    cap : int or None
        Bytes.
    losses : list of float
        Of the steps that ended.
    samples : list of (float, int)
        Memory over time, see ``Meter``.
    peak : int
        Highest bytes of tensors.
    error : str or None
        What ended the run early.
    """

    name: str
    cap: int | None
    losses: list[float] = field(default_factory=list)
    samples: list[tuple[float, int]] = field(default_factory=list)
    error: str | None = None

    @property
    def peak(self) -> int:
        return max((nbytes for _, nbytes in self.samples), default=0)


def train(corpus: Corpus, settings: Settings, device: torch.device, around: Any) -> Iterator[float]:
    """Train, a loss after each step. ``around`` is what stands around the forward pass: nothing,
    or an offloader. That is all there is to it."""
    torch.manual_seed(settings.seed)
    model = LanguageModel(settings).to(device)
    if isinstance(around, ssdtrain.Offloader):
        around.attach(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=settings.learning_rate)
    shape = (settings.batch_size, settings.length)
    for inputs, targets in corpus.batches(settings.steps, *shape, settings.seed):
        inputs, targets = inputs.to(device), targets.to(device)
        with around:
            logits = model(inputs)
            loss = functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()
        yield float(loss.detach())


def measured(
    name: str,
    corpus: Corpus,
    settings: Settings,
    device: torch.device,
    *,
    cap: int | None,
    around: Any,
) -> Run:
    """Train under a cap, and say how far it got."""
    run = Run(name, cap)
    with capped(device, cap), Meter(device, cap) as meter:
        try:
            for loss in train(corpus, settings, device, around):
                run.losses.append(loss)
        except OUT_OF_MEMORY as error:
            run.error = str(error).splitlines()[0]
    run.samples = meter.samples
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
    return run


@contextlib.contextmanager
def capped(device: torch.device, cap: int | None) -> Iterator[None]:
    """On a GPU: the caching allocator takes no more than the cap, all sums repeat bit by bit."""
    deterministic = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    if device.type == "cuda" and cap is not None:
        total = torch.cuda.get_device_properties(device).total_memory
        torch.cuda.set_per_process_memory_fraction(min(1.0, cap / total), device)
    try:
        yield
    finally:
        if device.type == "cuda":
            torch.cuda.set_per_process_memory_fraction(1.0, device)
        torch.use_deterministic_algorithms(deterministic)


def outcome(run: Run, steps: int) -> str:
    if run.error is not None:
        return f"out of memory in step {len(run.losses) + 1}"
    return f"{steps} steps, loss {run.losses[-1]:.4f}"


def promises(free: Run, plain: Run, moved: Run) -> dict[str, bool]:
    """What the program shows, and whether it did."""
    return {
        "plain training does not fit under the cap": plain.error is not None,
        "with ssdtrain it fits": moved.error is None,
        "its losses are those without the cap, to the last bit": moved.losses == free.losses,
    }


def summary(runs: Sequence[Run], steps: int, held: dict[str, bool], report: Any) -> Group:
    made = Table(title="the same model, the same steps", title_justify="left")
    for column in ("run", "cap", "peak of tensors", "outcome"):
        made.add_column(column)
    for run in runs:
        cap = "none" if run.cap is None else size(run.cap)
        made.add_row(run.name, cap, size(run.peak), outcome(run, steps))
    lines = [f"{'yes' if holds else 'NO '}  {promise}" for promise, holds in held.items()]
    return Group(made, "", *lines, "", table(report))


def draw(runs: Sequence[Run], cap: int, path: Path) -> None:
    """Memory over time of all runs, with the cap."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    for run, style in zip(runs, STYLES, strict=True):
        seconds = [second for second, _ in run.samples]
        axes.plot(seconds, [n / 2**20 for _, n in run.samples], label=run.name, **style)
    axes.axhline(cap / 2**20, color="black", linestyle=":", label="the cap")
    axes.set(xlabel="time, s", ylabel="bytes of tensors, MiB", ylim=(0, None))
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(path)


def options_of(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--cap", help="memory for everything (default: 96MiB, on a GPU 6GiB)")
    parser.add_argument("--max-memory", help="let the planner aim at this instead of moving all")
    parser.add_argument("--layers", type=int, help="default: 8, on a GPU 12")
    parser.add_argument("--width", type=int, help="default: 128, on a GPU 1024")
    parser.add_argument("--length", type=int, help="bytes of text (default: 256, on a GPU 512)")
    parser.add_argument("--batch", type=int, help="sequences (default: 8, on a GPU 16)")
    parser.add_argument("--steps", type=int, default=4, help="default: %(default)s")
    parser.add_argument("--spill", type=Path, help="folder for activations (default: temporary)")
    parser.add_argument("--out", type=Path, default=Path("does-not-fit"))
    options = parser.parse_args(arguments)
    gpu = options.device.startswith("cuda")
    sizes = GPU_SIZES if gpu else CPU_SIZES
    for name, value in sizes.items():
        if getattr(options, name) is None:
            setattr(options, name, value)
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    options = options_of(arguments)
    device = torch.device(options.device)
    if device.type == "cuda" and device.index is None:
        device = torch.device("cuda", torch.cuda.current_device())
    cap = parse_bytes(options.cap)
    settings = Settings(
        options.layers, options.width, 4, options.length, options.batch, options.steps
    )
    corpus = Corpus()
    options.out.mkdir(parents=True, exist_ok=True)
    nothing = contextlib.nullcontext()
    free = measured("plain, no cap", corpus, settings, device, cap=None, around=nothing)
    plain = measured("plain", corpus, settings, device, cap=cap, around=nothing)
    with contextlib.ExitStack() as stack:
        spill = options.spill or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        aim: dict[str, Any] = (
            {"max_memory": options.max_memory} if options.max_memory else {"plan": "all"}
        )
        off = ssdtrain.Offloader(
            spill,
            host="16GiB",
            ssd="16GiB",
            min_bytes="64KiB",
            # Bytes on their way out or back still take memory.
            backlog=cap // 16,
            prefetch=cap // 16,
            **aim,
        )
        stack.callback(off.close)
        moved = measured("with ssdtrain", corpus, settings, device, cap=cap, around=off)
        report = off.report()
        off.trace(options.out / "trace.json")
    runs = (free, plain, moved)
    held = promises(free, plain, moved)
    shown = summary(runs, settings.steps, held, report)
    Console().print(shown)
    with (options.out / "report.txt").open("w", encoding="utf-8") as file:
        Console(file=file, width=80).print(shown)
    draw(runs, cap, options.out / "memory.png")
    Console().print(f"\nwritten to {options.out}: report.txt, trace.json, memory.png")
    return 0 if all(held.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
