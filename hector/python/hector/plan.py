# SPDX-License-Identifier: Apache-2.0
"""What is derived from a graph once and reused: orders, unique maps, counts; not what is computed.

Edge values are kept in destination order inside compiled code, pair values in (relation, node)
order; ``edge_order`` leads from there to the user's order. Building asks the device one question:
whether the ids are in range and how many pairs there are.
"""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

import torch
from torch import Tensor

from hector.ids import IdRange, ask
from hector.ir.types import MAPS, Space, compose
from hector.orders import bounds, narrow, run_numbers, stable_order

__all__ = ["Counts", "Plan", "Recipe", "Segments", "derived"]

T = TypeVar("T")
P = ParamSpec("P")
Recipe = tuple[tuple[Callable[..., Any], tuple[Hashable, ...]], ...]
"""Which derived values a plan holds, in the order in which they were made."""

_GROUPED = frozenset({"edge.dst", "src_pair.rel", "dst_pair.rel"})


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

    def alike(self, other: Counts) -> bool:
        """Whether no count is more than four times the other's, or less than a quarter of it."""
        pairs = zip(vars(self).values(), vars(other).values(), strict=True)
        return all(max(a, b) <= 4 * max(min(a, b), 1) for a, b in pairs)


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


def derived(
    build: Callable[Concatenate[Plan, P], T],
) -> Callable[Concatenate[Plan, P], T]:
    """Keep a function's results in the plan that it is called on, and with them its calls.

    Parameters
    ----------
    build : callable
        Defined in a module; of a plan and hashable positional arguments. Gives tensors, or
        dataclasses of tensors and plain values, that depend on the graph alone.

    Returns
    -------
    callable
    """

    @functools.wraps(build)
    def lookup(plan: Plan, *args: P.args, **kwargs: P.kwargs) -> T:
        key = lookup, cast("tuple[Hashable, ...]", args)
        if key not in plan.derived:
            plan.derived[key] = build(plan, *args, **kwargs)
        return cast("T", plan.derived[key])

    return cast("Callable[Concatenate[Plan, P], T]", lookup)


