# SPDX-License-Identifier: Apache-2.0
"""What is derived from a graph once and reused: orders, unique maps, counts; not what is computed.

Edge values are kept in destination order inside compiled code, pair values in (relation, node)
order; ``edge_order`` leads from there to the user's order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor

from hector.ir.types import MAPS, Space, compose

__all__ = ["Counts", "Plan"]

T = TypeVar("T")


@dataclass(frozen=True)
class Counts:
    """Rows of each space of one graph, all that decisions about forms may look at.

    Attributes
    ----------
    node, edge, src_pair, dst_pair, relation, node_type : int
    """

    node: int
    edge: int
    src_pair: int
    dst_pair: int
    relation: int
    node_type: int

    def rows(self, space: Space) -> int:
        """Rows of a value in this space; 1 for weights."""
        return 1 if space is Space.WEIGHT else int(getattr(self, space.value))


@dataclass(frozen=True)
class Segments:
    """Rows of a map's source grouped by its target.

    Attributes
    ----------
    order : Tensor, int64, or None
        Source rows, grouped; None where the rows are grouped as they stand.
    bounds : Tensor, int64, shape (targets + 1,)
    """

    order: Tensor | None
    bounds: Tensor


class Plan:
    """Orders and unique maps of one graph, each built at first use.

    Parameters
    ----------
    src, dst, rel : Tensor, int32 or int64, shape (E,)
    num_nodes, num_relations : int
    node_type : Tensor or None, shape (num_nodes,)
    num_node_types : int
    """

    def __init__(
        self,
        src: Tensor,
        dst: Tensor,
        rel: Tensor,
        num_nodes: int,
        num_relations: int,
        node_type: Tensor | None,
        num_node_types: int,
    ) -> None:
        self.device = rel.device
        self.edge_order = torch.argsort(dst.long(), stable=True)
        self._index: dict[str, Tensor] = {
            "edge.src": src.long()[self.edge_order],
            "edge.dst": dst.long()[self.edge_order],
            "edge.rel": rel.long()[self.edge_order],
        }
        if node_type is not None:
            self._index["node.type"] = node_type.long()
        for side, end in ((Space.SRC_PAIR, "edge.src"), (Space.DST_PAIR, "edge.dst")):
            keys = self._index["edge.rel"] * max(num_nodes, 1) + self._index[end]
            unique, inverse = torch.unique(keys, return_inverse=True)
            self._index[f"edge.{side.value}"] = inverse
            self._index[f"{side.value}.node"] = unique % max(num_nodes, 1)
            self._index[f"{side.value}.rel"] = unique // max(num_nodes, 1)
        self.counts = Counts(
            node=num_nodes,
            edge=int(rel.shape[0]),
            src_pair=int(self._index["src_pair.rel"].shape[0]),
            dst_pair=int(self._index["dst_pair.rel"].shape[0]),
            relation=num_relations,
            node_type=num_node_types,
        )
        self._segments: dict[str, Segments] = {}
        self._host_bounds: dict[str, list[int]] = {}
        self._cache: dict[object, Any] = {}

    def index(self, name: str) -> Tensor:
        """Target row of every source row of a map, int64, in the internal order of the source."""
        if name not in self._index:
            self._index[name] = self._composed(name)
        return self._index[name]

    def _composed(self, name: str) -> Tensor:
        for first in MAPS.values():
            if first.name in self._index and first.source is MAPS[name].source:
                for second in MAPS:
                    if second in self._index and compose(first.name, second) == name:
                        return self._index[second][self._index[first.name]]
        raise ValueError(f"this Graph has no {name}: pass node_type= when building it")

    def segments(self, name: str) -> Segments:
        """Source rows of a map grouped by target row; the order within a group is fixed."""
        if name not in self._segments:
            index = self.index(name)
            rows = self.counts.rows(MAPS[name].target)
            bounds = torch.zeros(rows + 1, dtype=torch.int64, device=self.device)
            torch.cumsum(torch.bincount(index, minlength=rows), 0, out=bounds[1:])
            grouped = bool((index[1:] >= index[:-1]).all())
            order = None if grouped else torch.argsort(index, stable=True)
            self._segments[name] = Segments(order, bounds)
        return self._segments[name]

    def host_bounds(self, name: str) -> list[int]:
        """The bounds of ``segments`` as Python integers."""
        if name not in self._host_bounds:
            self._host_bounds[name] = self.segments(name).bounds.tolist()
        return self._host_bounds[name]

    def rows(self, space: str) -> int:
        """Rows of the space of this name."""
        return self.counts.rows(Space(space))

    def grouped_index(self, rows: str | None, name: str) -> Tensor:
        """Row to read for each source row of ``name``, in its grouped order.

        Parameters
        ----------
        rows : str or None
            Map through which the operand is read; None where it lies in the source space.
        name : str
            Map whose segments give the order.
        """

        def build() -> Tensor:
            order = self.segments(name).order
            if rows is None:
                count = self.counts.rows(MAPS[name].source)
                return torch.arange(count, device=self.device) if order is None else order
            return self.index(rows) if order is None else self.index(rows)[order]

        return self.cached(("grouped_index", rows, name), build)

    def inverse_count(self, name: str, dtype: torch.dtype) -> Tensor:
        """1 / (source rows of each target row), 1 where there is none."""

        def build() -> Tensor:
            bounds = self.segments(name).bounds
            return (bounds[1:] - bounds[:-1]).clamp(min=1).to(torch.float64).reciprocal().to(dtype)

        return self.cached(("inverse_count", name, dtype), build)

    @property
    def edge_position(self) -> Tensor:
        """Internal row of each of the user's edges: the inverse of ``edge_order``."""

        def build() -> Tensor:
            position = torch.empty_like(self.edge_order)
            position[self.edge_order] = torch.arange(self.counts.edge, device=self.device)
            return position

        return self.cached("edge_position", build)

    def cached(self, key: object, build: Callable[[], T]) -> T:
        """What depends on the graph alone, built at first use."""
        if key not in self._cache:
            self._cache[key] = build()
        found: T = self._cache[key]
        return found
