# SPDX-License-Identifier: Apache-2.0
"""The sections of ``bench_gpu_layers.py``: what is compared with what, and the targets."""

from __future__ import annotations

import statistics
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

import bench_schema
import gpu_forms
import torch
from gpu_cells import BF16, DEVICE, HIGH, HIGHEST, Cell, Measured, Setting, measure
from gpu_peers import Timed, peers_of, time_peer
from gpu_results import Results

import hector
from hector.measure.layers import LAYERS
from hector.measure.shapes import SHAPES

__all__ = [
    "FIXED", "WIDTHS", "Context", "ablation", "compiled", "forms", "means", "precision", "speed",
    "widths",
]  # fmt: skip

MEAN = 43.7
LAUNCHES = {"RGCN": 4, "RGAT": 5, "HGT": 6}
LARGE = ("am", "mag", "wikikg2")
"""Graphs whose rows do not fit a GPU's cache: there bytes set the time."""

FIXED = {
    "none": hector.Forms(),
    "reordering": hector.Forms(fold=True, aggregate_first=True),
    "compaction": hector.Forms(compact_src=True, compact_dst=True),
    "both": hector.Forms(True, True, True, True),
}
"""The four fixed choices."""

WIDTHS = [Setting(width=32), Setting(width=128), Setting(heads=8)]
SECTION = {False: "forward", True: "backward"}
CALL = {False: "forward", True: "forward + backward"}


@dataclass
class Context:
    """What the sections share.

    Attributes
    ----------
    results : Results
    rate : float
        Bytes a second of a copy.
    deadline : float
        Of ``time.monotonic``: no cell is begun later.
    pyg : dict
        Of training (True) and inference: the best PyG layer's time by cell.
    ran, tried : int
        Cells of the speed section.
    fp32 : dict
        Our times in fp32 by cell and whether backward is included.
    """

    results: Results
    rate: float
    deadline: float
    pyg: dict[bool, dict[str, float]] = field(default_factory=lambda: {False: {}, True: {}})
    ran: int = 0
    tried: int = 0
    fp32: dict[tuple[str, bool], float] = field(default_factory=dict)

    def late(self, what: object) -> bool:
        """Whether there is no time for more; says what is left out."""
        if time.monotonic() <= self.deadline:
            return False
        print(f"no time left for {what}", flush=True)
        return True

    def milliseconds(self, count: int) -> float:
        """Time of a copy that moves so many bytes."""
        return count / self.rate * 1e3

    def against(
        self, work: str, value: float, unit: str, target: float, *, most: bool, note: str = ""
    ) -> None:
        """A row for a figure that has a target and no peer."""
        sign = "<=" if most else ">="
        self.results.add(bench_schema.Row(
            work, value, unit, ratio=value, target=f"{sign} {target:g}",
            met=value <= target if most else value >= target, note=note,
        ))  # fmt: skip


def _attempt(
    made: Cell, setting: Setting, training: bool, *, section: bool = True, detail: bool = False
) -> Measured | None:
    try:
        return measure(made, setting, training, section=section, detail=detail)
    except Exception as error:  # noqa: BLE001 - PyTorch's and Triton's; the next cell may run
        said = (str(error).splitlines() or [""])[0][:200]
        print(f"{made.label}, {setting}: {type(error).__name__}: {said}", flush=True)
        torch.cuda.empty_cache()
        return None


def _notes(found: Measured, context: Context) -> list[str]:
    notes = [f"forms: {found.forms}"]
    if found.milliseconds != found.called:
        notes.append(f"replayed as a CUDA graph, called {found.called:.3f} ms")
    if found.section_ms:
        ideal = context.milliseconds(found.section_bytes) / found.section_ms
        bound = context.milliseconds(found.section_bound) / found.section_ms
        notes.append(
            f"by itself {found.section_ms:.4g} ms, {found.section_bytes / 1e6:.0f} MB: "
            f"{ideal:.2f} of the copy rate, {bound:.2f} of the gather bound"
        )
    if found.launches:
        notes.append(f"{found.launches} launches")
    if found.peak:
        notes.append(f"peak {found.peak / 2**20:.0f} MiB, formula {found.formula / 2**20:.0f}")
    return notes


def _row(
    made: Cell, setting: Setting, training: bool, found: Measured, context: Context,
    peers: list[Timed],
) -> bench_schema.Row:  # fmt: skip
    notes = _notes(found, context)
    notes += [each.failure or f"{each.name} {each.milliseconds:.4g} ms" for each in peers]
    ran = [(each.milliseconds, each.name) for each in peers if each.milliseconds]
    theirs, name = min(ran) if ran else (None, "")
    ratio = None if theirs is None else theirs / found.milliseconds
    return bench_schema.Row(
        f"{made}, {setting}, {CALL[training]}", found.milliseconds, "ms",
        peer=theirs, peer_name=name, limit=context.milliseconds(found.bound),
        limit_name="bytes without reuse at the copy rate", ratio=ratio,
        target="" if ratio is None else ">= 1x the best peer",
        met=None if ratio is None else ratio >= 1, note="; ".join(notes),
    )  # fmt: skip


