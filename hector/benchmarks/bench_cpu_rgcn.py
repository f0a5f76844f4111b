# SPDX-License-Identifier: Apache-2.0
"""Relational layers on the CPU: compiled against eager per edge and a loop over relations.

``--json PATH`` is where the results go, with machine, versions and commit; ``--quick`` takes the
smallest graph only. All figures of a row come from the same run.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import bench_schema
import torch
from torch import Tensor

import hector

# Nodes, edges and relations of public graphs (edges drawn at random, both skewed).
GRAPHS = {
    "aifb": (7_262, 48_810, 104),
    "mutag": (27_163, 148_100, 50),
    "fb15k": (14_541, 620_232, 474),
}
WIDTH = 64
# Eager code gathers a matrix for each edge; above this it is left out.
PER_EDGE_BYTES = 3 << 30
TARGET = 3.0

Layer = Callable[..., Tensor]


@dataclass(frozen=True)
class Case:
    """One layer on one graph, with what it is compared to."""

    work: str
    layer: Layer
    inputs: tuple[object, ...]
    peers: dict[str, Layer] = field(default_factory=dict)


def draw(nodes: int, edges: int, relations: int, seed: int = 0) -> hector.Graph:
    """A graph of these sizes whose nodes and relations follow power laws."""
    generator = torch.Generator().manual_seed(seed)

    def skewed(count: int, power: float) -> Tensor:
        weights = torch.arange(1, count + 1, dtype=torch.float64) ** -power
        ids = torch.multinomial(weights, edges, replacement=True, generator=generator)
        return torch.randperm(count, generator=generator)[ids]

    index = torch.stack([skewed(nodes, 0.7), skewed(nodes, 0.7)])
    return hector.Graph(index, skewed(relations, 1.0), nodes, relations)


def rgcn(g: hector.Graph, x: Tensor, w: Tensor, root: Tensor, bias: Tensor) -> Tensor:
    """RGCN with the mean for each relation, root weight and bias."""
    messages = hector.linear(x[g.src], w[g.rel])
    return hector.aggregate(messages, g, reduce="mean_rel") + x @ root + bias


def relation_loop(g: hector.Graph, x: Tensor, w: Tensor, root: Tensor, bias: Tensor) -> Tensor:
    """RGCN, a relation after another, as libraries without typed products compute it."""
    out = x @ root + bias
    for relation in range(g.num_relations):
        chosen = g.rel == relation
        src, dst = g.src[chosen], g.dst[chosen]
        total = x.new_zeros(x.shape).index_add(0, dst, x[src])
        count = torch.bincount(dst, minlength=g.num_nodes).clamp(min=1).to(x.dtype)
        out = out + (total / count[:, None]) @ w[relation]
    return out


def rgat(g: hector.Graph, x: Tensor, w: Tensor, a_src: Tensor, a_dst: Tensor) -> Tensor:
    """RGAT with one head, softmax over all in-edges."""
    z_src, z_dst = hector.linear(x[g.src], w[g.rel]), hector.linear(x[g.dst], w[g.rel])
    score = (z_src * a_src[g.rel]).sum(-1) + (z_dst * a_dst[g.rel]).sum(-1)
    weight = hector.edge_softmax(torch.nn.functional.leaky_relu(score, 0.2), g)
    return hector.aggregate(weight[:, None] * z_src, g)


def cases(name: str) -> list[Case]:
    """The layers to time on one graph."""
    g = draw(*GRAPHS[name])
    nodes, relations = g.num_nodes, g.num_relations
    torch.manual_seed(0)
    scale = WIDTH**-0.5
    x, w = torch.randn(nodes, WIDTH), torch.randn(relations, WIDTH, WIDTH) * scale
    root, bias = torch.randn(WIDTH, WIDTH) * scale, torch.randn(WIDTH)
    a_src, a_dst = torch.randn(relations, WIDTH), torch.randn(relations, WIDTH)
    for tensor in (x, w, root, bias, a_src, a_dst):
        tensor.requires_grad_()
    fits = g.num_edges * WIDTH * WIDTH * 4 <= PER_EDGE_BYTES
    shape = f"{name} ({nodes} nodes, {g.num_edges} edges, {relations} relations), width {WIDTH}"
    loop: dict[str, Layer] = {"a loop over relations": relation_loop}
    return [
        Case(
            f"RGCN, {shape}", rgcn, (g, x, w, root, bias),
            loop | ({"eager per edge": rgcn} if fits else {}),
        ),
        Case(
            f"RGAT, {shape}", rgat, (g, x, w, a_src, a_dst),
            {"eager per edge": rgat} if fits else {},
        ),
    ]  # fmt: skip


def seconds(layer: Layer, inputs: tuple[object, ...], training: bool, budget: float) -> float:
    """Median time of a forward, or a forward and backward, after one to warm up."""
    tensors = [value for value in inputs if isinstance(value, Tensor)]

    def run() -> None:
        with torch.set_grad_enabled(training):
            out = layer(*inputs)
        if training:
            torch.autograd.grad(out, tensors, torch.ones_like(out))

    run()
    times: list[float] = []
    while not times or (sum(times) < budget and len(times) < 50):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def rows(case: Case, training: bool, budget: float) -> list[bench_schema.Row]:
    """One row for each peer; without any, one that says so."""
    compiled = hector.compile(case.layer)
    ours = seconds(compiled, case.inputs, training, budget)
    with torch.set_grad_enabled(training):
        forms = compiled.explain(*case.inputs).forms
    work = f"{case.work}, {'forward + backward' if training else 'forward'}"
    made = [
        bench_schema.Row(work, ours * 1e3, "ms", note=f"forms: {forms}; no peer fits in memory")
    ]
    if case.peers:
        made = []
    for name, layer in case.peers.items():
        theirs = seconds(layer, case.inputs, training, budget)
        ratio = theirs / ours
        made.append(
            bench_schema.Row(
                work, ours * 1e3, "ms", peer=theirs * 1e3, peer_name=name, ratio=ratio,
                target=f">= {TARGET:.0f}x", met=ratio >= TARGET, note=f"forms: {forms}",
            )
        )  # fmt: skip
    for row in made:
        against = f"{row.peer:.1f} ms {row.peer_name}, {row.ratio:.1f}x" if row.peer else row.note
        print(f"{row.work}: {row.ours:.1f} ms; {against}", flush=True)
    return made


def main() -> None:
    """Time every layer and write the results."""
    options = bench_schema.arguments(__doc__)
    names = ["aifb"] if options.quick else list(GRAPHS)
    budget = 0.2 if options.quick else 2.0
    found = [
        row
        for name in names
        for case in cases(name)
        for training in (False, True)
        for row in rows(case, training, budget)
    ]
    threads = {"threads": torch.get_num_threads()}
    bench_schema.write(options.json, "hector: relational layers on the CPU", found, extra=threads)


if __name__ == "__main__":
    main()
