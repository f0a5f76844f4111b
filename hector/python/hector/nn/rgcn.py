# SPDX-License-Identifier: Apache-2.0
"""The relational graph convolution of Schlichtkrull et al. (2018), with PyG's parameter names."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from hector import functional
from hector._errors import unsupported
from hector.compiled import compile
from hector.graph import Graph

__all__ = ["RGCNConv"]


@compile
def _rgcn(
    g: Graph, x: Tensor, weight: Tensor, root: Tensor | None, bias: Tensor | None, reduce: str
) -> Tensor:
    out = functional.aggregate(functional.linear(x[g.src], weight[g.rel]), g, reduce=reduce)
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
    aggr : {"mean", "add", "sum"}
        Mean for each relation (the paper's), or plain sums.
    root_weight, bias : bool
        Whether the node itself and a bias are added.

    Attributes
    ----------
    weight : Parameter, shape (num_relations, in_channels, out_channels)
    root : Parameter, shape (in_channels, out_channels), or None
    bias : Parameter, shape (out_channels,), or None

    Raises
    ------
    ValueError
        If an extent is not positive or ``aggr`` is unknown.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        num_relations: int,
        *,
        aggr: str = "mean",
        root_weight: bool = True,
        bias: bool = True,
    ) -> None:
        super().__init__()
        if min(in_channels, out_channels, num_relations) < 1:
            raise ValueError("RGCNConv: channels and relations must be positive")
        if aggr not in _REDUCE:
            raise ValueError(f"RGCNConv: aggr={aggr!r} is none of {', '.join(_REDUCE)}")
        self.in_channels, self.out_channels = in_channels, out_channels
        self.num_relations, self.aggr = num_relations, aggr
        self.weight = nn.Parameter(torch.empty(num_relations, in_channels, out_channels))
        self.root = nn.Parameter(torch.empty(in_channels, out_channels)) if root_weight else None
        self.bias = nn.Parameter(torch.empty(out_channels)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Glorot-uniform matrices, zero bias."""
        bound = math.sqrt(6 / (self.in_channels + self.out_channels))
        nn.init.uniform_(self.weight, -bound, bound)
        if self.root is not None:
            nn.init.uniform_(self.root, -bound, bound)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    @classmethod
    def from_pyg(cls, layer: Any) -> RGCNConv:
        """A layer with the weights of a ``torch_geometric.nn.RGCNConv``.

        Parameters
        ----------
        layer : torch_geometric.nn.RGCNConv
            Without basis or block decomposition, one number of input channels.

        Returns
        -------
        RGCNConv
            Parameters are copied.

        Raises
        ------
        UnsupportedError
            If the layer uses a decomposition, bipartite inputs or another aggregation.
        """
        if getattr(layer, "num_bases", None) or getattr(layer, "num_blocks", None):
            raise unsupported("RGCNConv.from_pyg: basis and block decompositions are not supported")
        if layer.weight.dim() != 3:
            raise unsupported(f"RGCNConv.from_pyg: weight of shape {tuple(layer.weight.shape)}")
        if layer.aggr not in _REDUCE:
            raise unsupported(f"RGCNConv.from_pyg: aggr={layer.aggr!r} is not supported")
        relations, k, n = layer.weight.shape
        if layer.root is not None and tuple(layer.root.shape) != (k, n):
            raise unsupported("RGCNConv.from_pyg: bipartite channels are not supported")
        made = cls(
            k, n, relations, aggr=layer.aggr,
            root_weight=layer.root is not None, bias=layer.bias is not None,
        )  # fmt: skip
        made.to(layer.weight)
        with torch.no_grad():
            for name, parameter in made.named_parameters():
                parameter.copy_(getattr(layer, name))
        return made

    def forward(self, g: Graph, x: Tensor) -> Tensor:
        """Run the layer.

        Parameters
        ----------
        g : Graph
            With ``num_relations`` relations.
        x : Tensor, shape (num_nodes, in_channels)

        Returns
        -------
        Tensor, shape (num_nodes, out_channels)

        Raises
        ------
        ValueError
            If a number of rows does not fit the graph.
        """
        out: Tensor = _rgcn(g, x, self.weight, self.root, self.bias, _REDUCE[self.aggr])
        return out

    def extra_repr(self) -> str:
        """What ``print(layer)`` shows in the parentheses."""
        return (
            f"{self.in_channels}, {self.out_channels}, num_relations={self.num_relations}, "
            f"aggr={self.aggr!r}"
        )
