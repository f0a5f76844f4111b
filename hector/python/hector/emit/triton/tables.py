# SPDX-License-Identifier: Apache-2.0
"""What kernels read of a graph's plan: narrow ids, tiles of one type, pieces of long segments.

Built at first use and kept in the plan; sizes are Python integers from then on, so that launches
need no answer from the device. Where building is not to ask for one either, a size is an upper
bound, and what stands beyond the true one does nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from hector.ir.types import MAPS, Space
from hector.orders import narrow, stable_order
from hector.plan import Plan, derived

__all__ = [
    "Pieces",
    "Slots",
    "TypeTiles",
    "bounded_pieces",
    "chunks",
    "count_scale",
    "grouped",
    "index",
    "order",
    "pieces",
    "placed",
    "type_tiles",
]

_CHUNKS = 192
"""Programs that keep a large GPU busy: somewhat more than it has multiprocessors."""


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


@dataclass(frozen=True)
class Slots:
    """Pieces that are not whole, by slot, and which hub each target is.

    Attributes
    ----------
    begin, end, target : Tensor, shape (slots,)
    number : Tensor, shape (targets,)
        -1 for a target that is whole.
    """

    begin: Tensor
    end: Tensor
    target: Tensor
    number: Tensor


@derived
def index(plan: Plan, name: str) -> Tensor:
    """Target row of every source row of a map, in 32 bits where that is enough."""
    return narrow(plan.narrow_index(name), plan.counts.rows(MAPS[name].target))


def order(plan: Plan, name: str) -> Tensor | None:
    """Source rows of a map grouped by target; None where they stand so already."""
    return None if plan.segments(name).order is None else _order(plan, name)


@derived
def _order(plan: Plan, name: str) -> Tensor:
    found = plan.segments(name).order
    assert found is not None
    return narrow(found, plan.counts.rows(MAPS[name].source))


@derived
def grouped(plan: Plan, rows: str, name: str) -> Tensor:
    """Target of ``rows`` for each source row, in the grouped order of ``name``."""
    found = order(plan, name)
    return index(plan, rows) if found is None else index(plan, rows).index_select(0, found)


@derived
def placed(plan: Plan, first: str, second: str) -> Tensor:
    """Place in the grouped order of ``first`` for each place in that of ``second``.

    Parameters
    ----------
    plan : Plan
    first, second : str
        Maps with one source.
    """
    rows = plan.counts.rows(MAPS[first].source)
    place = torch.arange(rows, device=plan.device)
    before, after = order(plan, first), order(plan, second)
    if before is not None:
        place = torch.empty_like(place).scatter_(0, before.long(), place)
    return narrow(place if after is None else place[after], rows)


@derived
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
    rows = index(plan, through) if order is None else grouped(plan, through, order)
    return plan.inverse_count(counted, dtype).index_select(0, rows)


@dataclass(frozen=True)
class _Runs:
    """Segments in runs of at most ``step`` rows.

    Attributes
    ----------
    segment, begin, end : Tensor, int64, shape (count,)
        A run beyond the last is an empty one of the last segment.
    number : Tensor, int64, shape (count,)
        Number of a run in its segment.
    runs : Tensor, int64, shape (segments,)
    first : Tensor, int64, shape (segments + 1,)
        The first run of each segment, and how many there are.
    """

    segment: Tensor
    begin: Tensor
    end: Tensor
    number: Tensor
    runs: Tensor
    first: Tensor


def _runs(bounds: Tensor, runs: Tensor, step: int, count: int | None) -> _Runs:
    """The given number of runs of each segment; ``count`` of them, or as many as there are."""
    first = torch.zeros_like(bounds)
    torch.cumsum(runs, 0, out=first[1:])
    if count is None:
        count = int(first[-1])
    place = torch.arange(count, device=bounds.device)
    segment = torch.searchsorted(first[1:], place, right=True).clamp_(max=runs.shape[0] - 1)
    number = place - first[segment]
    stop = bounds[segment + 1]
    begin = torch.minimum(bounds[segment] + number * step, stop)
    return _Runs(segment, begin, torch.minimum(begin + step, stop), number, runs, first)


@derived
def type_tiles(plan: Plan, name: str | None, space: str, step: int) -> TypeTiles:
    """The rows of ``space`` by type, in runs of at most ``step``.

    Parameters
    ----------
    plan : Plan
    name : str or None
        Map to the types; None where all rows are of one.
    space : str
    step : int

    Returns
    -------
    TypeTiles
        With one run for each type more than there can be: the last ones may be empty.
    """
    rows = plan.counts.rows(Space(space))
    types = 1 if name is None else plan.counts.rows(MAPS[name].target)
    kernels = plan.kernels()
    if kernels is not None and 0 < rows < 1 << 31 and 0 < types <= kernels.MAX_TYPES:
        bounds = (
            torch.arange(0, rows + 1, rows, device=plan.device)
            if name is None
            else plan.segments(name).bounds
        )
        return TypeTiles(*kernels.tiles(bounds, rows, step))
    if name is None:
        begin = torch.arange(0, rows, step, device=plan.device)
        kind, end = torch.zeros_like(begin), (begin + step).clamp_(max=rows)
        first = torch.arange(0, 2, device=plan.device) * begin.shape[0]
    else:
        bounds = plan.segments(name).bounds
        counts = bounds[1:] - bounds[:-1]
        most = counts.shape[0] + rows // step if rows else 0
        made = _runs(bounds, (counts + (step - 1)) // step, step, most)
        kind, begin, end, first = made.segment, made.begin, made.end, made.first
    count = int(begin.shape[0])
    return TypeTiles(
        count, narrow(kind, rows), narrow(begin, rows + 1), narrow(end, rows + 1),
        narrow(first, count + 1),
    )  # fmt: skip


@derived
def chunks(plan: Plan, name: str | None, space: str, step: int, most: int) -> TypeTiles:
    """The rows of ``space`` by type, in runs of a multiple of ``step``.

    Each run leaves a sum of outer products in memory. More runs than the machine has room for
    cost bytes, fewer leave it idle.

    Parameters
    ----------
    plan : Plan
    name : str or None
        Map to the types; None where all rows are of one.
    space : str
    step : int
    most : int
        Of the multiple.

    Returns
    -------
    TypeTiles
        Of about ``_CHUNKS`` runs beside one for each type, or of the longest.
    """
    steps = plan.counts.rows(Space(space)) / (_CHUNKS * step)
    return type_tiles(plan, name, space, step * min(max(round(steps), 1), most))


@derived
def pieces(plan: Plan, name: str, split: int) -> Pieces:
    """The targets of a map, in pieces of at most ``split`` source rows.

    Parameters
    ----------
    plan : Plan
    name : str
    split : int

    Returns
    -------
    Pieces
        Longest first. Of a plan of a sampled graph: targets in their order, and sizes are upper
        bounds: pieces beyond the true number are empty, and kept where nothing reads; hubs beyond
        it have no target.
    """
    if plan.sampled and plan.counts.rows(MAPS[name].target):
        return bounded_pieces(plan, name, split)[0]
    rows, targets = (plan.counts.rows(space) for space in (MAPS[name].source, MAPS[name].target))
    bounds = plan.segments(name).bounds
    counts = (bounds[1:] - bounds[:-1]).clamp_(min=1)
    made = _runs(bounds, (counts + (split - 1)) // split, split, None)
    kept, slot = _slots(made)
    hub = torch.nonzero(made.runs > 1)[:, 0]
    longest = stable_order(split - (made.end - made.begin), split + 1)
    slots = int(kept[-1])
    return Pieces(
        count=int(longest.shape[0]),
        begin=narrow(made.begin[longest], rows + 1),
        end=narrow(made.end[longest], rows + 1),
        target=narrow(made.segment[longest], targets),
        slot=narrow(slot[longest], slots + 1),
        slots=slots,
        hubs=int(hub.shape[0]),
        hub_begin=narrow(kept[hub], slots + 1),
        hub_end=narrow(kept[hub] + made.runs[hub], slots + 1),
        hub_target=narrow(hub, targets),
    )


def _slots(made: _Runs) -> tuple[Tensor, Tensor]:
    """The first slot of each segment of several runs, and the slot of each run or -1."""
    cut = made.runs > 1
    kept = torch.zeros_like(made.first)
    torch.cumsum(torch.where(cut, made.runs, 0), 0, out=kept[1:])
    return kept, torch.where(cut[made.segment], kept[made.segment] + made.number, -1)


@derived
def bounded_pieces(plan: Plan, name: str, split: int) -> tuple[Pieces, Slots]:
    """What ``pieces`` gives of a sampled graph, by place and by slot."""
    rows, targets = (plan.counts.rows(space) for space in (MAPS[name].source, MAPS[name].target))
    bounds = plan.segments(name).bounds
    kernels = plan.kernels()
    if kernels is not None and max(rows, targets) + rows // split < 1 << 31:
        (count, slots, hubs), arrays = kernels.pieces(bounds, rows, split)
    else:
        (count, slots, hubs), arrays = _bounded_pieces(bounds, rows, split)
    begin, end, target, slot, hub_begin, hub_end, hub_target, *by_slot = arrays
    made = Pieces(
        count, begin, end, target, slot, slots, hubs, hub_begin, hub_end, hub_target
    )  # fmt: skip
    return made, Slots(*by_slot)


def _bounded_pieces(
    bounds: Tensor, rows: int, split: int
) -> tuple[tuple[int, int, int], list[Tensor]]:
    """What ``plan_kernels.pieces`` does, by PyTorch."""
    targets = int(bounds.shape[0]) - 1
    further = max(rows - 1, 0) // split
    hubs = min(rows // (split + 1), targets)
    count, slots = targets + further, further + hubs + 1
    counts = (bounds[1:] - bounds[:-1]).clamp_(min=1)
    made = _runs(bounds, (counts + (split - 1)) // split, split, count)
    kept, slot = _slots(made)
    there = made.number < made.runs[made.segment]
    slot = torch.where(there, slot, slots - 1)
    begin, end = torch.where(there, made.begin, 0), torch.where(there, made.end, 0)
    cut = made.runs > 1
    number = torch.cumsum(cut, 0)
    hub = torch.searchsorted(number, torch.arange(1, hubs + 1, device=bounds.device))
    known = hub < targets
    hub = hub.clamp_(max=targets - 1)
    places = torch.where(slot < 0, slots, slot)
    by_slot = [
        torch.zeros(slots + 1, dtype=torch.int64, device=bounds.device).scatter_(
            0, places, torch.where(there, values, 0)
        )[:slots]
        for values in (begin, end, made.segment)
    ]
    arrays = [
        begin, end, made.segment, slot,
        torch.where(known, kept[hub], 0), torch.where(known, kept[hub] + made.runs[hub], 0),
        torch.where(known, hub, -1), *by_slot, torch.where(cut, number - 1, -1),
    ]  # fmt: skip
    return (count, slots, hubs), [narrow(each, count + slots) for each in arrays]
