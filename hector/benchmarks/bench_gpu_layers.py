# SPDX-License-Identifier: Apache-2.0
"""Relational layers on a GPU: compiled, PyG's layers, and the rate at which the GPU copies.

Eight graphs of the sizes of public ones, drawn at random (destinations and relations skewed).
The limit of a row is the time that a copy takes for the layer's bytes without any reuse of gathered
rows: each edge's row read, each node's row written, ids read; for training once more, with the
gradients of the matrices. ``--quick`` takes the smallest graph only.
"""

from __future__ import annotations

import gc
import math
import statistics
from collections.abc import Callable
from dataclasses import dataclass, field

import bench_schema
import torch
from torch import Tensor

import hector

# Nodes, edges, relations, node types.
GRAPHS = {
    "aifb": (7_262, 48_810, 104, 7),
    "mutag": (27_163, 148_100, 50, 5),
    "bgs": (94_806, 672_884, 122, 27),
    "fb15k": (14_541, 620_232, 474, 1),
    "biokg": (93_773, 4_762_678, 51, 5),
    "am": (1_885_136, 5_668_682, 108, 7),
    "mag": (1_939_743, 21_111_007, 4, 4),
    "wikikg2": (2_500_604, 16_109_182, 535, 1),
}
WIDTH = 64
TARGET = 43.7
REPLAYED = 1 << 20
"""Edges up to which a layer is also replayed as a CUDA graph: there the host sets the time."""

Layer = Callable[..., Tensor]
Run = Callable[[], object]


def rgcn(g: hector.Graph, x: Tensor, w: Tensor, root: Tensor, bias: Tensor) -> Tensor:
    """RGCN with the mean for each relation, root weight and bias: PyG's RGCNConv."""
    messages = hector.linear(x[g.src], w[g.rel])
    return hector.aggregate(messages, g, reduce="mean_rel") + x @ root + bias


def rgat(g: hector.Graph, x: Tensor, w: Tensor, query: Tensor, key: Tensor, bias: Tensor) -> Tensor:
    """RGAT with one head, additive attention over all in-edges, bias: PyG's RGATConv."""
    z_src, z_dst = hector.linear(x[g.src], w[g.rel]), hector.linear(x[g.dst], w[g.rel])
    score = (z_dst @ query).squeeze(-1) + (z_src @ key).squeeze(-1)
    share = hector.edge_softmax(torch.nn.functional.leaky_relu(score, 0.2), g)
    return hector.aggregate(share[:, None] * z_src, g) + bias


def hgt(
    g: hector.Graph, x: Tensor, kqv: Tensor, attend: Tensor, message: Tensor, prior: Tensor,
    out: Tensor, skip: Tensor,
) -> Tensor:  # fmt: skip
    """HGT with one head (Hu et al., 2020, equations 3 to 5): PyG's HGTConv without biases."""
    projected = hector.linear(x, kqv[g.node_type]).reshape(x.shape[0], 3, WIDTH)
    keys, queries, values = projected.unbind(1)
    folded = attend * (prior / math.sqrt(WIDTH))[:, None, None]
    score = (hector.linear(keys[g.src], folded[g.rel]) * queries[g.dst]).sum(-1)
    share = hector.edge_softmax(score, g)
    summed = hector.aggregate(share[:, None] * hector.linear(values[g.src], message[g.rel]), g)
    new = hector.linear(torch.nn.functional.gelu(summed), out[g.node_type])
    kept = torch.sigmoid(skip)[g.node_type][:, None]
    return kept * new + (1 - kept) * x


@dataclass(frozen=True)
class Case:
    """One layer on one graph, with PyG's layers for the same work."""

    work: str
    layer: Layer
    g: hector.Graph
    tensors: tuple[Tensor, ...]
    peers: dict[str, Callable[[], tuple[Layer, tuple[object, ...]]]] = field(default_factory=dict)


def draw(name: str) -> hector.Graph:
    """A graph of one of the sizes; node types in ranges, as HGT needs them."""
    nodes, edges, relations, types = GRAPHS[name]
    generator = torch.Generator(device="cuda").manual_seed(0)

    def uniform() -> Tensor:
        return torch.rand(edges, device="cuda", generator=generator)

    shuffle = torch.randperm(nodes, device="cuda", generator=generator)
    src = shuffle[(nodes * uniform() ** 1.5).long().clamp_(max=nodes - 1)]
    dst = shuffle[(nodes * uniform() ** 2).long().clamp_(max=nodes - 1)]
    shares = torch.arange(1, relations + 1, device="cuda", dtype=torch.float64) ** -1.1
    rel = torch.multinomial(shares.float(), edges, replacement=True, generator=generator)
    kinds = torch.arange(nodes, device="cuda") * types // nodes
    return hector.Graph(torch.stack([src, dst]), rel, nodes, relations, kinds)


