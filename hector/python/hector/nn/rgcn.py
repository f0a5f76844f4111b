# SPDX-License-Identifier: Apache-2.0
"""The relational graph convolution of Schlichtkrull et al. (2018), with PyG's parameter names."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

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

__all__ = ["RGCNConv"]


@compile
def _rgcn(
    g: Graph,
    x: Tensor,
    weight: Tensor,
    comp: Tensor | None,
    root: Tensor | None,
    bias: Tensor | None,
    reduce: str,
) -> Tensor:
    out = functional.aggregate(typed(x, composed(weight, comp), g.src, g.rel), g, reduce=reduce)
    if root is not None:
        out = out + x @ root
    return out if bias is None else out + bias


_REDUCE = {"mean": "mean_rel", "add": "sum", "sum": "sum"}


class RGCNConv(nn.Module):
    """``out_i = x_i root + bias + sum over relations r of mean over j in N_r(i) of x_j W_r``.

    Parameters
    ----------
    in_channels, out_channels : int
    num_relations : int
    num_bases : int, optional
        Every ``W_r`` is a mixture of so many matrices (basis decomposition).
    num_blocks : int, optional
        Every ``W_r`` is block-diagonal with so many blocks.
    aggr : {"mean", "add", "sum"}
        Mean for each relation (the paper's), or plain sums.
    root_weight, bias : bool
        Whether the node itself and a bias are added.

    Attributes
    ----------
    weight : Parameter, shape (num_relations, in_channels, out_channels)
        With bases (num_bases, in_channels, out_channels); with blocks (num_relations, num_blocks,
        in_channels / num_blocks, out_channels / num_blocks).
    comp : Parameter, shape (num_relations, num_bases), or None
    root : Parameter, shape (in_channels, out_channels), or None
    bias : Parameter, shape (out_channels,), or None

    Raises
    ------
    ValueError
        If an extent is not positive, blocks do not divide the channels, or ``aggr`` is unknown.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        num_relations: int,
        *,
        num_bases: int | None = None,
        num_blocks: int | None = None,
        aggr: str = "mean",
        root_weight: bool = True,
        bias: bool = True,
    ) -> None:
        super().__init__()
        k, n = in_channels, out_channels
        check_decomposition("RGCNConv", k, n, num_relations, num_bases, num_blocks)
        if aggr not in _REDUCE:
            raise ValueError(f"RGCNConv: aggr={aggr!r} is none of {', '.join(_REDUCE)}")
        self.in_channels, self.out_channels = k, n
        self.num_relations, self.aggr = num_relations, aggr
        self.num_bases, self.num_blocks = num_bases, num_blocks
        self.weight, self.comp = matrices(k, n, num_relations, num_bases, num_blocks)
        self.root = nn.Parameter(torch.empty(k, n)) if root_weight else None
        self.bias = nn.Parameter(torch.empty(n)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Glorot-uniform matrices, zero bias."""
        glorot(self.weight, self.comp, self.root)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    @classmethod
    def from_pyg(cls, layer: Any) -> RGCNConv:
        """A layer with the weights of a ``torch_geometric.nn.RGCNConv`` or ``FastRGCNConv``.

        Parameters
        ----------
        layer : torch_geometric.nn.RGCNConv
            With one number of input channels.

        Returns
        -------
        RGCNConv
            Parameters are copied. A mean is that of each relation, as in the paper; PyG with
            pyg-lib may take the mean over all in-edges instead.

        Raises
        ------
        UnsupportedError
            If the layer takes bipartite inputs or has another aggregation.
        """
        if layer.aggr not in _REDUCE:
            raise unsupported(f"RGCNConv.from_pyg: aggr={layer.aggr!r} is not supported")
        if not isinstance(layer.in_channels, int):
            raise unsupported("RGCNConv.from_pyg: bipartite channels are not supported")
        made = cls(
            layer.in_channels, layer.out_channels, layer.num_relations,
            num_bases=layer.num_bases, num_blocks=layer.num_blocks, aggr=layer.aggr,
            root_weight=layer.root is not None, bias=layer.bias is not None,
        ).to(layer.weight)  # fmt: skip
        copy_parameters(made, layer, {name: name for name in ("weight", "comp", "root", "bias")})
        return made

    def forward(self, g: Graph | PygData, x: Tensor) -> Tensor:
        """Run the layer.

        Parameters
        ----------
        g : Graph, or Data
            With ``num_relations`` relations. Data makes a graph at each call: make it once where it
            serves several layers.
        x : Tensor, shape (num_nodes, in_channels)

        Returns
        -------
        Tensor, shape (num_nodes, out_channels)

        Raises
        ------
        ValueError
            If a number of rows does not fit the graph.
        """
        out: Tensor = _rgcn(
            graph_of(g, self.num_relations), x,
            self.weight, self.comp, self.root, self.bias, _REDUCE[self.aggr],
        )  # fmt: skip
        return out

    def extra_repr(self) -> str:
        """What ``print(layer)`` shows in the parentheses."""
        return (
            f"{self.in_channels}, {self.out_channels}, num_relations={self.num_relations}, "
            f"aggr={self.aggr!r}"
        )
