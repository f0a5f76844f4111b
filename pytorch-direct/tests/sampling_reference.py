# SPDX-License-Identifier: Apache-2.0
"""What a sample must look like, written down slowly; and graphs to draw them from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from hypothesis import strategies as st

from pytorch_direct import Graph, HeteroSamplerOutput, NeighborSampler, SamplerOutput
from pytorch_direct.sampling.device import DeviceBatch, EmulatedKernels
from pytorch_direct.sampling.plan import Sampled

EdgeType = tuple[str, str, str]
EDGE: EdgeType = ("node", "to", "node")


def in_edges(edge_index: torch.Tensor, node: int, time: torch.Tensor | None = None) -> list[int]:
    """Return the ids of the edges into a node, in the order of the compressed graph."""
    ids = (edge_index[1] == node).nonzero().view(-1)
    if time is not None:
        ids = ids[torch.argsort(time[ids], stable=True)]
    return ids.tolist()


def as_hetero(out: SamplerOutput | HeteroSamplerOutput) -> HeteroSamplerOutput:
    """Return a sample with dictionaries by type, whatever it was."""
    if isinstance(out, HeteroSamplerOutput):
        return out
    return HeteroSamplerOutput(
        {"node": out.node},
        {EDGE: out.row},
        {EDGE: out.col},
        None if out.edge is None else {EDGE: out.edge},
        None if out.batch is None else {"node": out.batch},
        {"node": out.num_sampled_nodes},
        {EDGE: out.num_sampled_edges},
    )


def replay(
    out: SamplerOutput | HeteroSamplerOutput,
    edges: Mapping[EdgeType, torch.Tensor],
    seeds: Mapping[str, torch.Tensor],
    hops: int,
    disjoint: bool,
) -> None:
    """Check that nodes, rows and columns are what the sampled edges' ids make them.

    The edges of each frontier entry stand together, entry by entry; a node is named when it first
    occurs.
    """
    out = as_hetero(out)
    nodes: dict[str, list[tuple[int, int]]] = {kind: [] for kind in out.node}
    numbers: dict[str, dict[tuple[int, int], int]] = {kind: {} for kind in out.node}
    seed = 0
    for kind in out.node:
        for ident in seeds.get(kind, torch.empty(0)).tolist():
            key = (seed if disjoint else 0, int(ident))
            numbers[kind].setdefault(key, len(nodes[kind]))
            nodes[kind].append(key)
            seed += 1
    frontier = {kind: (0, len(known)) for kind, known in nodes.items()}
    used = dict.fromkeys(out.row, 0)
    assert all(out.num_sampled_nodes[kind][0] == end for kind, (_, end) in frontier.items())
    for hop in range(hops):
        for kind in out.row:
            count = out.num_sampled_edges[kind][hop]
            begin = used[kind]
            cols = out.col[kind][begin : begin + count].tolist()
            assert cols == sorted(cols)
            low, high = frontier[kind[2]]
            assert all(low <= col < high for col in cols)
            for i, col in enumerate(cols, begin):
                ident = int(out.edge[kind][i])
                source, destination = edges[kind][:, ident].tolist()
                batch, node = nodes[kind[2]][col]
                assert node == destination
                key = (batch, source)
                number = numbers[kind[0]].setdefault(key, len(nodes[kind[0]]))
                if number == len(nodes[kind[0]]):
                    nodes[kind[0]].append(key)
                assert int(out.row[kind][i]) == number
            used[kind] += count
        frontier = {kind: (frontier[kind][1], len(known)) for kind, known in nodes.items()}
        for kind, (low, high) in frontier.items():
            assert out.num_sampled_nodes[kind][hop + 1] == high - low
    for kind, known in nodes.items():
        assert out.node[kind].tolist() == [node for _, node in known]
        if disjoint:
            assert out.batch[kind].tolist() == [batch for batch, _ in known]
    for kind, count in used.items():
        assert out.row[kind].numel() == out.col[kind].numel() == out.edge[kind].numel() == count


def chosen(out: SamplerOutput | HeteroSamplerOutput, kind: EdgeType = EDGE) -> dict[int, list[int]]:
    """Return the ids of the sampled edges by frontier entry, in order."""
    out = as_hetero(out)
    found: dict[int, list[int]] = {}
    for col, edge in zip(out.col[kind].tolist(), out.edge[kind].tolist(), strict=True):
        found.setdefault(col, []).append(edge)
    return found


def emulated(
    sampler: NeighborSampler,
    seeds: torch.Tensor | Mapping[str, torch.Tensor],
    *,
    batch: int = 0,
    times: torch.Tensor | None = None,
    threads: int = 64,
    order: int = 0,
) -> Sampled:
    """Return what the GPU's kernels make of a batch, their threads played by the host."""
    plan = sampler._plan
    given = seeds if isinstance(seeds, Mapping) else {"node": seeds}
    empty = torch.empty(0, dtype=torch.int64)
    ids = [given.get(kind, empty).long() for kind in plan.graph.node_types]
    if plan.temporal and times is None:
        times = torch.cat(
            [plan.graph.node_time[k][i] for k, i in zip(plan.graph.node_types, ids, strict=True)]
        )
    work = DeviceBatch(plan, ids, times, batch, EmulatedKernels(threads, order))
    work.run()
    return work.finish(work.counters)


