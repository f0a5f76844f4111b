# SPDX-License-Identifier: Apache-2.0
"""PyG's layers on a graph, ready to be called: the peers of hector's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

import hector

__all__ = ["PYG", "Call", "make_pyg"]

Call = tuple[Callable[..., Any], tuple[object, ...], list[Tensor]]
"""A function, its arguments, and the tensors whose gradients training computes."""

PYG = {"RGCN": ("RGCNConv", "FastRGCNConv"), "RGAT": ("RGATConv",), "HGT": ("HGTConv",)}
"""PyG's layers for the same work."""


class _Values:
    """A layer that gives a dict, as a function that gives what is in it."""

    def __init__(self, layer: torch.nn.Module) -> None:
        self.layer = layer

    def __call__(self, *arguments: Any) -> list[Tensor]:
        return [value for value in self.layer(*arguments).values() if value is not None]


def make_pyg(kind: str, g: hector.Graph, width: int = 64) -> Call:
    """A layer of PyG with one head.

    Parameters
    ----------
    kind : str
        Name of its class.
    g : hector.Graph
        For HGTConv with names of types and relations, nodes in the order of types.
    width : int

    Returns
    -------
    Call

    Raises
    ------
    ImportError
        If torch-geometric is not installed.
    """
    import torch_geometric.nn as peers

    generator = torch.Generator(g.device).manual_seed(1)
    x = torch.randn(g.num_nodes, width, device=g.device, generator=generator).requires_grad_()
    if kind != "HGTConv":
        layer = getattr(peers, kind)(width, width, g.num_relations).to(g.device)
        order = torch.argsort(g.rel * g.num_nodes + g.dst)
        return layer, (x, g.edge_index[:, order], g.rel[order]), [x, *layer.parameters()]
    rows = dict(zip(g.node_type_names, x.detach().split(list(g.node_type_counts)), strict=True))
    rows = {name: value.clone().requires_grad_() for name, value in rows.items()}
    starts = {name: i * g.node_type_counts[0] for i, name in enumerate(g.node_type_names)}
    order = torch.argsort(g.rel, stable=True)
    counts = torch.bincount(g.rel, minlength=g.num_relations).tolist()
    edges = {}
    for relation, ids in zip(g.relation_names, order.split(counts), strict=True):
        shift = torch.tensor([[starts[relation[0]]], [starts[relation[2]]]], device=g.device)
        edges[relation] = g.edge_index[:, ids] - shift
    made = peers.HGTConv(width, width, (list(rows), list(edges)), heads=1).to(g.device)

    return _Values(made), (rows, edges), [*rows.values(), *made.parameters()]
