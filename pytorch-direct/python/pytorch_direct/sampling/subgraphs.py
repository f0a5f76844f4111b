# SPDX-License-Identifier: Apache-2.0
"""Edges beyond the sampled ones: their reverses, or all between the sampled nodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch

from pytorch_direct.graph.graph import EDGE, NODE, EdgeType, Graph
from pytorch_direct.graph.relation import Relation
from pytorch_direct.sampling.output import HeteroSamplerOutput, SamplerOutput

__all__ = ["bidirectional", "induced"]


def bidirectional(
    out: SamplerOutput | HeteroSamplerOutput,
) -> SamplerOutput | HeteroSamplerOutput:
    """Add the reverse of each sampled edge once; sort by (row, col), drop duplicates.

    An edge that was not sampled in its own direction has the id of its reverse. In heterogeneous
    graphs an edge type from a type to itself is its own reverse unless ``rev_`` and its relation
    names one; other types without such a partner stay as they are, and ids are dropped where edges
    of two types mix. Numbers per hop do not hold any more and become None.
    """
    if isinstance(out, SamplerOutput):
        row, col, edge = _with_reverses(out.row, out.col, out.row, out.col, out.edge)
        return replace(
            out,
            row=row,
            col=col,
            edge=edge,
            num_sampled_nodes=None,
            num_sampled_edges=None,
        )
    rows, cols = dict(out.row), dict(out.col)
    edges = None if out.edge is None else dict(out.edge)
    for kind in out.row:
        source, name, destination = kind
        if name.startswith("rev_"):
            continue
        back = (destination, f"rev_{name}", source)
        if back in out.row:
            there = _with_reverses(out.row[kind], out.col[kind], out.row[back], out.col[back], None)
            rows[kind], cols[kind] = there[0], there[1]
            rows[back], cols[back] = there[1], there[0]
            if edges is not None:
                edges.pop(kind)
                edges.pop(back)
        elif source == destination:
            own = None if out.edge is None else out.edge[kind]
            rows[kind], cols[kind], ids = _with_reverses(
                out.row[kind], out.col[kind], out.row[kind], out.col[kind], own
            )
            if edges is not None and ids is not None:
                edges[kind] = ids
    return replace(
        out, row=rows, col=cols, edge=edges, num_sampled_nodes=None, num_sampled_edges=None
    )


def _with_reverses(
    row: torch.Tensor,
    col: torch.Tensor,
    back_row: torch.Tensor,
    back_col: torch.Tensor,
    edge: torch.Tensor | None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    rows = torch.cat([row, back_col])
    cols = torch.cat([col, back_row])
    if rows.numel() == 0:
        return rows, cols, edge
    width = int(torch.maximum(rows.max(), cols.max())) + 1
    # Stable, so that an edge in its own direction comes before a reverse with the same ends.
    keys, order = torch.sort(rows * width + cols, stable=True)
    first = torch.ones_like(keys, dtype=torch.bool)
    first[1:] = keys[1:] != keys[:-1]
    kept = order[first]
    ids = None if edge is None else torch.cat([edge, edge])[kept]
    return rows[kept], cols[kept], ids


def induced(
    out: SamplerOutput | HeteroSamplerOutput, graph: Graph, edge_ids: bool
) -> SamplerOutput | HeteroSamplerOutput:
    """Replace the sampled edges by all of the graph's between the sampled nodes.

    They come destination by destination in order of ``node``, each neighbourhood in its order;
    duplicates among seeds have edges into each, from the first. Numbers of edges per hop become
    None.
    """
    nodes: Mapping[str, torch.Tensor]
    nodes = {NODE: out.node} if isinstance(out, SamplerOutput) else out.node
    finders = {kind: _Finder(ids) for kind, ids in nodes.items()}
    rows: dict[EdgeType, torch.Tensor] = {}
    cols: dict[EdgeType, torch.Tensor] = {}
    edges: dict[EdgeType, torch.Tensor] = {}
    for kind, relation in graph.relations.items():
        rows[kind], cols[kind], edges[kind] = _edges_between(
            relation, nodes[kind[2]], finders[kind[0]]
        )
    if isinstance(out, SamplerOutput):
        ids = edges[EDGE] if edge_ids else None
        return replace(out, row=rows[EDGE], col=cols[EDGE], edge=ids, num_sampled_edges=None)
    return replace(
        out, row=rows, col=cols, edge=edges if edge_ids else None, num_sampled_edges=None
    )


class _Finder:
    """Places of ids in a list, the first where there are several."""

    def __init__(self, ids: torch.Tensor) -> None:
        self._sorted, self._place = torch.sort(ids, stable=True)

    def __call__(self, ids: torch.Tensor) -> torch.Tensor:
        """Return the place of each id; -1 where it is not in the list."""
        if self._sorted.numel() == 0:
            return torch.full_like(ids, -1)
        at = torch.searchsorted(self._sorted, ids).clamp_(max=self._sorted.numel() - 1)
        return torch.where(self._sorted[at] == ids, self._place[at], -1)


def _edges_between(
    relation: Relation, destinations: torch.Tensor, find: _Finder
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    begin = relation.indptr[destinations]
    degree = relation.indptr[destinations + 1] - begin
    col = torch.repeat_interleave(torch.arange(degree.numel(), device=degree.device), degree)
    before = torch.cumsum(degree, 0) - degree
    position = begin[col] + torch.arange(col.numel(), device=col.device) - before[col]
    row = find(relation.indices[position].long())
    kept = row >= 0
    position = position[kept]
    edge = position if relation.edge_ids is None else relation.edge_ids[position]
    return row[kept], col[kept], edge
