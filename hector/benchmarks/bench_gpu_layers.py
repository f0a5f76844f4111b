# SPDX-License-Identifier: Apache-2.0
"""Relational layers on a GPU: compiled, PyG's, a composition by hand, and the limits of both.

Eight graphs of the sizes of public ones, drawn at random. Products of fp32 round to tf32 on all
sides ("high") unless a row says otherwise. Every row is written when it is there, so that a run cut
short loses nothing. ``--quick`` takes the smallest graph.

Sections, in this order: ``speed`` (against peers and limits), ``precision`` (bf16, and fp32
rounded nowhere), ``forms`` (against the hand-written kernels of ``--forms FILE``), ``ablation``
(forms fixed and chosen), ``compiled`` (PyG under ``torch.compile``), ``widths`` (32, 128, 8 heads).
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import sys
import time
from pathlib import Path

import gpu_sections
import torch
from gpu_cells import BF16, HIGH, HIGHEST, Setting, cell, prepare
from gpu_parallel import Compilers, compiled_pyg
from gpu_results import Results
from gpu_sections import FIXED, WIDTHS, Context

from hector.measure.layers import LAYERS
from hector.measure.shapes import SHAPES
from hector.measure.timing import copy_rate

SECTIONS = ("speed", "precision", "forms", "ablation", "compiled", "widths")


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


def settings(graph: str, section: str, chosen: argparse.Namespace) -> list[Setting]:
    """What a section runs of a cell on a graph."""
    some = graph in chosen.some
    return {
        "speed": [HIGH],
        "precision": [BF16, HIGHEST] if some else [BF16],
        "ablation": [Setting(forms=forms) for forms in FIXED.values()] if some else [],
        "widths": WIDTHS if some else [],
    }.get(section, [])


def share(chosen: argparse.Namespace) -> None:
    """For each section named on stdin run every K-th setting, so that its kernels are on disk."""
    number, count = (int(part) for part in chosen.share.split("/"))
    at: tuple[str, str] | None = None
    for section in map(str.strip, sys.stdin):
        work = [
            (layer, graph, setting, training)
            for layer in reversed(chosen.layers)
            for graph in chosen.graphs
            for setting in settings(graph, section, chosen)
            for training in (True, False)
        ][number::count]
        work.sort(key=lambda item: (SHAPES[item[1]].edges, item[0]))
        turn = len(work) * number // count  # not all at the largest graph at once
        for layer, graph, setting, training in work[turn:] + work[:turn]:
            with contextlib.suppress(Exception):  # it is said where it is measured
                if at != (layer, graph):
                    found, at = cell(layer, graph), (layer, graph)
                prepare(found, setting, training)
            _free()
        found, at = None, None  # type: ignore[assignment]
        _free()
        print("done", flush=True)


def main() -> None:
    """Measure and write."""
    start = time.monotonic()
    chosen = options()
    if chosen.share:
        share(chosen)
        return
    results = Results(chosen.json, "hector: relational layers on a GPU")
    asked = [
        "--json", str(chosen.json), "--graphs", ",".join(chosen.graphs),
        "--layers", ",".join(chosen.layers), "--some", ",".join(chosen.some),
    ]  # fmt: skip
    with Compilers(asked, chosen.processes) as compilers:
        context = Context(results, copy_rate(torch.device("cuda")), start + chosen.seconds)
        results.extra["copy_gb_s"] = context.rate / 1e9
        for section in (each for each in SECTIONS if each in chosen.sections):
            if context.late(section):
                break
            if any(settings(graph, section, chosen) for graph in chosen.graphs):
                results.keep("seconds compiling", section, compilers.prepare(section))
            _measure(section, chosen, context)
    results.extra["seconds"] = time.monotonic() - start
    results.write()


def _measure(section: str, chosen: argparse.Namespace, context: Context) -> None:
    """Measure one section."""
    if section == "forms":
        if chosen.forms:
            gpu_sections.forms(context, chosen.forms, chosen.graphs)
        return
    cells = [(graph, layer) for graph in chosen.graphs for layer in chosen.layers]
    some = [each for each in cells if each[0] in chosen.some]
    if section == "compiled":
        fit = [each for each in some if each[1] != "RGAT" or _matrices_fit(each[0])]
        gpu_sections.compiled(context, compiled_pyg(fit, chosen.compile_seconds, 16))
        return
    for graph, layer in some if section in ("ablation", "widths") else cells:
        if section == "precision":
            gpu_sections.precision(context, cell(layer, graph), graph in chosen.some)
        else:
            getattr(gpu_sections, section)(context, cell(layer, graph))
        _free()
    if section == "speed":
        gpu_sections.means(context)


def _matrices_fit(graph: str) -> bool:
    """Whether a matrix for each edge, as PyG's RGAT gathers them, fits into the GPU's memory."""
    total = torch.cuda.get_device_properties(0).total_memory
    return SHAPES[graph].edges * 64 * 64 * 4 < total


def _free() -> None:
    gc.collect()
    torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
