# SPDX-License-Identifier: Apache-2.0
"""A batch on the CPU, by the native twin of the GPU's kernels."""

from __future__ import annotations

import torch

from pytorch_direct import _native
from pytorch_direct.graph.relation import Address
from pytorch_direct.sampling.plan import Counts, Plan, Sampled

__all__ = ["sample_on_cpu"]


def sample_on_cpu(
    plan: Plan,
    seeds: list[torch.Tensor],
    times: torch.Tensor | None,
    batch: int,
    threads: int,
) -> Sampled:
    """Sample one batch. Seeds are int64 and in range; `times` are those of all seeds, in order."""
    graph = plan.graph
    kinds, relations = len(graph.node_types), len(graph.edge_types)
    work = _native.CpuBatch(kinds, relations, plan.disjoint, threads)
    first = 0
    for kind, (name, ids) in enumerate(zip(graph.node_types, seeds, strict=True)):
        work.add_seeds(kind, ids.data_ptr(), ids.numel(), first, graph.num_nodes[name])
        first += ids.numel()
    address = Address(torch.device("cpu"))
    natives = plan.relations(address)
    nodes, edges = work.counts(kinds, relations)
    after_nodes, after_edges = [nodes], [edges]
    for hop in range(plan.hops):
        for step in plan.steps(hop):
            work.take(
                step.relation,
                natives[step.relation],
                step.source,
                step.destination,
                plan.rule(step, batch),
                address.of(times),
                plan.edge_ids,
            )
        work.end_hop()
        nodes, edges = work.counts(kinds, relations)
        after_nodes.append(nodes)
        after_edges.append(edges)
    lists = [tuple(torch.from_numpy(array) for array in work.nodes(kind)) for kind in range(kinds)]
    taken = [
        tuple(torch.from_numpy(array) for array in work.edges(relation))
        for relation in range(relations)
    ]
    return Sampled(
        [node for node, _ in lists],
        [of for _, of in lists] if plan.disjoint else None,
        [row for row, _, _ in taken],
        [col for _, col, _ in taken],
        [edge for _, _, edge in taken],
        Counts(
            [list(column) for column in zip(*after_nodes, strict=True)],
            [list(column) for column in zip(*after_edges, strict=True)],
        ),
    )
