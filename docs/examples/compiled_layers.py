# SPDX-License-Identifier: Apache-2.0
"""The relational layers of the example on hector: one ready-made, one written by hand."""

from __future__ import annotations

import torch
from neighbor_sampling import Block
from torch import nn
from torch.utils.weak import WeakIdKeyDictionary

import hector

__all__ = ["CompiledLayer", "LibraryLayer", "make"]


@hector.compile
def relational_mean(
    g: hector.Graph, x: torch.Tensor, weight: torch.Tensor, root: torch.Tensor, bias: torch.Tensor
) -> torch.Tensor:
    """The node itself, and for each relation the mean over its in-edges, float32 [nodes, out]."""
    message = hector.linear(x[g.src], weight[g.rel])
    return hector.aggregate(message, g, reduce="mean_rel") + x @ root + bias


# A graph sorts its edges when it is made, so it is made once for each block, not for each layer
# and pass; it goes when its block does.
_GRAPHS: WeakIdKeyDictionary = WeakIdKeyDictionary()


def _graph(block: Block, num_relations: int) -> hector.Graph:
    graph: hector.Graph | None = _GRAPHS.get(block)
    if graph is None:
        graph = hector.Graph(block.edge_index, block.edge_type, block.num_nodes, num_relations)
        _GRAPHS[block] = graph
    return graph


class LibraryLayer(nn.Module):
    """``hector.nn.RGCNConv`` with the parameters of a plain layer."""

    def __init__(self, weight: nn.Parameter, root: nn.Parameter, bias: nn.Parameter) -> None:
        super().__init__()
        self.conv = hector.nn.RGCNConv(weight.shape[1], weight.shape[2], weight.shape[0])
        self.conv.load_state_dict({"weight": weight, "root": root, "bias": bias})

    def forward(self, x: torch.Tensor, block: Block) -> torch.Tensor:
        """Return float32 [num_nodes, width_out] for x [num_nodes, width_in]."""
        out: torch.Tensor = self.conv(_graph(block, len(self.conv.weight)), x)
        return out


class CompiledLayer(nn.Module):
    """A function in plain indexing, compiled, with the parameters of a plain layer."""

    def __init__(self, weight: nn.Parameter, root: nn.Parameter, bias: nn.Parameter) -> None:
        super().__init__()
        self.weight, self.root, self.bias = weight, root, bias

    def forward(self, x: torch.Tensor, block: Block) -> torch.Tensor:
        """Return float32 [num_nodes, width_out] for x [num_nodes, width_in]."""
        g = _graph(block, len(self.weight))
        out: torch.Tensor = relational_mean(g, x, self.weight, self.root, self.bias)
        return out


def make() -> tuple[object, ...]:
    """What ``hector explain compiled_layers.py:make`` explains: the layer on a drawn graph."""
    torch.manual_seed(0)
    nodes, edges, relations, width = 2_000, 20_000, 20, 64
    g = hector.Graph(
        torch.randint(nodes, (2, edges)), torch.randint(relations, (edges,)), nodes, relations
    )
    shapes = ((nodes, width), (relations, width, width), (width, width), (width,))
    return relational_mean, g, *(torch.randn(shape, requires_grad=True) for shape in shapes)
