# SPDX-License-Identifier: Apache-2.0
"""Relational layers on a GPU: compiled, PyG's, a composition by hand, and the limits of both.

Eight graphs of the sizes of public ones, drawn at random. Products of fp32 round to tf32 on all
sides ("high") unless a row says otherwise. Every row is written when it is there, so that a run cut
short loses nothing. ``--quick`` takes the smallest graph.

Sections: ``compiled`` (PyG under ``torch.compile``), ``speed`` (against peers and limits),
``precision`` (bf16, and fp32 rounded nowhere), ``ablation`` (forms fixed and chosen), ``forms``
(against the hand-written kernels of ``--forms FILE``), ``widths`` (32, 128, 8 heads).
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import threading
import time
from pathlib import Path

import gpu_sections
import torch
from gpu_cells import BF16, HIGH, HIGHEST, Setting, cell, prepare
from gpu_parallel import compile_kernels, compiled_pyg
from gpu_results import Results
from gpu_sections import FIXED, WIDTHS, Context

from hector.measure.layers import LAYERS
from hector.measure.shapes import SHAPES
from hector.measure.timing import copy_rate

SECTIONS = ("compiled", "speed", "precision", "ablation", "forms", "widths")


def _names(text: str) -> list[str]:
    return [name for name in text.split(",") if name]


def options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, required=True, help="where the results go")
    parser.add_argument("--quick", action="store_true", help="the smallest graph, to see it run")
    parser.add_argument("--graphs", type=_names, default=list(SHAPES), help="names with commas")
    parser.add_argument("--layers", type=_names, default=list(LAYERS), help="names with commas")
    parser.add_argument("--sections", type=_names, default=list(SECTIONS))
    parser.add_argument("--some", type=_names, default=["aifb", "fb15k", "mag"],
                        help="graphs of compiled, ablation, widths, true fp32")  # fmt: skip
    parser.add_argument("--forms", type=Path, help="a program of hand-written kernels")
    parser.add_argument("--seconds", type=float, default=1e9, help="after which no cell is begun")
    parser.add_argument("--processes", type=int, default=15, help="that compile before measuring")
    parser.add_argument("--compile-seconds", type=float, default=60.0,
                        help="in which PyG's layers must compile")  # fmt: skip
    parser.add_argument("--share", help=argparse.SUPPRESS)
    found = parser.parse_args()
    if found.quick:
        found.graphs = found.some = ["aifb"]
    for key, known in (("graphs", SHAPES), ("layers", LAYERS), ("sections", SECTIONS)):
        if unknown := set(getattr(found, key)) - set(known):
            parser.error(f"--{key}: {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    return found


def settings(graph: str, chosen: argparse.Namespace) -> list[Setting]:
    """What the sections run of a cell on a graph."""
    made = []
    if "speed" in chosen.sections:
        made.append(HIGH)
    if "precision" in chosen.sections:
        made.append(BF16)
    if graph in chosen.some:
        if "precision" in chosen.sections:
            made.append(HIGHEST)
        if "ablation" in chosen.sections:
            made += [HIGH, *(Setting(forms=forms) for forms in FIXED.values())]
        if "widths" in chosen.sections:
            made += WIDTHS
    return list(dict.fromkeys(made))


def share(chosen: argparse.Namespace) -> None:
    """Run every K-th setting once, so that its kernels are in Triton's cache on disk."""
    number, count = (int(part) for part in chosen.share.split("/"))
    work = [
        (layer, graph, setting, training)
        for layer in reversed(chosen.layers)
        for graph in chosen.graphs
        for setting in settings(graph, chosen)
        for training in (True, False)
    ][number::count]
    work.sort(key=lambda item: (SHAPES[item[1]].edges, item[0]))
    turn = len(work) * number // count  # not all at the largest graph at once
    at: tuple[str, str] | None = None
    for layer, graph, setting, training in work[turn:] + work[:turn]:
        with contextlib.suppress(Exception):  # it is said where it is measured
            if at != (layer, graph):
                found, at = cell(layer, graph), (layer, graph)
            prepare(found, setting, training)
        gc.collect()
        torch.cuda.empty_cache()


def main() -> None:
    """Measure and write."""
    start = time.monotonic()
    chosen = options()
    if chosen.share:
        share(chosen)
        return
    results = Results(chosen.json, "hector: relational layers on a GPU")
    context = Context(results, copy_rate(torch.device("cuda")), start + chosen.seconds)
    results.extra["copy_gb_s"] = context.rate / 1e9
    cells = [(graph, layer) for graph in chosen.graphs for layer in chosen.layers]
    _compile(chosen, cells, context)
    some = [each for each in cells if each[0] in chosen.some]
    for graph, layer in cells if "speed" in chosen.sections else ():
        gpu_sections.speed(context, cell(layer, graph))
        _free()
    if "speed" in chosen.sections:
        gpu_sections.means(context)
    for graph, layer in cells if "precision" in chosen.sections else ():
        gpu_sections.precision(context, cell(layer, graph), graph in chosen.some)
        _free()
    if "forms" in chosen.sections and chosen.forms:
        gpu_sections.forms(context, chosen.forms, chosen.graphs)
    for graph, layer in some if "ablation" in chosen.sections else ():
        gpu_sections.ablation(context, cell(layer, graph))
        _free()
    for graph, layer in some if "widths" in chosen.sections else ():
        gpu_sections.widths(context, cell(layer, graph))
        _free()
    results.extra["seconds"] = time.monotonic() - start
    results.write()


def _compile(chosen: argparse.Namespace, cells: list[tuple[str, str]], context: Context) -> None:
    """Compile kernels, and meanwhile PyG's layers on some graphs."""
    asked = [
        "--json", str(chosen.json), "--graphs", ",".join(chosen.graphs),
        "--layers", ",".join(chosen.layers), "--sections", ",".join(chosen.sections),
        "--some", ",".join(chosen.some),
    ]  # fmt: skip
    kernels = threading.Thread(target=lambda: compile_kernels(asked, chosen.processes))
    start = time.monotonic()
    kernels.start()
    if "compiled" in chosen.sections:
        fit = [
            (graph, layer)
            for graph, layer in cells
            if graph in chosen.some and (layer != "RGAT" or _matrices_fit(graph))
        ]
        context.compiled = compiled_pyg(fit, chosen.compile_seconds, 16, kernels.join)
    kernels.join()
    context.results.extra["seconds_compiling"] = time.monotonic() - start
    print(f"compiled in {time.monotonic() - start:.0f} s", flush=True)


def _matrices_fit(graph: str) -> bool:
    """Whether a matrix for each edge, as PyG's RGAT gathers them, fits into the GPU's memory."""
    total = torch.cuda.get_device_properties(0).total_memory
    return SHAPES[graph].edges * 64 * 64 * 4 < total


def _free() -> None:
    gc.collect()
    torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
