# SPDX-License-Identifier: Apache-2.0
"""Graphs of the sizes of public data sets, drawn at random; nothing is downloaded."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from hector.graph import Graph

__all__ = ["SHAPES", "Shape", "draw", "draw_typed"]


@dataclass(frozen=True)
class Shape:
    """Sizes of a relational graph.

    Attributes
    ----------
    name : str
    nodes, edges, relations, types : int
        ``types`` counts node types.
    """

    name: str
    nodes: int
    edges: int
    relations: int
    types: int

    def __str__(self) -> str:
        return f"{self.name} ({self.nodes} nodes, {self.edges} edges, {self.relations} relations)"

    def scaled(self, factor: float) -> Shape:
        """A smaller graph of the same density; relations and types stay, as far as edges allow."""
        nodes, edges = (max(int(count * factor), 1) for count in (self.nodes, self.edges))
        name = f"{self.name} x {factor:g}"
        return Shape(name, max(nodes, self.types), edges, min(self.relations, edges), self.types)


SHAPES = {
    shape.name: shape
    for shape in (
        Shape("aifb", 7_262, 48_810, 104, 7),
        Shape("mutag", 27_163, 148_100, 50, 5),
        Shape("bgs", 94_806, 672_884, 122, 27),
        Shape("fb15k", 14_541, 620_232, 474, 1),
        Shape("biokg", 93_773, 4_762_678, 51, 5),
        Shape("am", 1_885_136, 5_668_682, 108, 7),
        Shape("mag", 1_939_743, 21_111_007, 4, 4),
        Shape("wikikg2", 2_500_604, 16_109_182, 535, 1),
    )
}
"""The eight graphs on which relational layers are commonly timed, by name."""


def _relations(shape: Shape, device: torch.device, generator: torch.Generator) -> Tensor:
    """Relations by Zipf's law."""
    shares = torch.arange(1, shape.relations + 1, device=device, dtype=torch.float32) ** -1.1
    return torch.multinomial(shares, shape.edges, replacement=True, generator=generator)


def draw(shape: Shape, device: torch.device | str = "cpu", seed: int = 0) -> Graph:
    """A graph whose end points and relations follow power laws.

    Parameters
    ----------
    shape : Shape
    device : torch.device or str
    seed : int

    Returns
    -------
    Graph
        Node types lie in ranges of about equal length.
    """
    device = torch.device(device)
    generator = torch.Generator(device).manual_seed(seed)

    def uniform() -> Tensor:
        return torch.rand(shape.edges, device=device, generator=generator)

    count = shape.nodes
    shuffle = torch.randperm(count, device=device, generator=generator)
    src = shuffle[(count * uniform() ** 1.5).long().clamp_(max=count - 1)]
    dst = shuffle[(count * uniform() ** 2).long().clamp_(max=count - 1)]
    rel = _relations(shape, device, generator)
    kinds = torch.arange(count, device=device) * shape.types // count
    return Graph(torch.stack([src, dst]), rel, count, shape.relations, kinds, shape.types)


def draw_typed(shape: Shape, device: torch.device | str = "cpu", seed: int = 0) -> Graph:
    """A graph in which a relation leads from one node type to one other, as HGT's do.

    Parameters
    ----------
    shape : Shape
    device : torch.device or str
    seed : int

    Returns
    -------
    Graph
        Every type has ``nodes // types`` nodes. Relations without an edge are left out, so there
        may be fewer of them; ``relation_names`` and ``node_type_names`` say between which types
        they lead.
    """
    device = torch.device(device)
    generator = torch.Generator(device).manual_seed(seed)
    ends = torch.Generator().manual_seed(seed + 1)
    per = shape.nodes // shape.types
    rel = _relations(shape, device, generator)
    counts = torch.bincount(rel, minlength=shape.relations)
    kinds = torch.randint(shape.types, (shape.relations, 2), generator=ends)
    offsets = kinds.to(device)[rel] * per
    index = torch.randint(per, (2, shape.edges), device=device, generator=generator)
    used = counts > 0
    number = (used.cumsum(0) - 1)[rel]
    node_type = torch.arange(per * shape.types, device=device) // per
    graph = Graph(
        index + offsets.T, number, per * shape.types, int(used.sum()), node_type, shape.types
    )
    graph.node_type_names = tuple(f"n{kind}" for kind in range(shape.types))
    graph.node_type_counts = (per,) * shape.types
    kept = used.nonzero()[:, 0].tolist()
    graph.relation_names = tuple(
        (f"n{kinds[old, 0]}", f"r{old}", f"n{kinds[old, 1]}") for old in kept
    )
    return graph
