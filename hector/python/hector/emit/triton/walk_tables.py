# SPDX-License-Identifier: Apache-2.0
"""What kernels that walk and multiply read of a plan beside its tables: targets by type and length.

A target with more rows than a limit is walked beforehand, in pieces, and looked up by number.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from hector.emit.triton.tables import bounded_pieces, order, pieces
from hector.ir.types import MAPS
from hector.orders import narrow, stable_order
from hector.plan import Plan, derived

__all__ = ["Hubs", "bounds", "by_length", "hubs", "whole"]


@dataclass(frozen=True)
class Hubs:
    """The targets of a map that are walked in pieces.

    Attributes
    ----------
    count, slots : int
        Targets, and pieces of them.
    begin, end, target : Tensor, shape (slots,)
        Places of each piece in the grouped order, and its target.
    first, last : Tensor, shape (count,)
        Slots of each target.
    number : Tensor, shape (targets of the map,)
        Which of these a target is; -1 for the others.
    """

    count: int
    slots: int
    begin: Tensor
    end: Tensor
    target: Tensor
    first: Tensor
    last: Tensor
    number: Tensor


def _put(values: Tensor, places: Tensor, size: int, rest: int) -> Tensor:
    """Values at their places, ``rest`` elsewhere; negative places are left out."""
    made = torch.full((size + 1,), rest, dtype=values.dtype, device=values.device)
    return made.scatter_(0, torch.where(places < 0, size, places).long(), values)[:size]


@derived
def hubs(plan: Plan, name: str, split: int) -> Hubs:
    """The targets of a map with more than ``split`` source rows, in pieces of at most as many.

    Parameters
    ----------
    plan : Plan
    name : str
    split : int
    """
    found, targets = pieces(plan, name, split), plan.counts.rows(MAPS[name].target)
    if plan.sampled and targets:
        slots = bounded_pieces(plan, name, split)[1]
        return Hubs(
            found.hubs, found.slots, slots.begin, slots.end, slots.target,
            found.hub_begin, found.hub_end, slots.number,
        )  # fmt: skip
    numbers = torch.arange(found.hubs, dtype=torch.int32, device=plan.device)
    return Hubs(
        found.hubs,
        found.slots,
        _put(found.begin, found.slot, found.slots, 0),
        _put(found.end, found.slot, found.slots, 0),
        _put(found.target, found.slot, found.slots, 0),
        found.hub_begin,
        found.hub_end,
        _put(numbers, found.hub_target, targets, -1),
    )


@derived
def bounds(plan: Plan, name: str) -> Tensor:
    """Places of the grouped rows of each target of a map, shape (targets + 1,)."""
    return narrow(plan.segments(name).bounds, plan.counts.rows(MAPS[name].source) + 1)


@derived
def by_length(plan: Plan, name: str, kind: str, split: int) -> Tensor:
    """The targets of ``name`` by type, in each type the longest first and those cut last.

    Of a plan of a sampled graph, by type only.

    Parameters
    ----------
    plan : Plan
    name, kind : str
        The map that is walked, and the one from its targets to their types.
    split : int
    """
    if plan.sampled:
        rows = plan.counts.rows(MAPS[kind].source)
        known = order(plan, kind)
        return torch.arange(rows, dtype=torch.int32, device=plan.device) if known is None else known
    found = plan.segments(name).bounds
    counts = found[1:] - found[:-1]
    counts = torch.where(counts > split, 0, counts)
    key = plan.narrow_index(kind).long() * (split + 1) + (split - counts)
    longest = stable_order(key, plan.counts.rows(MAPS[kind].target) * (split + 1))
    return narrow(longest, plan.counts.rows(MAPS[kind].source))


def whole(first: Tensor) -> Tensor:
    """Bounds of the runs of all types together, from those of each."""
    return first[:: max(first.shape[0] - 1, 1)].contiguous()