def speed(context: Context, made: Cell) -> None:
    """Forward and training in fp32 against PyG, the hand composition and the limits."""
    if context.late(made.label):
        return
    context.tried += 1
    found = {training: _attempt(made, HIGH, training, detail=True) for training in (False, True)}
    context.ran += found[True] is not None
    torch.cuda.empty_cache()
    times = [time_peer(peer) for peer in peers_of(made)]
    for training, ours in found.items():
        if ours is None:
            continue
        what = f"{made.label}, {CALL[training]}"
        peers = [both[training] for both in times]
        context.fp32[made.label, training] = ours.milliseconds
        context.results.keep("measured", what, asdict(ours))
        context.results.keep("peers", what, [asdict(each) for each in peers])
        context.results.add(_row(made, HIGH, training, ours, context, peers))
        theirs = [e.milliseconds for e in peers if e.milliseconds and e.name.startswith("PyG")]
        if theirs:
            context.pyg[training][made.label] = min(theirs)
        _limits(context, made, ours, training)


def _limits(context: Context, made: Cell, found: Measured, training: bool) -> None:
    """Rows of the targets that are no peer's time."""
    name, graph = made.layer.name, made.shape.name
    if found.launches and not training:
        work, most = f"{made.label}: launches forward", LAUNCHES[name]
        context.against(work, found.launches, "launches", most, most=True)
    work = f"{made.label}: peak memory over the formula, {CALL[training]}"
    context.against(work, found.peak / found.formula, "x", 1.2, most=True)
    if graph not in LARGE or not found.section_ms:
        return
    ideal = context.milliseconds(found.section_bytes) / found.section_ms
    least = 0.75 if training else 0.92 if name == "RGCN" else 0.8
    work = f"{made.label}: bytes of the chosen form over the copy rate, {SECTION[training]}"
    context.against(work, ideal, "x", least, most=False)
    bounds = {("mag", False): 0.72, ("mag", True): 0.5, ("wikikg2", False): 0.39}
    if name == "RGCN" and (graph, training) in bounds:
        bound = context.milliseconds(found.section_bound) / found.section_ms
        work = f"{made.label}: of the gather bound, {SECTION[training]}"
        context.against(work, bound, "x", bounds[graph, training], most=False)


def precision(context: Context, made: Cell, highest: bool) -> None:
    """bf16 beside fp32; on request beside the hand composition too, and fp32 without tf32."""
    if context.late(f"{made.label}, {BF16}"):
        return
    large = made.shape.name in LARGE
    found = {
        training: _attempt(made, BF16, training, section=large and not training)
        for training in (False, True)
    }
    torch.cuda.empty_cache()
    times = [time_peer(peer) for peer in peers_of(made, torch.bfloat16)] if highest else []
    for training, ours in found.items():
        if ours is None:
            continue
        peers = [both[training] for both in times]
        context.results.keep("measured", f"{made.label}, {BF16}, {CALL[training]}", asdict(ours))
        context.results.add(_row(made, BF16, training, ours, context, peers))
        before = context.fp32.get((made.label, training))
        if before and large:
            work = f"{made.label}: bf16 over fp32, {CALL[training]}"
            context.against(work, before / ours.milliseconds, "x", 1.5, most=False)
        if ours.section_ms:
            ideal = context.milliseconds(ours.section_bytes) / ours.section_ms
            work = f"{made.label}: bytes of the chosen form over the copy rate, bf16, forward"
            least = 0.88 if made.layer.name == "RGCN" else 0.8
            context.against(work, ideal, "x", least, most=False)
    for training in (False, True) if highest else ():
        ours = _attempt(made, HIGHEST, training, section=False)
        if ours is not None:
            context.results.add(_row(made, HIGHEST, training, ours, context, []))
    torch.cuda.empty_cache()


def means(context: Context, beside: str = "") -> None:
    """Geometric means over the cells where PyG runs, and how many cells run here."""
    for training, word in ((True, "training"), (False, "inference")):
        ratios = {
            label: theirs / context.fp32[label, training]
            for label, theirs in context.pyg[training].items()
        }
        if ratios:
            low = min(ratios, key=ratios.__getitem__)
            context.against(
                f"{word}, width 64, geometric mean over {len(ratios)} cells of the best PyG layer"
                f"{beside}",
                statistics.geometric_mean(ratios.values()), "x", MEAN, most=False,
                note=f"lowest: {low}, {ratios[low]:.1f}x",
            )  # fmt: skip
            context.results.keep("ratios", word + beside, ratios)
    if not beside:
        context.against(
            f"cells that run, of {context.tried}", context.ran, "cells", context.tried, most=False
        )


