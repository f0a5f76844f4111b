# SPDX-License-Identifier: Apache-2.0
"""The relational graph attention of Busbridge et al. (2019), with PyG's parameter names."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as activations

from hector import functional
from hector._errors import unsupported
from hector.entry import compile
from hector.graph import Graph
from hector.nn.hetero import PygData, graph_of
from hector.nn.weights import (
    check_decomposition,
    composed,
    copy_parameters,
    glorot,
    matrices,
    typed,
)

__all__ = ["RGATConv"]

_GROUPS = {"across-relation": "dst", "within-relation": "dst_rel"}
_MODES = ("additive-self-attention", "multiplicative-self-attention")


@compile
def _rgat(
    g: Graph,
    x: Tensor,
    weight: Tensor,
    comp: Tensor | None,
    q: Tensor,
    k: Tensor,
    edge: Tensor | None,
    bias: Tensor | None,
    shape: tuple[int, int],
    additive: bool,
    by: str,
    slope: float,
    concat: bool,
    p: float,
    seed: Tensor | None,
) -> Tensor:
    heads, dim = shape
    weight = composed(weight, comp)
    source = typed(x, weight, g.src, g.rel)
    if weight.dim() == 3:  # Scores are products of matrices, then of rows.
        query = functional.linear(x[g.dst], (weight @ q)[g.rel])
        key = functional.linear(x[g.src], (weight @ k)[g.rel])
    else:
        query, key = typed(x, weight, g.dst, g.rel) @ q, source @ k
    if additive:
        score = query + key if edge is None else query + key + edge
        score = activations.leaky_relu(score, slope)
    else:
        score = query * key if edge is None else query * key * edge
    share = functional.edge_softmax(score, g, by=by)
    if seed is not None:
        share = functional.dropout(share, p, seed)
    edges, width = source.shape[0], source.shape[1] // heads
    values = source.reshape(edges, heads, 1, width) * share.reshape(edges, heads, dim, 1)
    out = functional.aggregate(values, g)  # (nodes, heads, dim, out_channels)
    out = out.flatten(1) if concat else out.mean(1).flatten(1)
    return out if bias is None else out + bias


class RGATConv(nn.Module):
    """Attention over neighbours whose rows are mapped by their relation's matrix.

    With ``z_j = x_j W_r`` on an edge of relation r from j to i, the score is
    ``leaky_relu(z_i q + z_j k)`` (additive) or ``(z_i q) * (z_j k)`` (multiplicative), normalised
    over the in-edges of i, or over those of one relation; ``out_i`` is the sum of ``z_j`` weighted
    by it, plus a bias.

    Parameters
    ----------
    in_channels, out_channels : int
        ``out_channels`` is the width of one head.
    num_relations : int
    num_bases, num_blocks : int, optional
        Basis or block-diagonal decomposition of the matrices, as in ``RGCNConv``.
    attention_mechanism : {"across-relation", "within-relation"}
    attention_mode : {"additive-self-attention", "multiplicative-self-attention"}
    heads, dim : int
        Heads, and scores of each head (1 where attention is additive).
    concat : bool
        Whether heads are concatenated or averaged.
    negative_slope : float
    dropout : float
        Share of attention weights dropped in training, in [0, 1).
    edge_dim : int, optional
        Width of edge features, which add to (or multiply) the scores.
    bias : bool

    Attributes
    ----------
    weight : Parameter, shape (num_relations, in_channels, heads * out_channels)
        Or what the decomposition makes it from, see ``RGCNConv``.
    comp : Parameter, shape (num_relations, num_bases), or None
    q, k : Parameter, shape (heads * out_channels, heads * dim)
    lin_edge : Parameter, shape (edge_dim, heads * out_channels), or None
    e : Parameter, shape (heads * out_channels, heads * dim), or None
    bias : Parameter, shape (heads * dim * out_channels,) or (dim * out_channels,), or None

    Raises
    ------
    ValueError
        If an option is unknown or extents do not fit.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        num_relations: int,
        *,
        num_bases: int | None = None,
        num_blocks: int | None = None,
        attention_mechanism: str = "across-relation",
        attention_mode: str = "additive-self-attention",
        heads: int = 1,
        dim: int = 1,
        concat: bool = True,
        negative_slope: float = 0.2,
        dropout: float = 0.0,
        edge_dim: int | None = None,
        bias: bool = True,
    ) -> None:
        super().__init__()
        if attention_mechanism not in _GROUPS:
            raise ValueError(
                f"RGATConv: attention_mechanism={attention_mechanism!r} is none of "
                f"{', '.join(_GROUPS)}"
            )
        if attention_mode not in _MODES:
            raise ValueError(
                f"RGATConv: attention_mode={attention_mode!r} is none of {', '.join(_MODES)}"
            )
        if min(heads, dim, edge_dim or 1) < 1 or (attention_mode == _MODES[0] and dim != 1):
            raise ValueError(
                "RGATConv: heads, dim, edge_dim must fit; additive attention has dim=1"
            )
        if not 0 <= dropout < 1:
            raise ValueError(f"RGATConv: dropout={dropout} must be in [0, 1)")
        width = heads * out_channels
        check_decomposition("RGATConv", in_channels, width, num_relations, num_bases, num_blocks)
        self.in_channels, self.out_channels = in_channels, out_channels
        self.num_relations, self.heads, self.dim = num_relations, heads, dim
        self.attention_mechanism, self.attention_mode = attention_mechanism, attention_mode
        self.concat, self.negative_slope, self.dropout = concat, negative_slope, dropout
        made = matrices(in_channels, width, num_relations, num_bases, num_blocks)
        self.weight, self.comp = made
        self.q = nn.Parameter(torch.empty(width, heads * dim))
        self.k = nn.Parameter(torch.empty(width, heads * dim))
        self.lin_edge = nn.Parameter(torch.empty(edge_dim, width)) if edge_dim else None
        self.e = nn.Parameter(torch.empty(width, heads * dim)) if edge_dim else None
        joined = heads if concat else 1
        self.bias = nn.Parameter(torch.empty(joined * dim * out_channels)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Glorot-uniform matrices, zero bias."""
        glorot(self.weight, self.comp, self.q, self.k, self.lin_edge, self.e)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    @classmethod
    def from_pyg(cls, layer: Any) -> RGATConv:
        """A layer with the weights of a ``torch_geometric.nn.RGATConv``.

        Parameters
        ----------
        layer : torch_geometric.nn.RGATConv
            With ``mod=None``.

        Returns
        -------
        RGATConv
            Parameters are copied; those of ``mod``, unused without it, are left out.

        Raises
        ------
        UnsupportedError
            If the layer has a ``mod`` or another aggregation than sums.
        """
        if layer.mod is not None or layer.aggr not in ("add", "sum"):
            raise unsupported(
                f"RGATConv.from_pyg: mod={layer.mod!r} with aggr={layer.aggr!r} is not supported"
            )
        made = cls(
            layer.in_channels, layer.out_channels, layer.num_relations,
            num_bases=layer.num_bases, num_blocks=layer.num_blocks,
            attention_mechanism=layer.attention_mechanism, attention_mode=layer.attention_mode,
            heads=layer.heads, dim=layer.dim, concat=layer.concat,
            negative_slope=layer.negative_slope, dropout=layer.dropout, edge_dim=layer.edge_dim,
            bias=layer.bias is not None,
        ).to(layer.q)  # fmt: skip
        names = {name: name for name in ("q", "k", "e", "bias")}
        bases = layer.num_bases is not None
        names |= {"weight": "basis", "comp": "att"} if bases else {"weight": "weight"}
        copy_parameters(made, layer, names)
        if made.lin_edge is not None:
            with torch.no_grad():
                made.lin_edge.copy_(layer.lin_edge.weight.mT)
        return made.train(layer.training)

    def forward(
        self,
        g: Graph | PygData,
        x: Tensor,
        edge_attr: Tensor | None = None,
        *,
        seed: Tensor | int | None = None,
    ) -> Tensor:
        """Run the layer.

        Parameters
        ----------
        g : Graph, or Data
            With ``num_relations`` relations. Data makes a graph at each call: make it once where it
            serves several layers.
        x : Tensor, shape (num_nodes, in_channels)
        edge_attr : Tensor, shape (E, edge_dim), optional
            Needed where the layer has an ``edge_dim``, and only then.
        seed : int or Tensor, optional
            Of dropout; drawn from PyTorch's generator unless given.

        Returns
        -------
        Tensor, shape (num_nodes, heads * dim * out_channels), or (num_nodes, dim * out_channels)

        Raises
        ------
        ValueError
            If a number of rows does not fit the graph, or edge features are missing or too many.
        """
        if (edge_attr is None) != (self.lin_edge is None):
            raise ValueError("RGATConv: edge_attr is needed with edge_dim, and only then")
        edge = None
        if edge_attr is not None:
            assert self.lin_edge is not None
            assert self.e is not None
            edge = edge_attr @ (self.lin_edge @ self.e)
        drops = self.training and self.dropout > 0
        if drops and seed is None:
            seed = torch.randint(0, 1 << 62, ())
        out: Tensor = _rgat(
            graph_of(g, self.num_relations), x,
            self.weight, self.comp, self.q, self.k, edge, self.bias,
            (self.heads, self.dim), self.attention_mode == _MODES[0],
            _GROUPS[self.attention_mechanism], self.negative_slope, self.concat,
            self.dropout, seed if drops else None,
        )  # fmt: skip
        return out

    def extra_repr(self) -> str:
        """What ``print(layer)`` shows in the parentheses."""
        return (
            f"{self.in_channels}, {self.out_channels}, num_relations={self.num_relations}, "
            f"heads={self.heads}, {self.attention_mechanism}, {self.attention_mode}"
        )