def cases(name: str) -> list[Case]:
    """The three layers on one graph."""
    g = draw(name)
    nodes, edges, relations, types = GRAPHS[name]
    generator = torch.Generator(device="cuda").manual_seed(1)

    def make(*shape: int) -> Tensor:
        values = torch.randn(shape, device="cuda", generator=generator) / math.sqrt(shape[-1])
        return values.requires_grad_()

    x, d = make(nodes, WIDTH), WIDTH
    shape = f"{name} ({nodes} nodes, {edges} edges, {relations} relations), width {WIDTH}"
    return [
        Case(
            f"RGCN, {shape}", rgcn, g, (x, make(relations, d, d), make(d, d), make(d)),
            {f"PyG {kind}": _pyg(kind, g, x) for kind in ("RGCNConv", "FastRGCNConv")},
        ),
        Case(
            f"RGAT, {shape}", rgat, g,
            (x, make(relations, d, d), make(d, 1), make(d, 1), make(d)),
            {"PyG RGATConv": _pyg("RGATConv", g, x)},
        ),
        Case(
            f"HGT, {shape}", hgt, g,
            (
                x, make(types, d, 3 * d), make(relations, d, d), make(relations, d, d),
                make(relations), make(types, d, d), make(types),
            ),
            {"PyG HGTConv": lambda: _pyg_hgt(g, x)},
        ),
    ]  # fmt: skip


def _pyg(name: str, g: hector.Graph, x: Tensor) -> Callable[[], tuple[Layer, tuple[object, ...]]]:
    def make() -> tuple[Layer, tuple[object, ...]]:
        import torch_geometric.nn as peers

        layer = getattr(peers, name)(WIDTH, WIDTH, g.num_relations).cuda()
        order = torch.argsort(g.rel * g.num_nodes + g.dst)
        return layer, (x, g.edge_index[:, order], g.rel[order])

    return make


def _pyg_hgt(g: hector.Graph, x: Tensor) -> tuple[Layer, tuple[object, ...]]:
    """PyG's layer on a typed graph of the same sizes: it takes one relation between two types."""
    from torch_geometric.nn import HGTConv

    types = max(g.num_node_types, 1)
    pick = torch.Generator().manual_seed(1)
    per = [int((g.node_type == kind).sum()) for kind in range(types)]
    counts = torch.bincount(g.rel, minlength=g.num_relations).tolist()
    edges: dict[tuple[str, str, str], Tensor] = {}
    for relation, count in enumerate(counts):
        a, b = torch.randint(types, (2,), generator=pick).tolist()
        if count:
            ends = [torch.randint(per[end], (count,), device="cuda") for end in (a, b)]
            edges[f"n{a}", f"r{relation}", f"n{b}"] = torch.stack(ends)
    rows = dict(zip((f"n{kind}" for kind in range(types)), x.split(per), strict=True))
    layer = HGTConv(WIDTH, WIDTH, (list(rows), list(edges)), heads=1).cuda()

    def run(rows: dict[str, Tensor], edges: dict[tuple[str, str, str], Tensor]) -> Tensor:
        found = [value for value in layer(rows, edges).values() if value is not None]
        return torch.cat(found)

    return run, (rows, edges)


def milliseconds(run: Run, repeats: int = 20) -> float:
    """Median time between events around a call, after calls to warm up."""
    for _ in range(4):
        run()
    times = []
    for _ in range(repeats):
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        run()
        stop.record()
        stop.synchronize()
        times.append(start.elapsed_time(stop))
    return statistics.median(times)


def copy_rate() -> float:
    """Bytes a millisecond, read and written, of a copy on the device."""
    a = torch.empty(1 << 29, device="cuda")
    b = torch.empty_like(a)
    return 2 * a.numel() * 4 / milliseconds(lambda: b.copy_(a))


def bound_bytes(g: hector.Graph, training: bool, element: int) -> int:
    """Bytes of a layer if each gathered row is read from memory, see the top of the file."""
    row = WIDTH * element
    ids = 4 * (g.num_edges + g.num_nodes)
    forward = (g.num_edges + g.num_nodes) * row + ids
    if not training:
        return forward
    matrices = g.num_relations * WIDTH * WIDTH * (element + 4)
    return forward + (g.num_edges + 2 * g.num_nodes) * row + ids + matrices


