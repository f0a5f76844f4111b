# SPDX-License-Identifier: Apache-2.0
"""GraphSAGE for each relation (Hamilton et al., 2017), the sums over relations in one program."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, overload

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from hector import functional
from hector._errors import unsupported
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

__all__ = ["HeteroSAGEConv"]


@compile
def _sage(
    g: Graph,
    x: Tensor,
    neighbours: Tensor,
    root: Tensor | None,
    bias: Tensor | None,
    share: Tensor | None,
    reduce: str,
) -> Tensor:
    message = functional.linear(x[g.src], neighbours[g.rel])
    out = functional.aggregate(message, g, reduce=reduce)
    if root is not None:
        out = out + functional.linear(x, root[g.node_type])
    if bias is not None:
        out = out + bias[g.node_type]
    return out if share is None else out * share[g.node_type][:, None]


_REDUCE = {"mean": "mean_rel", "sum": "sum", "add": "sum"}


class HeteroSAGEConv(nn.Module):
    """A ``SAGEConv`` for each relation; a node sums (or averages) those that lead to its type.

    ``out_i = sum over relations r to the type of i of (mean over j in N_r(i) of x_j) L_r + b_r +
    x_i R_r``. A relation's bias and root product count for every node of its destination type,
    with or without in-edges.

    Parameters
    ----------
    in_channels : int, or dict of str to int
        Width of the features, for all node types or for each.
    out_channels : int
    metadata : (node types, relations)
        As ``HeteroData.metadata()`` gives it. Graphs may list both in any order, and leave out
        relations and types.
    aggr : {"mean", "sum"}
        Over the neighbours by one relation.
    relation_aggr : {"sum", "mean"}
        Over the relations that lead to a type.
    root_weight, bias : bool

    Attributes
    ----------
    lin_l : Parameter, shape (relations, widest in_channels, out_channels)
    lin_r : Parameter, shape (relations, widest in_channels, out_channels), or None
    bias : Parameter, shape (relations, out_channels), or None

    Raises
    ------
    ValueError
        If an option is unknown, or a relation names a type without a width.
    """

    def __init__(
        self,
        in_channels: int | Mapping[str, int],
        out_channels: int,
        metadata: Metadata,
        *,
        aggr: str = "mean",
        relation_aggr: str = "sum",
        root_weight: bool = True,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.node_types = tuple(metadata[0])
        self.relations = tuple((a, b, c) for a, b, c in metadata[1])
        if isinstance(in_channels, int):
            in_channels = dict.fromkeys(self.node_types, in_channels)
        read = {end for a, _, b in self.relations for end in ((a, b) if root_weight else (a,))}
        missing = sorted(end for end in read if in_channels.get(end, 0) < 1)
        if missing or not self.relations or out_channels < 1:
            raise ValueError(f"HeteroSAGEConv: no relation, no output, or no width of {missing}")
        if aggr not in _REDUCE or relation_aggr not in ("sum", "mean"):
            raise ValueError(
                f"HeteroSAGEConv: aggr={aggr!r} must be mean or sum, relation_aggr="
                f"{relation_aggr!r} sum or mean"
            )
        self.widths = tuple(in_channels[name] if name in read else 0 for name in self.node_types)
        self.out_channels, self.aggr, self.relation_aggr = out_channels, aggr, relation_aggr
        shape = len(self.relations), max(self.widths), out_channels
        self.lin_l = nn.Parameter(torch.empty(shape))
        self.lin_r = nn.Parameter(torch.empty(shape)) if root_weight else None
        self.bias = nn.Parameter(torch.empty(shape[0], out_channels)) if bias else None
        leads = torch.empty(len(self.node_types), shape[0])
        self.register_buffer("_leads", leads, persistent=False)
        self._leads: Tensor
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Glorot-uniform matrices (rows past a type's width meet zeros only), zero biases."""
        self._leads.zero_()
        for number, relation in enumerate(self.relations):
            self._leads[self.node_types.index(relation[2]), number] = 1
        glorot(self.lin_l, self.lin_r)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    @classmethod
    def from_pyg(cls, layer: Any) -> HeteroSAGEConv:
        """A layer with the weights of a ``HeteroConv`` of ``SAGEConv``.

        Parameters
        ----------
        layer : torch_geometric.nn.HeteroConv
            Whose convolutions are ``SAGEConv`` with equal options and widths out.

        Returns
        -------
        HeteroSAGEConv
            Parameters are copied.

        Raises
        ------
        UnsupportedError
            If the convolutions differ, normalise, project, or aggregate by something else.
        """
        convs = dict(layer.convs.items())
        first = next(iter(convs.values()), None)
        options = [
            (c.aggr, c.normalize, c.project, c.root_weight, c.out_channels, c.lin_l.bias is None)
            if type(c).__name__ == "SAGEConv" else None
            for c in convs.values()
        ]  # fmt: skip
        if first is None or options[0] is None or len(set(options)) != 1:
            raise unsupported("HeteroSAGEConv.from_pyg: convolutions must be alike, all SAGEConv")
        if first.normalize or first.project or first.aggr not in _REDUCE:
            raise unsupported(f"HeteroSAGEConv.from_pyg: {first} is not supported")
        if layer.aggr not in ("sum", "mean"):
            raise unsupported(f"HeteroSAGEConv.from_pyg: HeteroConv(aggr={layer.aggr!r})")
        widths: dict[str, int] = {}
        for (source, _, target), conv in convs.items():
            widths[source] = conv.lin_l.weight.shape[1]
            if conv.root_weight:
                widths[target] = conv.lin_r.weight.shape[1]
        types = list(dict.fromkeys(end for a, _, b in convs for end in (a, b)))
        made = cls(
            widths, first.out_channels, (types, list(convs)), aggr=first.aggr,
            relation_aggr=layer.aggr, root_weight=first.root_weight,
            bias=first.lin_l.bias is not None,
        ).to(first.lin_l.weight)  # fmt: skip
        with torch.no_grad():
            made.lin_l.zero_()
            for i, conv in enumerate(convs.values()):
                made.lin_l[i, : conv.lin_l.weight.shape[1]] = conv.lin_l.weight.mT
                if made.lin_r is not None:
                    made.lin_r[i] = 0
                    made.lin_r[i, : conv.lin_r.weight.shape[1]] = conv.lin_r.weight.mT
                if made.bias is not None:
                    made.bias[i] = conv.lin_l.bias
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
            The dict holds the types that a relation of the graph leads to; in the tensor the other
            types' rows are zero.

        Raises
        ------
        ValueError
            If rows, relations or types do not fit the graph.
        """
        g = graph_of(g)
        order = relation_order(g, self.relations)
        types = node_order(g, self.node_types, strangers=True)
        pick = order != list(range(len(self.relations)))
        as_known = types == list(range(len(self.node_types))) and not pick
        lin_l, lin_r, bias = (
            value[order] if pick and value is not None else value
            for value in (self.lin_l, self.lin_r, self.bias)
        )
        leads = self._leads
        if not as_known:  # A type that the layer does not know is led to by nothing.
            leads = pad(leads, (0, 0, 0, 1))[types][:, order]
        root = None
        if lin_r is not None:
            root = (leads @ lin_r.flatten(1)).reshape(-1, *lin_r.shape[1:])
        share = 1 / leads.sum(1).clamp(min=1) if self.relation_aggr == "mean" else None
        widths = zip(self.node_types, self.widths, strict=True)
        features = stacked(g, x, {name: width for name, width in widths if width})
        result: Tensor = _sage(
            g, features, lin_l, root, None if bias is None else leads @ bias, share,
            _REDUCE[self.aggr],
        )  # fmt: skip
        if not isinstance(x, Mapping):
            return result
        return unstacked(g, result, [self.relations[number][2] for number in order])

    def extra_repr(self) -> str:
        """What ``print(layer)`` shows in the parentheses."""
        return f"{self.out_channels}, relations={len(self.relations)}, aggr={self.aggr!r}"