def compiled(context: Context, times: dict[tuple[str, str, bool], list[Timed]]) -> None:
    """Times of PyG's layers under ``torch.compile`` beside ours, and the means with them."""
    for (graph, layer, training), peers in times.items():
        label = f"{layer}, {graph}"
        ours = context.fp32.get((label, training))
        what = f"{label}, {CALL[training]}, PyG compiled"
        context.results.keep("compiled", what, [asdict(each) for each in peers])
        if ours is None:
            continue
        ran = [(each.milliseconds, each.name) for each in peers if each.milliseconds]
        theirs, name = min(ran) if ran else (None, "")
        if theirs is not None:
            known = context.pyg[training].get(label, theirs)
            context.pyg[training][label] = min(known, theirs)
        ratio = None if theirs is None else theirs / ours
        context.results.add(bench_schema.Row(
            what, ours, "ms", peer=theirs, peer_name=name, ratio=ratio,
            target="" if ratio is None else ">= 1x the compiled peer",
            met=None if ratio is None else ratio >= 1,
            note="; ".join(each.failure for each in peers if each.failure),
        ))  # fmt: skip
    if times:
        means(context, ", compiled or not")


def ablation(context: Context, made: Cell) -> None:
    """The four fixed choices of forms beside what the cost model chooses."""
    for training in (False, True):
        what = f"{made.label}, ablation, {CALL[training]}"
        if context.late(what):
            return
        fastest: dict[str, float] = {}  # of a program, which several choices may come to
        programs: dict[str, str] = {}
        for name, fixed in {**FIXED, "chosen": None}.items():
            found = _attempt(made, Setting(forms=fixed), training, section=False)
            torch.cuda.empty_cache()
            if found is not None:
                programs[name], chosen = found.program, found.forms
                before = fastest.get(found.program, found.milliseconds)
                fastest[found.program] = min(before, found.milliseconds)
        times = {name: fastest[program] for name, program in programs.items()}
        if "chosen" not in times or len(times) == 1:
            continue
        ours = times.pop("chosen")
        best = min(times, key=times.__getitem__)
        notes = [f"chosen: {chosen}"] + [f"{name} {took:.4g}" for name, took in times.items()]
        if "none" in times:
            notes.append(f"{times['none'] / ours:.2f}x from the choice")
        context.results.keep("ablation", what, {**times, "chosen": ours})
        context.results.add(bench_schema.Row(
            what, ours, "ms", peer=times[best], peer_name=f"best fixed: {best}",
            ratio=ours / times[best], target="<= 1.05x the best fixed choice",
            met=ours / times[best] <= 1.05, note="; ".join(notes),
        ))  # fmt: skip


def widths(context: Context, made: Cell) -> None:
    """Other widths and heads, without peers."""
    for setting in WIDTHS:
        if setting.heads > 1 and made.layer.name == "RGCN":
            continue
        for training in (False, True):
            if context.late(f"{made.label}, {setting}"):
                return
            found = _attempt(made, setting, training, section=False)
            if found is not None:
                context.results.add(_row(made, setting, training, found, context, []))
            torch.cuda.empty_cache()


def forms(context: Context, program: Path, graphs: list[str]) -> None:
    """Forward, or backward by itself, beside hand-written kernels for the same.

    On large graphs, if there are any: on small ones launches set both times.
    """
    module = gpu_forms.load(program)
    layers = {**LAYERS, gpu_forms.SUMS.name: gpu_forms.SUMS}
    for graph in [name for name in graphs if name in LARGE] or graphs:
        for (name, backward), form in gpu_forms.FORMS.items():
            layer = layers[name]
            for dtype, setting in ((torch.float32, HIGH), (torch.bfloat16, BF16)):
                what = f"{name}, {graph}, {setting}, {SECTION[backward]} by itself"
                if context.late(what):
                    return
                made = Cell(layer, SHAPES[graph], layer.draw(SHAPES[graph], DEVICE))
                found = _attempt(made, setting, backward)
                if found is None or found.section_ms is None:
                    continue
                torch.cuda.empty_cache()
                try:
                    theirs = gpu_forms.time_form(module, SHAPES[graph], name, backward, dtype)
                except (RuntimeError, AttributeError, KeyError) as error:
                    print(f"{what}: the yardstick failed: {error!r:.200}", flush=True)
                    continue
                ratio = theirs / found.section_ms
                context.results.add(bench_schema.Row(
                    what, found.section_ms, "ms", peer=theirs,
                    peer_name=f"hand-written kernels, form {form}", ratio=ratio,
                    target=">= 1x the hand-written kernels", met=ratio >= 1,
                    note=f"GPU time, queued; forms: {found.forms}",
                ))  # fmt: skip