def runner(layer: Layer, args: tuple[object, ...], wrt: list[Tensor], training: bool) -> Run:
    """A forward, or a forward and backward, as a function of nothing."""

    def run() -> object:
        if not training:
            with torch.no_grad():
                return layer(*args)
        out = layer(*args)
        return torch.autograd.grad(out, wrt, torch.ones_like(out), allow_unused=True)

    return run


def replayed(run: Run) -> float:
    """Median time of a call replayed as a CUDA graph."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            run()
    torch.cuda.current_stream().wait_stream(side)
    recorded = torch.cuda.CUDAGraph()
    with torch.cuda.graph(recorded):
        run()
    return milliseconds(recorded.replay)


def best_peer(case: Case, training: bool) -> tuple[str, float | None, str]:
    """Name and time of the fastest of PyG's layers that runs, and what the others said."""
    found: list[tuple[float, str]] = []
    failed = []
    for name, make in case.peers.items():
        try:
            layer, args = make()
            wrt = [tensor for tensor in (case.tensors[0],) if tensor.requires_grad]
            if isinstance(layer, torch.nn.Module):
                wrt += list(layer.parameters())
            found.append((milliseconds(runner(layer, args, wrt, training), 10), name))
        except (torch.OutOfMemoryError, RuntimeError) as error:
            failed.append(f"{name}: {str(error).splitlines()[0][:60]}")
        layer, args = None, ()  # type: ignore[assignment]
        gc.collect()
        torch.cuda.empty_cache()
    if not found:
        return "", None, "; ".join(failed)
    time, name = min(found)
    return name, time, "; ".join(failed)


def row(
    case: Case, training: bool, dtype: torch.dtype, precision: str, rate: float,
    peer: tuple[str, float | None, str],
) -> bench_schema.Row:  # fmt: skip
    """Time one layer and put it beside its peer and its limit."""
    torch.set_float32_matmul_precision(precision)
    tensors = tuple(t.detach().to(dtype).requires_grad_(training) for t in case.tensors)
    compiled = hector.compile(case.layer, emitter="triton")
    run = runner(compiled, (case.g, *tensors), list(tensors), training)
    run()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    run()
    peak = torch.cuda.max_memory_allocated() - before
    plain = ours = milliseconds(run)
    if case.g.num_edges <= REPLAYED:
        ours = replayed(run)
    with torch.set_grad_enabled(training):
        account = compiled.explain(case.g, *tensors)
    limit = bound_bytes(case.g, training, tensors[0].element_size()) / rate
    name, theirs, failed = peer
    ratio = None if theirs is None else theirs / ours
    kind = str(dtype).removeprefix("torch.") + (f" {precision}" if dtype is torch.float32 else "")
    notes = [
        f"forms: {account.forms}", f"{account.bytes / 1e6:.1f} MB predicted",
        f"{account.bytes / ours / rate:.2f} of the copy rate on those",
        f"{limit / ours:.2f} of the gather bound", f"peak {peak / 2**20:.0f} MiB",
    ]  # fmt: skip
    if ours != plain:
        notes.append(f"replayed as a CUDA graph; called {plain:.3f} ms")
    if failed:
        notes.append(failed)
    return bench_schema.Row(
        f"{case.work}, {kind}, {'forward + backward' if training else 'forward'}",
        ours, "ms", peer=theirs, peer_name=name, limit=limit,
        limit_name="bytes without reuse at the copy rate", ratio=ratio,
        target="" if ratio is None else f">= {TARGET}x, geometric mean",
        met=None if ratio is None else ratio >= TARGET, note="; ".join(notes),
    )  # fmt: skip


def main() -> None:
    """Time every layer on every graph and write the results."""
    options = bench_schema.arguments(__doc__)
    names = ["aifb"] if options.quick else list(GRAPHS)
    rate = copy_rate()
    kinds = [(torch.float32, "high"), (torch.float32, "highest"), (torch.bfloat16, "highest")]
    rows = []
    for name in names:
        for case in cases(name):
            for training in (False, True):
                torch.set_float32_matmul_precision("high")
                peer = best_peer(case, training)
                for dtype, precision in kinds:
                    same = peer if (dtype, precision) == kinds[0] else ("", None, "")
                    rows.append(row(case, training, dtype, precision, rate, same))
                    print(f"{rows[-1].work}: {rows[-1].ours:.4f} ms; {rows[-1].ratio}", flush=True)
        gc.collect()
        torch.cuda.empty_cache()
    ratios = [entry.ratio for entry in rows if entry.ratio is not None]
    extra = {
        "copy_gb_s": rate / 1e6,
        "geometric_mean_ratio": statistics.geometric_mean(ratios) if ratios else None,
    }
    bench_schema.write(options.json, "hector: relational layers on a GPU", rows, extra=extra)


if __name__ == "__main__":
    main()
