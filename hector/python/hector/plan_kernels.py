# SPDX-License-Identifier: Apache-2.0
"""Triton kernels that build plans of sampled graphs in few launches; twins of what PyTorch does.

A mini-batch's layer takes a millisecond, and so do a hundred small operators. Nothing here is
compiled anew for other sizes. Sizes must be less than 2^31.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"
from __future__ import annotations

import contextlib
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

__all__ = ["ends", "pairs", "pieces", "tiles"]

_BLOCK = 256
_ALIGNED = 4
"""Elements of 32 bits: parts of a buffer start at multiples, as kernels' pointers should."""

_started: dict[object, Any] = {}


def _kernel(function: Any) -> Any:
    """A kernel that is compiled for its constants (in capitals) and no other value."""
    names = function.__code__.co_varnames[: function.__code__.co_argcount]
    plain = [name for name in names if not name.isupper()]
    return triton.jit(do_not_specialize=plain)(function)


def _start(kernel: Any, programs: int, *args: Any, constants: tuple[int, ...] = ()) -> None:
    """Launch a kernel; from the second time on without looking at every argument."""
    device = args[0].device
    away = device.type == "cuda" and device.index != torch.cuda.current_device()
    with torch.cuda.device(device) if away else contextlib.nullcontext():
        kinds = (arg.dtype if isinstance(arg, Tensor) else None for arg in args)
        key = (id(kernel), device, constants, *kinds)
        found = _started.get(key)
        if found is None:
            made = kernel[(programs,)](*args, *constants, num_warps=4)
            if device.type == "cuda":
                from hector.emit.triton.launching import _launcher

                _started[key] = _launcher(made)
            return
        run, head = found
        stream = torch.cuda.current_stream(device).cuda_stream
        values = [arg.data_ptr() if isinstance(arg, Tensor) else arg for arg in args]
        run(programs, 1, 1, stream, *head[4:], *values, *constants)


