# SPDX-License-Identifier: Apache-2.0
"""Relational layers on the CPU: compiled against PyG's eager layers, forward and training.

Graphs have the sizes of public ones and are drawn at random; width 64, one head, fp32. Ours and
theirs take turns, and the fastest turn of each counts: what else the machine does can only add.
What a peer is estimated to need in memory decides whether it is tried.
"""

from __future__ import annotations

import argparse
import gc
import time
from pathlib import Path

import bench_schema
import torch
from pyg_layers import PYG, make_pyg

import hector
from datapath_core.commands import with_threads_that_sleep
from hector.measure.layers import LAYERS, Layer
from hector.measure.shapes import SHAPES, Shape
from hector.measure.timing import Run, runner

WIDTH = 64
FAST = ("aifb", "mutag", "fb15k")
"""Graphs for which the target is a factor, and not just to be no slower."""

CPU = torch.device("cpu")


def peer_bytes(kind: str, shape: Shape, training: bool) -> int:
    """About what a layer of PyG keeps in memory: what it makes for each edge, relation and node."""
    row = WIDTH * 4
    edges, nodes = shape.edges * row, shape.nodes * row
    if kind in ("FastRGCNConv", "RGATConv"):
        matrices = edges * WIDTH
        return (matrices * (3 if training else 2) if kind == "RGATConv" else matrices * 2) + edges
    if kind == "RGCNConv":  # a relation's sums, for all nodes, are kept until backward
        return (shape.relations * nodes + edges) * 2 if training else 3 * nodes + edges
    sources = shape.relations * nodes // shape.types
    return (2 * sources + 4 * edges) * (2 if training else 1)


def turns(ours: Run, theirs: Run, budget: float) -> tuple[float, float]:
    """The fastest turn of each in milliseconds: what else the machine does can only add to it."""
    ours()
    theirs()
    times: list[tuple[float, float]] = []
    start = time.perf_counter()
    while len(times) < 3 or (len(times) < 60 and time.perf_counter() - start < budget):
        times.append((_once(ours), _once(theirs)))
        if time.perf_counter() - start > 4 * budget:
            break
    mine, other = (min(column) for column in zip(*times, strict=True))
    return mine, other


def _once(run: Run) -> float:
    start = time.perf_counter()
    run()
    return (time.perf_counter() - start) * 1e3


def _alone(run: Run, budget: float) -> float:
    run()
    times: list[float] = []
    while not times or (sum(times) < budget * 1e3 and len(times) < 20):
        times.append(_once(run))
    return min(times)


def rows(
    layer: Layer, shape: Shape, g: hector.Graph, training: bool, budget: float, memory: int
) -> list[bench_schema.Row]:
    """One row for each peer that fits, or one that says that none does."""
    inputs = layer.inputs(g, WIDTH)
    compiled = hector.compile(layer.function, emitter="torch")
    ours = runner(compiled, (g, *inputs), inputs, training)
    with torch.set_grad_enabled(training):
        account = compiled.explain(g, *inputs)
    forms, held = account.forms, sum(each.memory for each in account.programs.values())
    if held > memory:
        print(f"{layer.name}, {shape}: left out, ours needs {held / 2**30:.1f} GiB", flush=True)
        return []
    work = f"{layer.name}, {shape}, {'forward + backward' if training else 'forward'}"
    made = []
    for kind in PYG[layer.name]:
        if peer_bytes(kind, shape, training) > memory:
            continue
        try:
            call = make_pyg(kind, g, WIDTH)
        except ImportError as error:
            print(f"{kind}: {error}", flush=True)
            continue
        mine, other = turns(ours, runner(*call, training), budget)
        ratio = other / mine
        least = 3 if shape.name in FAST else 1
        made.append(bench_schema.Row(
            f"{work}, against {kind}", mine, "ms", peer=other, peer_name=f"PyG {kind}",
            ratio=ratio, target=f">= {least}x PyG", met=ratio >= least, note=f"forms: {forms}",
        ))  # fmt: skip
        del call
        gc.collect()
    if not made:
        note = f"forms: {forms}; no peer is expected to fit into {memory / 2**30:.0f} GiB"
        made = [bench_schema.Row(work, _alone(ours, budget), "ms", note=note)]
    return made


def main() -> None:
    """Time every layer and write the results after each."""
    with_threads_that_sleep()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, required=True, help="where the results go")
    parser.add_argument("--quick", action="store_true", help="the smallest graph, to see it run")
    parser.add_argument("--graphs", type=lambda text: text.split(","), default=list(SHAPES))
    parser.add_argument("--layers", type=lambda text: text.split(","), default=list(LAYERS))
    parser.add_argument("--gib", type=float, default=6.0, help="memory that either may need")
    parser.add_argument("--budget", type=float, default=2.0, help="seconds a row")
    options = parser.parse_args()
    names = ["aifb"] if options.quick else options.graphs
    budget = 0.2 if options.quick else options.budget
    found: list[bench_schema.Row] = []
    for name in names:
        for layer in (LAYERS[each] for each in options.layers):
            g = layer.draw(SHAPES[name], CPU)
            for training in (False, True):
                new = rows(layer, SHAPES[name], g, training, budget, int(options.gib * 2**30))
                found += new
                for row in new:
                    against = f"{row.peer:.4g} ms, {row.ratio:.2f}x" if row.peer else ""
                    print(f"{row.work}: {row.ours:.4g} ms; {against} {row.note}", flush=True)
                gc.collect()
            if not found:
                continue
            bench_schema.write(
                options.json, "hector: relational layers on the CPU", found,
                extra={"threads": torch.get_num_threads()},
            )  # fmt: skip


if __name__ == "__main__":
    main()
