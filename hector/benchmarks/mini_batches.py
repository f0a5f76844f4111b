# SPDX-License-Identifier: Apache-2.0
"""A hundred sampled mini-batches of changing size: compilations, plan time and step time.

``bench_mini_batches.py`` measures on the CPU, ``bench_gpu_mini_batches.py`` on a GPU. A plan's time
is that of building the graph and of everything that its step derives from it, built before the
step; the step is forward and backward of one layer with all gradients.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import bench_schema
import torch
from torch import Tensor

import hector
from hector.measure.layers import LAYERS, Layer
from hector.measure.shapes import Shape, draw

RELATIONS, TYPES, WIDTH = 8, 4, 64


@dataclass(frozen=True)
class Batch:
    """What a sampler gives: ids, relations and types of a batch."""

    index: Tensor
    rel: Tensor
    nodes: int
    node_type: Tensor

    def to(self, device: torch.device, non_blocking: bool = False) -> Batch:
        """The batch on a device."""
        moved = (t.to(device, non_blocking=non_blocking) for t in (self.index, self.rel))
        return Batch(*moved, self.nodes, self.node_type.to(device, non_blocking=non_blocking))

    def graph(self) -> hector.Graph:
        """Its graph, used once."""
        return hector.Graph(
            self.index, self.rel, self.nodes, RELATIONS, self.node_type, TYPES, sampled=True
        )


def batches(count: int, nodes: int, edges: int) -> list[Batch]:
    """Batches between half and one and a half of a size, in no order."""
    pick = torch.Generator().manual_seed(0)
    made = []
    for number in range(count):
        share = 0.5 + torch.rand((), generator=pick).item()
        shape = Shape("batch", int(nodes * share), int(edges * share), RELATIONS, TYPES)
        g = draw(shape, "cpu", seed=number)
        made.append(Batch(g.edge_index, g.edge_type, g.num_nodes, g.node_type))
    return made


@dataclass(frozen=True)
class Measured:
    """Medians in milliseconds, and how many programs served all batches.

    Attributes
    ----------
    first : float
        Of the first step, which compiles.
    plan, step : float
    prefetched : float
        Of a batch of a loop over batches whose graphs are built beside the steps.
    programs : int
    """

    first: float
    plan: float
    step: float
    prefetched: float
    programs: int


def measure(layer: Layer, made: list[Batch], device: torch.device) -> Measured:
    """Run all batches one by one, then in a loop that prefetches."""
    most = max(batch.nodes for batch in made)
    whole = draw(Shape("table", most, RELATIONS, RELATIONS, TYPES), device)
    x, *weights = layer.inputs(whole, WIDTH)
    rows = x.detach()
    compiled = hector.compile(layer.function)
    sources: set[str] = set()

    def sync() -> None:
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    def step(g: hector.Graph) -> None:
        features = rows[: g.num_nodes].requires_grad_()
        out = compiled(g, features, *weights)
        torch.autograd.grad(out, [features, *weights], torch.ones_like(out))

    def timed(run: Callable[[], object]) -> float:
        sync()
        start = time.perf_counter()
        run()
        sync()
        return (time.perf_counter() - start) * 1e3

    g = made[0].to(device).graph()
    first = timed(lambda: step(g))
    plans, steps = [], []
    for batch in made:
        here, recipe = batch.to(device), g.recipe()
        built: list[hector.Graph] = []
        plans.append(timed(lambda: built.append(here.graph().prepare(recipe))))  # noqa: B023
        g = built[0]
        steps.append(timed(lambda: step(g)))  # noqa: B023
        features = rows[: g.num_nodes].requires_grad_()
        sources.add(compiled.explain(g, features, *weights).source)

    def loop() -> None:
        for _, graph in _prefetched(made, device):
            step(graph)

    loop()
    prefetched = timed(loop) / len(made)
    return Measured(
        first, statistics.median(plans), statistics.median(steps), prefetched, len(sources)
    )


def _prefetched(made: list[Batch], device: torch.device) -> Iterator[tuple[Batch, hector.Graph]]:
    pinned = made
    if device.type == "cuda":
        pinned = [Batch(b.index.pin_memory(), b.rel.pin_memory(), b.nodes,
                        b.node_type.pin_memory()) for b in made]  # fmt: skip
    return hector.prefetch(pinned, Batch.graph, device=device)


def main(device: torch.device, nodes: int, edges: int) -> None:
    """Measure every layer and write the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, required=True, help="where the results go")
    parser.add_argument("--quick", action="store_true", help="few batches, to see it run")
    options = parser.parse_args()
    torch.set_float32_matmul_precision("high")
    made = batches(10 if options.quick else 100, nodes, edges)
    rows = []
    for name, layer in LAYERS.items():
        found = measure(layer, made, device)
        sizes = f"{len(made)} batches of about {nodes} nodes and {edges} edges, width {WIDTH}"
        work = f"{name}, {sizes}"
        rows += [
            bench_schema.Row(
                f"{work}: programs compiled", found.programs, "programs", ratio=found.programs,
                target="one compilation", met=found.programs == 1,
                note=f"the first step takes {found.first:.0f} ms",
            ),
            bench_schema.Row(
                f"{work}: plan", found.plan, "ms", limit=found.step,
                limit_name="forward + backward", ratio=found.plan / found.step,
                target="<= forward + backward", met=found.plan <= found.step,
                note=f"a batch of a loop with hector.prefetch: {found.prefetched:.2f} ms",
            ),
        ]  # fmt: skip
        for row in rows[-2:]:
            print(f"{row.work}: {row.ours:.3g} {row.unit}, {row.ratio:.3g}; {row.note}", flush=True)
        bench_schema.write(options.json, f"hector: sampled mini-batches on {device.type}", rows)