def _parts(device: torch.device, *sizes: int) -> list[Tensor]:
    """Arrays of 32 bits in one piece of memory, some elements longer than asked for."""
    padded = [-(-size // _ALIGNED) * _ALIGNED for size in sizes]
    memory = torch.empty(sum(padded), dtype=torch.int32, device=device)
    return list(memory.split(padded))


@_kernel
def _ends(
    src,
    dst,
    rel,
    order,
    nodes,
    relations,
    edges,
    src_to,
    dst_to,
    rel_to,
    key,
    bad,
    BLOCK: tl.constexpr,
):
    """Ends and relations in the given order, in 32 bits, and the key of the source's pair."""
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    live = place < edges
    edge = tl.load(order + place, mask=live, other=0)
    s = tl.load(src + edge, mask=live, other=0).to(tl.int64)
    d = tl.load(dst + edge, mask=live, other=0).to(tl.int64)
    r = tl.load(rel + edge, mask=live, other=0).to(tl.int64)
    tl.store(src_to + place, s.to(tl.int32), mask=live)
    tl.store(dst_to + place, d.to(tl.int32), mask=live)
    tl.store(rel_to + place, r.to(tl.int32), mask=live)
    tl.store(key + place, (r * nodes + s).to(key.dtype.element_ty), mask=live)
    wrong = (s < 0) | (s >= nodes) | (d < 0) | (d >= nodes) | (r < 0) | (r >= relations)
    # All that store, store the same.
    tl.store(bad + tl.zeros([BLOCK], tl.int32), tl.full([BLOCK], 1, tl.int64), mask=live & wrong)


@_kernel
def _fresh(key, rel, dst, by_source, by_relation, edges, out, BLOCK: tl.constexpr):
    """Where a new pair begins: 1 for the source's, 2^32 for the destination's."""
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    live = place < edges
    later = live & (place > 0)
    one = tl.load(by_source + place, mask=later, other=0)
    before = tl.load(by_source + place - 1, mask=later, other=0)
    source = tl.load(key + one) != tl.load(key + before)
    one = tl.load(by_relation + place, mask=later, other=0)
    before = tl.load(by_relation + place - 1, mask=later, other=0)
    target = tl.load(rel + one) != tl.load(rel + before)
    target = target | (tl.load(dst + one) != tl.load(dst + before))
    found = source.to(tl.int64) + (target.to(tl.int64) << 32)
    tl.store(out + place, tl.where(later, found, 0), mask=live)


@_kernel
def _number(
    upto,
    shift,
    order,
    rel,
    node,
    edges,
    pair,
    pair_rel,
    pair_node,
    starts,
    last,
    BLOCK: tl.constexpr,
):
    """Pair of each edge, and of each pair its relation, node and first place."""
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    live = place < edges
    edge = tl.load(order + place, mask=live, other=0)
    number = (tl.load(upto + place, mask=live, other=0) >> shift) & 0xFFFFFFFF
    before = (tl.load(upto + place - 1, mask=live & (place > 0), other=0) >> shift) & 0xFFFFFFFF
    tl.store(pair + edge, number.to(tl.int32), mask=live)
    first = live & ((place == 0) | (number != before))
    tl.store(pair_rel + number, tl.load(rel + edge, mask=first, other=0), mask=first)
    tl.store(pair_node + number, tl.load(node + edge, mask=first, other=0), mask=first)
    tl.store(starts + number, place.to(tl.int64), mask=first)
    final = live & (place == edges - 1)
    tl.store(starts + number + 1, place.to(tl.int64) + 1, mask=final)
    tl.store(last + tl.zeros([BLOCK], tl.int32), number, mask=final)


def ends(
    src: Tensor, dst: Tensor, rel: Tensor, order: Tensor, nodes: int, relations: int, bad: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Ends, relations and keys of source pairs, in an order.

    Parameters
    ----------
    src, dst, rel : Tensor, int32 or int64, shape (E,), E > 0
    order : Tensor, int64, shape (E,)
    nodes, relations : int
    bad : Tensor, int64, shape (1,)
        Set to 1 where an id is out of range.

    Returns
    -------
    src, dst, rel : Tensor, int32, shape (E,)
    key : Tensor, int32 or int64, shape (E,)
        ``rel * nodes + src``.
    """
    edges, device = int(order.shape[0]), order.device
    s, d, r = (torch.empty(edges, dtype=torch.int32, device=device) for _ in range(3))
    wide = torch.int32 if nodes * relations < 1 << 31 else torch.int64
    key = torch.empty(edges, dtype=wide, device=device)
    src, dst, rel = src.contiguous(), dst.contiguous(), rel.contiguous()
    args = src, dst, rel, order, nodes, relations, edges, s, d, r, key, bad
    _start(_ends, -(-edges // _BLOCK), *args, constants=(_BLOCK,))
    return s, d, r, key


def pairs(
    ids: tuple[Tensor, Tensor, Tensor, Tensor],
    by_source: Tensor,
    by_relation: Tensor,
    last: Tensor,
) -> list[tuple[Tensor, Tensor, Tensor, Tensor]]:
    """Unique (relation, node) pairs at both ends of the edges.

    Parameters
    ----------
    ids : tuple of Tensor
        What ``ends`` gives.
    by_source, by_relation : Tensor, int64, shape (E,)
        Edges by their keys; and by relation, then destination.
    last : Tensor, int64, shape (2,)
        Set to the number of the last pair at either end.

    Returns
    -------
    list of (pair, relation, node, starts)
        At the source, at the destination: pair of each edge, int32; relation and node of each
        pair, int32, and bounds of its edges, int64, with room for a pair for each edge.
    """
    src, dst, rel, key = ids
    edges, device = int(rel.shape[0]), rel.device
    fresh = torch.empty(edges, dtype=torch.int64, device=device)
    programs = -(-edges // _BLOCK)
    args = key, rel, dst, by_source, by_relation, edges, fresh
    _start(_fresh, programs, *args, constants=(_BLOCK,))
    upto = torch.cumsum(fresh, 0)
    made: list[tuple[Tensor, Tensor, Tensor, Tensor]] = []
    for side, (order, node) in enumerate(((by_source, src), (by_relation, dst))):
        pair, kind, where = (torch.empty_like(rel) for _ in range(3))
        starts = torch.empty(edges + 1, dtype=torch.int64, device=device)
        out = pair, kind, where, starts, last[side:]
        rest = upto, 32 * side, order, rel, node, edges, *out
        _start(_number, programs, *rest, constants=(_BLOCK,))
        made.append((pair, kind, where, starts))
    return made


@_kernel
def _tiles(
    bounds, types, step, count, kind, begin, end, first, TYPES: tl.constexpr, BLOCK: tl.constexpr
):
    each = tl.arange(0, TYPES)
    known = each < types
    low = tl.load(bounds + each, mask=known, other=0)
    high = tl.load(bounds + each + 1, mask=known, other=0)
    upto = tl.cumsum(((high - low + step - 1) // step).to(tl.int32), 0)
    if tl.program_id(0) == 0:
        tl.store(first + each * 0, each * 0, mask=each == 0)
        tl.store(first + 1 + each, upto, mask=known)
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    passed = upto[None, :] <= place[:, None]
    segment = tl.sum((passed & known[None, :]).to(tl.int32), 1)
    there = segment < types
    segment = tl.minimum(segment, types - 1)
    number = place - tl.max(tl.where(passed, upto[None, :], 0), 1)
    live = place < count
    stop = tl.load(bounds + segment + 1, mask=live, other=0)
    start = tl.load(bounds + segment, mask=live, other=0) + number * step
    start = tl.where(there, tl.minimum(start, stop), stop)
    tl.store(kind + place, segment, mask=live)
    tl.store(begin + place, start.to(tl.int32), mask=live)
    tl.store(end + place, tl.minimum(start + step, stop).to(tl.int32), mask=live)


MAX_TYPES = 4096
"""Types that a program of ``tiles`` can hold at once."""


def tiles(bounds: Tensor, rows: int, step: int) -> tuple[int, Tensor, Tensor, Tensor, Tensor]:
    """Runs of at most ``step`` rows of one type; the last ones may be empty.

    Parameters
    ----------
    bounds : Tensor, int64, shape (types + 1,)
        For 1 to ``MAX_TYPES`` types.
    rows, step : int

    Returns
    -------
    count : int
    kind, begin, end : Tensor, int32, shape (count or some more,)
    first : Tensor, int32, shape (types + 1,)
    """
    types = int(bounds.shape[0]) - 1
    count = types + rows // step
    kind, begin, end, first = _parts(bounds.device, count, count, count, types + 1)
    wide = max(triton.next_power_of_2(types), 2)
    block = max(min(_BLOCK, 8192 // wide), 1)
    args = bounds, types, step, count, kind, begin, end, first
    _start(_tiles, -(-count // block), *args, constants=(wide, block))
    return count, kind, begin, end, first[: types + 1]


@_kernel
def _cuts(bounds, targets, split, out, BLOCK: tl.constexpr):
    """Pieces of each target beyond its first, and 2^32 where there is one."""
    target = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    live = target < targets
    low = tl.load(bounds + target, mask=live, other=0)
    high = tl.load(bounds + target + 1, mask=live, other=0)
    further = tl.maximum(high - low - 1, 0) // split
    tl.store(out + target, further + ((further > 0).to(tl.int64) << 32), mask=live)


@_kernel
def _pieces(
    bounds,
    upto,
    targets,
    split,
    count,
    hubs,
    slots,
    steps,
    begin,
    end,
    target,
    slot,
    hub_begin,
    hub_end,
    hub_target,
    slot_begin,
    slot_end,
    slot_target,
    hub_number,
    BLOCK: tl.constexpr,
):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    whole = tl.load(upto + targets - 1)
    pieces = targets + (whole & 0xFFFFFFFF)
    cut = (whole >> 32).to(tl.int32)
    there = place < pieces
    low = tl.zeros([BLOCK], tl.int32)
    high = low + targets - 1
    for _ in range(steps):  # the last target whose first piece is not behind this one
        middle = (low + high + 1) // 2
        before = tl.load(upto + middle - 1, mask=middle > 0, other=0) & 0xFFFFFFFF
        mine = middle + before <= place
        low = tl.where(mine, middle, low)
        high = tl.where(mine, high, middle - 1)
    before = tl.load(upto + low - 1, mask=low > 0, other=0)
    first = low + (before & 0xFFFFFFFF).to(tl.int32)
    hub = (before >> 32).to(tl.int32)
    number = place - first
    starts = tl.load(bounds + low)
    stops = tl.load(bounds + low + 1)
    further = (tl.maximum(stops - starts - 1, 0) // split).to(tl.int32)
    several = there & (further > 0)
    slot_first = first - low + hub
    at = slot_first + number
    start = tl.where(there, starts + number * split, 0)
    stop = tl.where(there, tl.minimum(starts + number * split + split, stops), 0)
    live = place < count
    tl.store(begin + place, start.to(tl.int32), mask=live)
    tl.store(end + place, stop.to(tl.int32), mask=live)
    tl.store(target + place, low, mask=live)
    tl.store(slot + place, tl.where(there, tl.where(several, at, -1), slots - 1), mask=live)
    tl.store(slot_begin + at, start.to(tl.int32), mask=several)
    tl.store(slot_end + at, stop.to(tl.int32), mask=several)
    tl.store(slot_target + at, low, mask=several)
    leads = there & (number == 0)
    tl.store(hub_number + low, tl.where(several, hub, -1), mask=leads)
    tl.store(hub_begin + hub, slot_first, mask=leads & several)
    tl.store(hub_end + hub, slot_first + further + 1, mask=leads & several)
    tl.store(hub_target + hub, low, mask=leads & several)
    nothing = tl.zeros([BLOCK], tl.int32)
    rest = (place >= cut) & (place < hubs)
    tl.store(hub_begin + place, nothing, mask=rest)
    tl.store(hub_end + place, nothing, mask=rest)
    tl.store(hub_target + place, nothing - 1, mask=rest)
    rest = (place >= cut + (whole & 0xFFFFFFFF)) & (place < slots)
    tl.store(slot_begin + place, nothing, mask=rest)
    tl.store(slot_end + place, nothing, mask=rest)
    tl.store(slot_target + place, nothing, mask=rest)


def pieces(bounds: Tensor, rows: int, split: int) -> tuple[tuple[int, int, int], list[Tensor]]:
    """Targets in pieces of at most ``split`` rows, in their order; sizes are upper bounds.

    Parameters
    ----------
    bounds : Tensor, int64, shape (targets + 1,)
        For a target or more.
    rows, split : int

    Returns
    -------
    (count, slots, hubs) : tuple of int
    arrays : list of Tensor, int32
        begin, end, target, slot of the pieces; hub_begin, hub_end, hub_target; begin, end and
        target of the slots; number of the hub that a target is, or -1. Some elements longer.
    """
    targets = int(bounds.shape[0]) - 1
    further = max(rows - 1, 0) // split
    hubs = min(rows // (split + 1), targets)
    count, slots = targets + further, further + hubs + 1
    cuts = torch.empty(targets, dtype=torch.int64, device=bounds.device)
    args: tuple[Any, ...] = (bounds, targets, split, cuts)
    _start(_cuts, -(-targets // _BLOCK), *args, constants=(_BLOCK,))
    upto = torch.cumsum(cuts, 0)
    arrays = _parts(bounds.device, *[count] * 4, *[hubs] * 3, *[slots] * 3, targets)
    args = bounds, upto, targets, split, count, hubs, slots, targets.bit_length(), *arrays
    _start(_pieces, -(-max(count, slots) // _BLOCK), *args, constants=(_BLOCK,))
    return (count, slots, hubs), arrays