def assert_same(sampled: Sampled, out: SamplerOutput | HeteroSamplerOutput, graph: Graph) -> None:
    """Check a raw sample against an output, tensor by tensor."""
    out = as_hetero(out)
    for i, kind in enumerate(graph.node_types):
        assert torch.equal(sampled.node[i].cpu(), out.node[kind].cpu())
        if out.batch is not None:
            assert torch.equal(sampled.batch[i].cpu(), out.batch[kind].cpu())
    for i, name in enumerate(graph.edge_types):
        assert torch.equal(sampled.row[i].cpu(), out.row[name].cpu())
        assert torch.equal(sampled.col[i].cpu(), out.col[name].cpu())
        if out.edge is not None:
            assert torch.equal(sampled.edge[i].cpu(), out.edge[name].cpu())


def assert_equal(
    first: SamplerOutput | HeteroSamplerOutput, second: SamplerOutput | HeteroSamplerOutput
) -> None:
    """Check two outputs for equality, wherever they are."""
    one, two = as_hetero(first), as_hetero(second)
    assert one.num_sampled_nodes == two.num_sampled_nodes
    assert one.num_sampled_edges == two.num_sampled_edges
    for part in ("node", "row", "col", "edge", "batch"):
        left, right = getattr(one, part), getattr(two, part)
        assert (left is None) == (right is None)
        for kind in left or {}:
            assert torch.equal(left[kind].cpu(), right[kind].cpu()), (part, kind)


@dataclass(frozen=True)
class Drawn:
    """A small graph with seeds."""

    edges: dict[EdgeType, torch.Tensor]
    num_nodes: dict[str, int]
    seeds: dict[str, torch.Tensor]
    is_hetero: bool

    def arguments(self) -> dict[str, object]:
        """Return the arguments of ``Graph.from_edge_index``."""
        if self.is_hetero:
            return {"edge_index": self.edges, "num_nodes": self.num_nodes}
        return {"edge_index": self.edges[EDGE], "num_nodes": self.num_nodes["node"]}

    def given_seeds(self) -> object:
        """Return the seeds as the graph's samplers take them."""
        return self.seeds if self.is_hetero else self.seeds["node"]


@st.composite
def drawn_graphs(draw: st.DrawFn) -> Drawn:
    """Graphs with hubs, isolated nodes, self-loops, duplicate edges and types without edges."""
    is_hetero = draw(st.booleans())
    kinds = ["a", "b", "c"][: draw(st.integers(1, 3))] if is_hetero else ["node"]
    num_nodes = {kind: draw(st.integers(1, 30)) for kind in kinds}
    names: list[EdgeType] = [EDGE]
    if is_hetero:
        pairs = st.tuples(
            st.sampled_from(kinds), st.sampled_from(["x", "y"]), st.sampled_from(kinds)
        )
        names = draw(st.lists(pairs, min_size=1, max_size=4, unique=True))
    random = torch.Generator().manual_seed(draw(st.integers(0, 2**32)))
    edges = {}
    for name in names:
        count = draw(st.integers(0, 150))
        # Squared, so that low ids are hubs.
        ends = [
            (torch.rand(count, generator=random) ** 2 * num_nodes[kind]).long()
            for kind in (name[0], name[2])
        ]
        edges[name] = torch.stack(ends)
    seeds = {}
    for kind in kinds:
        count = draw(st.integers(0, 8))
        seeds[kind] = torch.randint(0, num_nodes[kind], (count,), generator=random)
    return Drawn(edges, num_nodes, seeds, is_hetero)
