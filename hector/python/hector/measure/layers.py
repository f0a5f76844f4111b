# SPDX-License-Identifier: Apache-2.0
"""RGCN, RGAT and HGT in plain indexing, with inputs: what is timed. For models there is hector.nn.

Each computes what PyG's layer of that name computes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as activations

from hector import functional
from hector.graph import Graph
from hector.measure.shapes import Shape, draw, draw_typed

__all__ = ["LAYERS", "Layer", "hgt", "rgat", "rgcn"]


def rgcn(g: Graph, x: Tensor, w: Tensor, root: Tensor, bias: Tensor) -> Tensor:
    """RGCN with the mean for each relation, root weight and bias.

    Parameters
    ----------
    x : Tensor, shape (nodes, d)
    w : Tensor, shape (relations, d, d)
    root : Tensor, shape (d, d)
    bias : Tensor, shape (d,)
    """
    messages = functional.linear(x[g.src], w[g.rel])
    return functional.aggregate(messages, g, reduce="mean_rel") + x @ root + bias


def rgat(g: Graph, x: Tensor, w: Tensor, query: Tensor, key: Tensor, bias: Tensor) -> Tensor:
    """RGAT with additive attention over all in-edges.

    Parameters
    ----------
    x : Tensor, shape (nodes, d)
    w : Tensor, shape (relations, d, d)
    query, key : Tensor, shape (d, heads)
    bias : Tensor, shape (d,)
    """
    z_src, z_dst = functional.linear(x[g.src], w[g.rel]), functional.linear(x[g.dst], w[g.rel])
    score = activations.leaky_relu(z_dst @ query + z_src @ key, 0.2)
    share = functional.edge_softmax(score, g)
    edges, heads = score.shape[0], query.shape[1]
    values = z_src.reshape(edges, heads, w.shape[2] // heads) * share[:, :, None]
    return functional.aggregate(values, g).flatten(1) + bias


def hgt(
    g: Graph, x: Tensor, kqv: Tensor, kqv_bias: Tensor, attend: Tensor, message: Tensor,
    prior: Tensor, out: Tensor, out_bias: Tensor, skip: Tensor,
) -> Tensor:  # fmt: skip
    """HGT (Hu et al., 2020, equations 3 to 5).

    Parameters
    ----------
    x : Tensor, shape (nodes, d)
    kqv : Tensor, shape (types, d, 3 d)
    kqv_bias : Tensor, shape (types, 3 d)
    attend, message : Tensor, shape (relations, heads, d / heads, d / heads)
    prior : Tensor, shape (relations, heads)
    out : Tensor, shape (types, d, d)
    out_bias : Tensor, shape (types, d)
    skip : Tensor, shape (types,)
    """
    heads, d = attend.shape[1], attend.shape[2]
    projected = functional.linear(x, kqv[g.node_type]) + kqv_bias[g.node_type]
    keys, queries, values = projected.reshape(x.shape[0], 3, heads, d).unbind(1)
    folded = attend * (prior / math.sqrt(d))[:, :, None, None]
    score = (functional.linear(keys[g.src], folded[g.rel]) * queries[g.dst]).sum(-1)
    share = functional.edge_softmax(score, g)
    sent = share[:, :, None] * functional.linear(values[g.src], message[g.rel])
    summed = activations.gelu(functional.aggregate(sent, g).flatten(1))
    new = functional.linear(summed, out[g.node_type]) + out_bias[g.node_type]
    kept = torch.sigmoid(skip)[g.node_type][:, None]
    return kept * new + (1 - kept) * x


Extents = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Layer:
    """A layer that can be timed.

    Attributes
    ----------
    name : str
    function : callable
        Takes the graph and tensors.
    draw : callable
        Makes its graph of a shape.
    extents : callable
        Shapes of the tensors for a graph, a width and a number of heads.
    """

    name: str
    function: Callable[..., Tensor]
    draw: Callable[[Shape, torch.device | str], Graph]
    extents: Callable[[Graph, int, int], Extents]

    def inputs(
        self, g: Graph, width: int = 64, heads: int = 1, dtype: torch.dtype = torch.float32
    ) -> tuple[Tensor, ...]:
        """Tensors for a graph, the same at every call, all requiring gradients.

        Parameters
        ----------
        g : Graph
        width, heads : int
            ``heads`` must divide ``width``.
        dtype : torch.dtype

        Returns
        -------
        tuple of Tensor
        """
        generator = torch.Generator(g.device).manual_seed(1)
        made = []
        for shape in self.extents(g, width, heads):
            scale = math.sqrt(shape[-1])
            values = torch.randn(shape, device=g.device, generator=generator) / scale
            made.append(values.to(dtype).requires_grad_())
        return tuple(made)


def _rgcn_extents(g: Graph, d: int, heads: int) -> Extents:
    return (g.num_nodes, d), (g.num_relations, d, d), (d, d), (d,)


def _rgat_extents(g: Graph, d: int, heads: int) -> Extents:
    return (g.num_nodes, d), (g.num_relations, d, d), (d, heads), (d, heads), (d,)


def _hgt_extents(g: Graph, d: int, heads: int) -> Extents:
    types, relations, each = g.num_node_types, g.num_relations, d // heads
    square = (relations, heads, each, each)
    return (
        (g.num_nodes, d), (types, d, 3 * d), (types, 3 * d), square, square, (relations, heads),
        (types, d, d), (types, d), (types,),
    )  # fmt: skip


LAYERS = {
    layer.name: layer
    for layer in (
        Layer("RGCN", rgcn, draw, _rgcn_extents),
        Layer("RGAT", rgat, draw, _rgat_extents),
        Layer("HGT", hgt, draw_typed, _hgt_extents),
    )
}
"""The three layers by name."""
