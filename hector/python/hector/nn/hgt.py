# SPDX-License-Identifier: Apache-2.0
"""The heterogeneous graph transformer of Hu et al. (2020)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, overload

import torch
from torch import Tensor, nn
from torch.nn import functional as activations

from hector import functional
from hector.entry import compile
from hector.graph import Graph
from hector.nn.hetero import (
    Metadata,
    PygData,
    graph_of,
    node_order,
    relation_order,
    stacked,
    unstacked,
)
from hector.nn.weights import glorot

__all__ = ["HGTConv"]


@compile
def _hgt(
    g: Graph,
    x: Tensor,
    kqv: Tensor,
    kqv_bias: Tensor,
    k_rel: Tensor,
    v_rel: Tensor,
    p_rel: Tensor,
    out: Tensor,
    out_bias: Tensor,
    kept: Tensor | None,
) -> Tensor:
    heads, d = k_rel.shape[1], k_rel.shape[2]
    projected = functional.linear(x, kqv[g.node_type]) + kqv_bias[g.node_type]
    k, q, v = projected.reshape(x.shape[0], 3, heads, d).unbind(1)
    matrix = k_rel * (p_rel / math.sqrt(d))[:, :, None, None]
    score = (q[g.dst] * functional.linear(k[g.src], matrix[g.rel])).sum(-1)
    share = functional.edge_softmax(score, g)
    message = share[:, :, None] * functional.linear(v[g.src], v_rel[g.rel])
    gathered = activations.gelu(functional.aggregate(message, g).flatten(1))
    new = functional.linear(gathered, out[g.node_type]) + out_bias[g.node_type]
    if kept is None:
        return new
    old = kept[g.node_type][:, None]
    return (1 - old) * new + old * x[:, : heads * d]


class HGTConv(nn.Module):
    """Attention whose keys, queries, values and messages depend on node types and relations.

    For heads of width d, with ``k, q, v`` the rows of a node mapped by its type, an edge of
    relation r from j to i scores ``(k_j K_r) . q_i * p_r / sqrt(d)``, normalised over all in-edges
    of i; the values ``v_j V_r`` are summed with these weights, passed through gelu and a map of the
    node's type, and mixed with the node's own row where the widths are equal
    (Hu et al., 2020, equations 3 to 5).

    Parameters
    ----------
    in_channels : int, or dict of str to int
        Width of the features, for all node types or for each.
    out_channels : int
        A multiple of ``heads``.
    metadata : (node types, relations)
        As ``HeteroData.metadata()`` gives it. Graphs may list both in any order, and leave out
        relations and types.
    heads : int

    Attributes
    ----------
    kqv : Parameter, shape (types, widest in_channels, 3 * out_channels)
        Rows past a type's own width meet zeros only.
    kqv_bias : Parameter, shape (types, 3 * out_channels)
    k_rel, v_rel : Parameter, shape (relations, heads, d, d)
    p_rel : Parameter, shape (relations, heads)
    out : Parameter, shape (types, out_channels, out_channels)
    out_bias : Parameter, shape (types, out_channels)
    skip : Parameter, shape (types,)

    Raises
    ------
    ValueError
        If ``heads`` does not divide ``out_channels`` or a type has no width.
    """

    def __init__(
        self,
        in_channels: int | Mapping[str, int],
        out_channels: int,
        metadata: Metadata,
        *,
        heads: int = 1,
    ) -> None:
        super().__init__()
        self.node_types = tuple(metadata[0])
        self.relations = tuple((a, b, c) for a, b, c in metadata[1])
        if isinstance(in_channels, int):
            in_channels = dict.fromkeys(self.node_types, in_channels)
        missing = [name for name in self.node_types if in_channels.get(name, 0) < 1]
        if missing or not self.node_types or not self.relations:
            raise ValueError(f"HGTConv: node types {missing or 'or relations'} have no width")
        if heads < 1 or out_channels < 1 or out_channels % heads:
            raise ValueError(f"HGTConv: {heads} heads do not divide {out_channels} channels")
        self.widths = tuple(in_channels[name] for name in self.node_types)
        self.out_channels, self.heads = out_channels, heads
        types, relations, d = len(self.node_types), len(self.relations), out_channels // heads
        self.kqv = nn.Parameter(torch.empty(types, max(self.widths), 3 * out_channels))
        self.kqv_bias = nn.Parameter(torch.empty(types, 3 * out_channels))
        self.k_rel = nn.Parameter(torch.empty(relations, heads, d, d))
        self.v_rel = nn.Parameter(torch.empty(relations, heads, d, d))
        self.p_rel = nn.Parameter(torch.empty(relations, heads))
        self.out = nn.Parameter(torch.empty(types, out_channels, out_channels))
        self.out_bias = nn.Parameter(torch.empty(types, out_channels))
        self.skip = nn.Parameter(torch.empty(types))
        self.register_buffer("_skips", torch.empty(types), persistent=False)
        self._skips: Tensor
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Glorot-uniform matrices, zero biases, skips and priors of one."""
        with torch.no_grad():
            for number, width in enumerate(self.widths):
                self._skips[number] = float(width == self.out_channels)
                bound = math.sqrt(6 / (width + self.out_channels))
                self.kqv[number].uniform_(-bound, bound)[width:] = 0
        glorot(self.k_rel, self.v_rel, self.out)
        for bias in (self.kqv_bias, self.out_bias):
            nn.init.zeros_(bias)
        for one in (self.p_rel, self.skip):
            nn.init.ones_(one)

    @classmethod
    def from_pyg(cls, layer: Any) -> HGTConv:
        """A layer with the weights of a ``torch_geometric.nn.HGTConv``.

        Parameters
        ----------
        layer : torch_geometric.nn.HGTConv
            Initialised, if it was made with lazy widths.

        Returns
        -------
        HGTConv
            Parameters are copied. Relations are matched by name; PyG 2.8 matches them by position
            in the dict of edges, so its result differs where that dict has another order than the
            metadata.
        """
        types, relations = list(layer.node_types), list(layer.edge_types)
        widths = {name: layer.kqv_lin.lins[name].weight.shape[1] for name in types}
        made = cls(widths, layer.out_channels, (types, relations), heads=layer.heads)
        made.to(layer.k_rel.weight)
        heads, d = layer.heads, layer.out_channels // layer.heads
        with torch.no_grad():
            for i, name in enumerate(types):
                projection, last = layer.kqv_lin.lins[name], layer.out_lin.lins[name]
                made.kqv[i, : widths[name]] = projection.weight.mT
                made.kqv_bias[i], made.out_bias[i] = projection.bias, last.bias
                made.out[i], made.skip[i] = last.weight.mT, layer.skip[name].squeeze()
            for mine, theirs in ((made.k_rel, layer.k_rel), (made.v_rel, layer.v_rel)):
                mine.copy_(theirs.weight.view(heads, len(relations), d, d).transpose(0, 1))
            for i, relation in enumerate(relations):
                made.p_rel[i] = layer.p_rel["__".join(relation)].squeeze(0)
        return made

    @overload
    def forward(self, g: Graph | PygData, x: Tensor) -> Tensor: ...
    @overload
    def forward(self, g: Graph | PygData, x: Mapping[str, Tensor]) -> dict[str, Tensor]: ...
    def forward(
        self, g: Graph | PygData, x: Tensor | Mapping[str, Tensor]
    ) -> Tensor | dict[str, Tensor]:
        """Run the layer.

        Parameters
        ----------
        g : Graph, or HeteroData
            With node types; one of ``Graph.from_pyg`` brings the names along. Data makes a graph
            at each call: make it once where it serves several layers.
        x : Tensor, shape (num_nodes, widest in_channels), or dict by node type

        Returns
        -------
        Tensor, shape (num_nodes, out_channels), or dict by node type
            The dict holds the types that a relation of the metadata leads to. A node without
            in-edges attends to nothing: its row is that of an aggregate of zeros.

        Raises
        ------
        ValueError
            If rows, relations or types do not fit the graph.
        """
        g = graph_of(g)
        relations = relation_order(g, self.relations)
        types = node_order(g, self.node_types)
        kept = None
        if self.out_channels in self.widths:
            kept = torch.sigmoid(-self.skip) * self._skips
        by_type: list[Tensor | None] = [self.kqv, self.kqv_bias, self.out, self.out_bias, kept]
        if types != list(range(len(self.node_types))):
            by_type = [None if value is None else value[types] for value in by_type]
        by_relation: list[Tensor] = [self.k_rel, self.v_rel, self.p_rel]
        if relations != list(range(len(self.relations))):
            by_relation = [value[relations] for value in by_relation]
        kqv, kqv_bias, out, out_bias, kept = by_type
        features = stacked(g, x, dict(zip(self.node_types, self.widths, strict=True)))
        result: Tensor = _hgt(g, features, kqv, kqv_bias, *by_relation, out, out_bias, kept)
        if not isinstance(x, Mapping):
            return result
        return unstacked(g, result, [relation[2] for relation in self.relations])

    def extra_repr(self) -> str:
        """What ``print(layer)`` shows in the parentheses."""
        return (
            f"{self.out_channels}, heads={self.heads}, types={len(self.node_types)}, "
            f"relations={len(self.relations)}"
        )
