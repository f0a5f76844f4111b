# SPDX-License-Identifier: Apache-2.0
"""One relational layer on the CPU: compiled against eager per edge and a loop over relations.

Prints times and ratios; ``--json PATH`` also writes them with machine, versions and commit.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

import hector

# Nodes, edges and relations of public graphs (edges drawn at random, relation sizes skewed).
GRAPHS = {
    "aifb": (7_262, 48_810, 104),
    "mutag": (27_163, 148_100, 50),
    "fb15k": (14_541, 620_232, 474),
}
PER_EDGE_BYTES = 4 << 30

Layer = Callable[..., Tensor]


def draw(nodes: int, edges: int, relations: int, seed: int = 0) -> hector.Graph:
    """A graph of these sizes with power-law nodes and relations."""
    generator = torch.Generator().manual_seed(seed)

    def skewed(count: int, power: float) -> Tensor:
        weights = torch.arange(1, count + 1, dtype=torch.float64) ** -power
        ids = torch.multinomial(weights, edges, replacement=True, generator=generator)
        return torch.randperm(count, generator=generator)[ids]

    index = torch.stack([skewed(nodes, 0.7), skewed(nodes, 0.7)])
    return hector.Graph(index, skewed(relations, 1.0), nodes, relations)


def rgcn(g: hector.Graph, x: Tensor, w: Tensor, root: Tensor, bias: Tensor) -> Tensor:
    """RGCN with PyG's mean for each relation, root weight and bias."""
    messages = hector.linear(x[g.src], w[g.rel])
    return hector.aggregate(messages, g, reduce="mean_rel") + x @ root + bias


def loop(g: hector.Graph, x: Tensor, w: Tensor, root: Tensor, bias: Tensor) -> Tensor:
    """The same, a relation after another, as libraries without typed products do it."""
    out = x @ root + bias
    for relation in range(g.num_relations):
        chosen = g.rel == relation
        src, dst = g.src[chosen], g.dst[chosen]
        total = x.new_zeros(x.shape).index_add(0, dst, x[src])
        count = torch.bincount(dst, minlength=g.num_nodes).clamp(min=1).to(x.dtype)
        out = out + (total / count[:, None]) @ w[relation]
    return out


def rgat(g: hector.Graph, x: Tensor, w: Tensor, a_src: Tensor, a_dst: Tensor) -> Tensor:
    """RGAT with one head."""
    z_src, z_dst = hector.linear(x[g.src], w[g.rel]), hector.linear(x[g.dst], w[g.rel])
    score = (z_src * a_src[g.rel]).sum(-1) + (z_dst * a_dst[g.rel]).sum(-1)
    weight = hector.edge_softmax(torch.nn.functional.leaky_relu(score, 0.2), g)
    return hector.aggregate(weight[:, None] * z_src, g)


def seconds(run: Callable[[], object], budget: float) -> float:
    """Median time of as many runs as fit the budget, three at least, after one to warm up."""
    run()
    times: list[float] = []
    while len(times) < 3 or (sum(times) < budget and len(times) < 100):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def measure(layer: Layer, inputs: tuple[object, ...], training: bool, budget: float) -> float:
    """Time of one forward, or of one forward and backward."""

    def train() -> None:
        out = layer(*inputs)
        tensors = [t for t in inputs if isinstance(t, Tensor)]
        torch.autograd.grad(out, tensors, torch.ones_like(out))

    def infer() -> None:
        with torch.no_grad():
            layer(*inputs)

    return seconds(train if training else infer, budget)


def rows(width: int, budget: float, names: list[str]) -> list[dict[str, object]]:
    """One row for each graph, layer and direction."""
    found: list[dict[str, object]] = []
    for name in names:
        g = draw(*GRAPHS[name])
        r, n = g.num_relations, g.num_nodes
        torch.manual_seed(0)
        x, w = torch.randn(n, width), torch.randn(r, width, width) / width**0.5
        root, bias = torch.randn(width, width) / width**0.5, torch.randn(width)
        a_src, a_dst = torch.randn(r, width), torch.randn(r, width)
        for tensor in (x, w, root, bias, a_src, a_dst):
            tensor.requires_grad_()
        fits = g.num_edges * width * width * 4 <= PER_EDGE_BYTES
        cases: list[tuple[str, Layer, tuple[object, ...], dict[str, Layer]]] = [
            ("rgcn", rgcn, (g, x, w, root, bias), {"relation loop": loop}),
            ("rgat", rgat, (g, x, w, a_src, a_dst), {}),
        ]
        for layer, function, inputs, peers in cases:
            if fits:
                peers["eager per edge"] = function
            for training in (False, True):
                ours = hector.compile(function)
                row: dict[str, object] = {
                    "graph": name,
                    "layer": layer,
                    "width": width,
                    "direction": "forward+backward" if training else "forward",
                    "compiled_s": measure(ours, inputs, training, budget),
                    "peers_s": {
                        peer: measure(run, inputs, training, budget) for peer, run in peers.items()
                    },
                }
                with torch.set_grad_enabled(training):
                    row["forms"] = str(ours.explain(*inputs).forms)
                found.append(row)
                show(row)
    return found


def show(row: dict[str, object]) -> None:
    """Print one row."""
    ours = row["compiled_s"]
    peers = row["peers_s"]
    assert isinstance(ours, float)
    assert isinstance(peers, dict)
    ratios = ", ".join(f"{p} {s * 1e3:.2f} ms ({s / ours:.1f}x)" for p, s in peers.items())
    print(
        f"{row['graph']:6} {row['layer']} {row['direction']:16} {ours * 1e3:8.2f} ms "
        f"[{row['forms']}] against {ratios or 'nothing that fits'}",
        flush=True,
    )


def environment() -> dict[str, object]:
    """Machine, versions and commit."""
    folder = Path(__file__).parent
    git = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=folder, capture_output=True, text=True, check=False
    )
    return {
        "processor": platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "hector": hector.__version__,
        "commit": git.stdout.strip() or None,
    }


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="also write the results here")
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=1.0, help="time for each measurement")
    parser.add_argument("--graphs", nargs="+", choices=list(GRAPHS), default=list(GRAPHS))
    options = parser.parse_args()
    results = rows(options.width, options.seconds, options.graphs)
    if options.json:
        text = json.dumps({"environment": environment(), "results": results}, indent=1)
        options.json.write_text(text + "\n")


if __name__ == "__main__":
    main()
