# SPDX-License-Identifier: Apache-2.0
"""A batch that may still be under way on a GPU."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from pytorch_direct.sampling.device import DeviceBatch
from pytorch_direct.sampling.output import HeteroSamplerOutput, SamplerOutput
from pytorch_direct.sampling.plan import Plan, Sampled
from pytorch_direct.sampling.subgraphs import bidirectional, induced

__all__ = ["PendingSample", "Running"]


@dataclass(frozen=True)
class Running:
    """What a GPU is at work on."""

    work: DeviceBatch
    counters: torch.Tensor  #: Pinned; holds the sizes once `event` has passed.
    event: torch.cuda.Event
    stream: torch.cuda.Stream


class PendingSample:
    """A batch that may still be under way; made by ``NeighborSampler.start``."""

    def __init__(
        self,
        plan: Plan,
        metadata: tuple[Any, ...],
        link_of: torch.Tensor | None,
        state: Sampled | Running,
    ) -> None:
        self._plan, self._metadata, self._link_of, self._state = plan, metadata, link_of, state

    def done(self) -> bool:
        """Whether ``result()`` returns without waiting."""
        if isinstance(self._state, Sampled):
            return True
        return bool(self._state.event.query())  # type: ignore[no-untyped-call]

    def result(self) -> SamplerOutput | HeteroSamplerOutput:
        """Wait for the batch and return it, ready for the current stream.

        Raises
        ------
        IndexError
            A seed is out of range.
        """
        state = self._state
        if isinstance(state, Sampled):
            return _output(self._plan, state, self._metadata, self._link_of)
        state.event.synchronize()
        sampled = state.work.finish(state.counters)
        with torch.cuda.stream(state.stream):
            out = _output(self._plan, sampled, self._metadata, self._link_of)
        current = torch.cuda.current_stream(state.stream.device)
        if current != state.stream:
            # Memory of one stream: another that reads it must be known to the allocator.
            current.wait_stream(state.stream)
            for tensor in _tensors(out):
                tensor.record_stream(current)
        return out


def _tensors(out: SamplerOutput | HeteroSamplerOutput) -> Iterator[torch.Tensor]:
    for value in (*vars(out).values(), *(out.metadata or ())):
        parts = value.values() if isinstance(value, dict) else [value]
        yield from (part for part in parts if isinstance(part, torch.Tensor) and part.is_cuda)


def _output(
    plan: Plan, sampled: Sampled, metadata: tuple[Any, ...], link_of: torch.Tensor | None
) -> SamplerOutput | HeteroSamplerOutput:
    node_types, edge_types = plan.graph.node_types, plan.graph.edge_types
    nodes = [[c[0]] + [b - a for a, b in _pairs(c)] for c in sampled.counts.nodes]
    edges = [[b - a for a, b in _pairs(c)] for c in sampled.counts.edges]
    of = sampled.batch
    if of is not None and link_of is not None:
        # The ends of a link and of its negatives share its number.
        of = [link_of[part] for part in of]
    out: SamplerOutput | HeteroSamplerOutput
    if plan.graph.is_hetero:
        out = HeteroSamplerOutput(
            dict(zip(node_types, sampled.node, strict=True)),
            dict(zip(edge_types, sampled.row, strict=True)),
            dict(zip(edge_types, sampled.col, strict=True)),
            dict(zip(edge_types, sampled.edge, strict=True)) if plan.return_edge_ids else None,
            None if of is None else dict(zip(node_types, of, strict=True)),
            dict(zip(node_types, nodes, strict=True)),
            dict(zip(edge_types, edges, strict=True)),
            metadata=metadata,
        )
    else:
        out = SamplerOutput(
            sampled.node[0],
            sampled.row[0],
            sampled.col[0],
            sampled.edge[0] if plan.return_edge_ids else None,
            None if of is None else of[0],
            nodes[0],
            edges[0],
            metadata=metadata,
        )
    if plan.subgraph_type == "bidirectional":
        return bidirectional(out)
    if plan.subgraph_type == "induced":
        return induced(out, plan.graph, plan.return_edge_ids)
    return out


def _pairs(numbers: list[int]) -> list[tuple[int, int]]:
    return list(itertools.pairwise(numbers))