class _Pairs:
    """The unique (relation, node) pairs at one end of the edges, before and after counting.

    Parameters
    ----------
    order : Tensor, int64, shape (E,)
        Edges by relation, then node, then place.
    columns : sequence of Tensor, shape (E,)
        In that order; equal in all columns is equal in the pair.
    dtype : torch.dtype
        Of the pairs' numbers.
    """

    def __init__(self, order: Tensor, columns: Sequence[Tensor], dtype: torch.dtype) -> None:
        self.order = order
        self.number = run_numbers(columns, dtype)

    @property
    def last(self) -> Tensor:
        """Number of the last pair, -1 where there is none; shape (1,)."""
        return self.number[-1:] if self.number.numel() else self.number.new_full((1,), -1)

    def maps(self, count: int, rel: Tensor, node: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Pair of each edge, relation and node of each pair, and bounds of the pairs' edges."""
        pair = torch.empty_like(self.number)
        pair[self.order] = self.number
        starts = bounds(self.number, None, count)
        first = self.order[starts[:-1]]
        return pair, rel[first], node[first], starts


class Plan:
    """Orders and unique maps of one graph.

    Parameters
    ----------
    src, dst, rel : Tensor, int32 or int64, shape (E,)
    num_nodes, num_relations : int
    node_type : Tensor or None, shape (num_nodes,)
    num_node_types : int
    ranges : sequence of IdRange
        Checked before anything is read through an id.
    types_ascend : bool
        Whether the nodes are known to stand type after type.
    sampled : bool
        Whether sizes of tables are bounded, not read back: see ``Graph``.

    Raises
    ------
    IndexError
        If an id is out of its range.
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
        *,
        ranges: Sequence[IdRange] = (),
        types_ascend: bool = False,
        sampled: bool = False,
    ) -> None:
        self.device = rel.device
        self.sampled = sampled
        self.derived: dict[tuple[Callable[..., Any], tuple[Hashable, ...]], Any] = {}
        self._segments: dict[str, Segments] = {}
        self._host_bounds: dict[str, list[int]] = {}
        self._ascending = _GROUPED | ({"node.type"} if types_ascend else frozenset())
        # PyTorch's operators on the CPU take 64 bits; kernels on a GPU read half of that.
        limit = 1 << 63 if self.device.type == "cpu" else 0
        edges = int(rel.shape[0])
        order = stable_order(dst, num_nodes)
        keys = num_relations * num_nodes
        kernels = self.kernels()
        if kernels is not None and edges and max(edges, num_nodes, num_relations) < 1 << 31:
            answer = torch.zeros(3, dtype=torch.int64, device=self.device)
            made = kernels.ends(src, dst, rel, order, num_nodes, num_relations, answer)
            src, dst, rel, key = made
            by_source, by_relation = stable_order(key, keys), stable_order(rel, num_relations)
            sides = kernels.pairs(made, by_source, by_relation, answer[1:])
            rest = [each for each in ranges if not each.of_edges]
            bad, *found = ask(rest, (answer,))
            if bad:
                ask(ranges, ())
            sides = [
                (pair, kind[: last + 1], node[: last + 1], starts[: last + 2])
                for (pair, kind, node, starts), last in zip(sides, found, strict=True)
            ]
        else:
            src, dst, rel = (
                narrow(ids[order], max(rows, limit))
                for ids, rows in ((src, num_nodes), (dst, num_nodes), (rel, num_relations))
            )
            key = narrow(rel, max(keys, limit)) * num_nodes + src
            by_source, by_relation = stable_order(key, keys), stable_order(rel, num_relations)
            number = narrow(order[:0], max(edges, limit)).dtype
            src_pairs = _Pairs(by_source, (key[by_source],), number)
            dst_pairs = _Pairs(by_relation, (rel[by_relation], dst[by_relation]), number)
            found = ask(ranges, (src_pairs.last, dst_pairs.last))
            sides = [
                pairs.maps(last + 1, rel, ends)
                for pairs, last, ends in zip((src_pairs, dst_pairs), found, (src, dst), strict=True)
            ]
        self.edge_order = order
        self.counts = Counts(
            num_nodes, edges, found[0] + 1, found[1] + 1, num_relations, num_node_types
        )
        self._index: dict[str, Tensor] = {"edge.src": src, "edge.dst": dst, "edge.rel": rel}
        if node_type is not None:
            self._index["node.type"] = narrow(node_type, max(num_node_types, limit))
        for name, grouping, side in zip(
            ("src_pair", "dst_pair"), (by_source, by_relation), sides, strict=True
        ):
            pair, kind, node, starts = side
            self._index |= {f"edge.{name}": pair, f"{name}.rel": kind, f"{name}.node": node}
            self._segments[f"edge.{name}"] = Segments(grouping, starts)
        self._orders = {"edge.rel": by_relation}

    def kernels(self) -> Any:
        """The module of kernels that build plans of sampled graphs, where it can run, or None."""
        runs = self.device.type == "cuda" and importlib.util.find_spec("triton") is not None
        # Imported here, since it brings Triton along.
        return importlib.import_module("hector.plan_kernels") if runs and self.sampled else None

    def narrow_index(self, name: str) -> Tensor:
        """Target row of every source row of a map, in the internal order of the source.

        Returns
        -------
        Tensor, int64 on the CPU; elsewhere int32 where that is enough
        """
        if name not in self._index:
            self._index[name] = self._composed(name)
        return self._index[name]

    def index(self, name: str) -> Tensor:
        """``narrow_index`` in 64 bits."""
        return _long_index(self, name)

    def _composed(self, name: str) -> Tensor:
        for first in MAPS.values():
            if first.name in self._index and first.source is MAPS[name].source:
                for second in MAPS:
                    if second in self._index and compose(first.name, second) == name:
                        return self._index[second][self._index[first.name]]
        raise ValueError(f"this Graph has no {name}: pass node_type= when building it")

    def segments(self, name: str) -> Segments:
        """Source rows of a map grouped by target row; ascending within a group."""
        if name not in self._segments:
            index = self.narrow_index(name)
            rows = self.counts.rows(MAPS[name].target)
            # One group of all, or rows that are made in order: known without looking.
            grouped = rows <= 1 or name in self._ascending
            order = None
            if not grouped:
                known = self._orders.get(name)
                order = stable_order(index, rows) if known is None else known
            self._segments[name] = Segments(order, bounds(index, order, rows))
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
        return _grouped_index(self, rows, name)

    def inverse_count(self, name: str, dtype: torch.dtype) -> Tensor:
        """1 / (source rows of each target row), 1 where there is none."""
        return _inverse_count(self, name, dtype)

    @property
    def edge_position(self) -> Tensor:
        """Internal row of each of the user's edges: the inverse of ``edge_order``."""
        return _edge_position(self)

    def recipe(self) -> Recipe:
        """The derived values that this plan holds."""
        return tuple(self.derived)

    def prepare(self, recipe: Recipe) -> None:
        """Derive now what another plan came to hold.

        Parameters
        ----------
        recipe : Recipe
            Of a plan of a graph that the same functions ran on.
        """
        for lookup, args in recipe:
            lookup(self, *args)

    def tensors(self) -> list[Tensor]:
        """Every tensor that the plan holds, each once."""
        found: dict[int, Tensor] = {}
        left: list[Any] = [self.edge_order]
        for held in (self.derived, self._segments, self._index, self._orders):
            left += held.values()
        while left:
            value = left.pop()
            if isinstance(value, Tensor):
                found[id(value)] = value
            elif isinstance(value, tuple):
                left += value
            elif is_dataclass(value):
                left += vars(value).values()
        return list(found.values())

    def to(self, device: torch.device, non_blocking: bool = False) -> Plan:
        """A copy on another device, derived values included."""
        made = self._mapped(lambda tensor: tensor.to(device, non_blocking=non_blocking))
        made.device = made.edge_order.device
        return made

    def _mapped(self, function: Callable[[Tensor], Tensor]) -> Plan:
        seen: dict[int, Tensor] = {}

        def apply(value: Any) -> Any:
            if isinstance(value, Tensor):
                if id(value) not in seen:
                    seen[id(value)] = function(value)
                return seen[id(value)]
            if isinstance(value, tuple):
                return tuple(apply(part) for part in value)
            if is_dataclass(value) and not isinstance(value, type):
                parts = {field.name: apply(getattr(value, field.name)) for field in fields(value)}
                return replace(value, **parts)
            return value

        made = object.__new__(Plan)
        vars(made).update(vars(self))
        made.edge_order = apply(self.edge_order)
        for name in ("derived", "_segments", "_index", "_orders"):
            held = getattr(self, name)
            setattr(made, name, {key: apply(value) for key, value in held.items()})
        made._host_bounds = dict(self._host_bounds)
        return made


@derived
def _long_index(plan: Plan, name: str) -> Tensor:
    return plan.narrow_index(name).long()


@derived
def _grouped_index(plan: Plan, rows: str | None, name: str) -> Tensor:
    order = plan.segments(name).order
    if rows is None:
        count = plan.counts.rows(MAPS[name].source)
        return torch.arange(count, device=plan.device) if order is None else order
    return plan.index(rows) if order is None else plan.index(rows)[order]


@derived
def _inverse_count(plan: Plan, name: str, dtype: torch.dtype) -> Tensor:
    ends = plan.segments(name).bounds
    return (ends[1:] - ends[:-1]).clamp(min=1).to(torch.float64).reciprocal().to(dtype)


@derived
def _edge_position(plan: Plan) -> Tensor:
    position = torch.empty_like(plan.edge_order)
    position[plan.edge_order] = torch.arange(plan.counts.edge, device=plan.device)
    return position
