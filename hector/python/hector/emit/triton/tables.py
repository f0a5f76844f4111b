# SPDX-License-Identifier: Apache-2.0
"""What kernels read of a graph's plan: narrow ids, tiles of one type, pieces of long segments.

Built at first use and kept in the plan; sizes are Python integers from then on, so that launches
need no answer from the device.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from hector.ir.types import MAPS, Space
from hector.plan import Plan

__all__ = [
    "Pieces",
    "TypeTiles",
    "count_scale",
    "grouped",
    "index",
    "order",
    "pieces",
    "type_tiles",
]

_NARROW = 1 << 31


@dataclass(frozen=True)
class TypeTiles:
    """Runs of rows of one type.

    Attributes
    ----------
    count : int
    kind, begin, end : Tensor, shape (count,)
        Type of each run and its places in the grouped order.
    first : Tensor, shape (types + 1,)
        The first run of each type.
    """

    count: int
    kind: Tensor
    begin: Tensor
    end: Tensor
    first: Tensor


@dataclass(frozen=True)
class Pieces:
    """The targets of a map, longest first; those beyond a limit in pieces.

    Attributes
    ----------
    count : int
    begin, end : Tensor, shape (count,)
        Places in the grouped order.
    target : Tensor, shape (count,)
    slot : Tensor, shape (count,)
        Where a piece is kept for the second pass; -1 for a whole target.
    slots : int
        Pieces that are not whole.
    hubs : int
        Targets in pieces.
    hub_begin, hub_end, hub_target : Tensor, shape (hubs,)
        Slots of each, and the target.
    """

    count: int
    begin: Tensor
    end: Tensor
    target: Tensor
    slot: Tensor
    slots: int
    hubs: int
    hub_begin: Tensor
    hub_end: Tensor
    hub_target: Tensor


def _narrow(values: Tensor, bound: int) -> Tensor:
    return values.to(torch.int32 if bound < _NARROW else torch.int64)


def index(plan: Plan, name: str) -> Tensor:
    """Target row of every source row of a map, in 32 bits where that is enough."""
    bound = plan.counts.rows(MAPS[name].target)
    return plan.cached(("narrow", name), lambda: _narrow(plan.index(name), bound))


def order(plan: Plan, name: str) -> Tensor | None:
    """Source rows of a map grouped by target; None where they stand so already."""
    found = plan.segments(name).order
    if found is None:
        return None
    bound = plan.counts.rows(MAPS[name].source)
    return plan.cached(("narrow order", name), lambda: _narrow(found, bound))


def grouped(plan: Plan, rows: str, name: str) -> Tensor:
    """Target of ``rows`` for each source row, in the grouped order of ``name``."""
    found = order(plan, name)
    if found is None:
        return index(plan, rows)
    return plan.cached(("narrow grouped", rows, name), lambda: index(plan, rows)[found.long()])


def count_scale(
    plan: Plan, counted: str, through: str, dtype: torch.dtype, order: str | None
) -> Tensor:
    """1 / (source rows of the target of ``counted``) for each source row of ``through``.

    Parameters
    ----------
    plan : Plan
    counted, through : str
        Maps; the target of ``counted`` is the target of ``through``.
    dtype : torch.dtype
    order : str or None
        Map whose grouped order the result stands in; None for the order of the rows.
    """

    def build() -> Tensor:
        rows = plan.index(through) if order is None else plan.grouped_index(through, order)
        return plan.inverse_count(counted, dtype)[rows]

    return plan.cached(("count_scale", counted, through, dtype, order), build)


def _runs(counts: Tensor, step: int) -> tuple[Tensor, Tensor, Tensor]:
    """(segment, number within it, first run of each segment) of the runs of ``step`` rows."""
    runs = (counts + (step - 1)) // step
    first = torch.zeros(counts.shape[0] + 1, dtype=torch.int64, device=counts.device)
    torch.cumsum(runs, 0, out=first[1:])
    segment = torch.repeat_interleave(runs)
    number = torch.arange(segment.shape[0], device=counts.device) - first[segment]
    return segment, number, first


def type_tiles(plan: Plan, name: str | None, space: str, step: int) -> TypeTiles:
    """The rows of ``space`` by type, in runs of at most ``step``.

    Parameters
    ----------
    plan : Plan
    name : str or None
        Map to the types; None where all rows are of one.
    space : str
    step : int
    """
    rows = plan.counts.rows(Space(space))

    def build() -> TypeTiles:
        if name is None:
            bounds = torch.tensor([0, rows], device=plan.device)
        else:
            bounds = plan.segments(name).bounds
        segment, number, first = _runs(bounds[1:] - bounds[:-1], step)
        begin = bounds[segment] + number * step
        end = torch.minimum(begin + step, bounds[segment + 1])
        count = int(segment.shape[0])
        return TypeTiles(
            count, _narrow(segment, _NARROW - 1), _narrow(begin, rows), _narrow(end, rows),
            _narrow(first, count),
        )  # fmt: skip

    return plan.cached(("type_tiles", name, space, step), build)


def pieces(plan: Plan, name: str, split: int) -> Pieces:
    """The targets of a map, in pieces of at most ``split`` source rows.

    Parameters
    ----------
    plan : Plan
    name : str
    split : int
    """

    def build() -> Pieces:
        bounds = plan.segments(name).bounds
        counts = bounds[1:] - bounds[:-1]
        target, number, first = _runs(counts.clamp(min=1), split)
        begin = bounds[target] + number * split
        end = torch.minimum(begin + split, bounds[target + 1])
        runs = first[1:] - first[:-1]
        cut = runs > 1
        kept = torch.zeros_like(first)
        torch.cumsum(torch.where(cut, runs, 0), 0, out=kept[1:])
        slot = torch.where(cut[target], kept[target] + number, -1)
        hub = torch.nonzero(cut)[:, 0]
        longest = torch.argsort(end - begin, descending=True, stable=True)
        rows = plan.counts.rows(MAPS[name].source)
        targets = plan.counts.rows(MAPS[name].target)
        return Pieces(
            count=int(target.shape[0]),
            begin=_narrow(begin[longest], rows),
            end=_narrow(end[longest], rows),
            target=_narrow(target[longest], targets),
            slot=_narrow(slot[longest], rows),
            slots=int(kept[-1]),
            hubs=int(hub.shape[0]),
            hub_begin=_narrow(kept[hub], rows),
            hub_end=_narrow(kept[hub] + runs[hub], rows),
            hub_target=_narrow(hub, targets),
        )

    return plan.cached(("pieces", name, split), build)
