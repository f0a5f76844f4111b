# SPDX-License-Identifier: Apache-2.0
"""The product template on PyTorch: typed products and their weight gradients, without E x d x d.

Rows are read through a map in chunks, in the order of relations, so neither gathered rows nor
gathered matrices are ever stored for all edges.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from hector.plan import Plan, Segments, derived

__all__ = ["linear", "outer"]

# Rows gathered at a time: small enough to stay in a core's cache until the product reads them.
CHUNK_BYTES = 1 << 20


def _chunk(*operands: Tensor) -> int:
    row = max(operand[0].numel() * operand.element_size() for operand in operands)
    return max(CHUNK_BYTES // max(row, 1), 64)


Pieces = list[tuple[int, int, int]]


def _chunks(bounds: list[int], rows: int) -> Iterator[tuple[int, int, Pieces]]:
    """Runs of at most so many rows, with the (type, start, stop) of each type's piece of a run."""
    kind = 0
    for start in range(0, bounds[-1], rows):
        stop = min(start + rows, bounds[-1])
        pieces: Pieces = []
        at = start
        while at < stop:
            while bounds[kind + 1] <= at:
                kind += 1
            end = min(bounds[kind + 1], stop)
            pieces.append((kind, at - start, end - start))
            at = end
        yield start, stop, pieces


def _read(x: Tensor, index: Tensor | None, start: int, stop: int) -> Tensor:
    return x[start:stop] if index is None else x.index_select(0, index[start:stop])


def _matrix(x: Tensor) -> Tensor:
    """All that stands before the last axis as rows; -1 is no size where another one is 0."""
    return x.reshape(math.prod(x.shape[:-1]), x.shape[-1])


def _matrices(x: Tensor) -> Tensor:
    """One matrix for each row of ``x``."""
    return x.reshape(x.shape[0], math.prod(x.shape[1:-1]), x.shape[-1])


@derived
def _segments(plan: Plan, type_: str) -> Segments:
    """``plan.segments``, without an order where it changes nothing: seen for free on the CPU."""
    found = plan.segments(type_)
    if found.order is None or plan.device.type != "cpu":
        return found
    order = found.order
    if torch.equal(order, torch.arange(order.shape[0], dtype=order.dtype, device="cpu")):
        return Segments(None, found.bounds)
    return found


def _index(plan: Plan, rows: str | None, type_: str) -> Tensor | None:
    """Where to read the grouped rows of ``type_``; None where they stand in order already."""
    if rows is None and _segments(plan, type_).order is None:
        return None
    return plan.grouped_index(rows, type_)


def linear(
    plan: Plan,
    x: Tensor,
    w: Tensor,
    bias: Tensor | None = None,
    *,
    type: str | None = None,
    rows: str | None = None,
    transpose: bool = False,
) -> Tensor:
    """Each row of ``x`` (read through ``rows``) times the matrix that ``type`` selects.

    Parameters
    ----------
    plan : Plan
    x : Tensor, shape (.., k)
    w : Tensor, shape (types, k, n), (rows, k, n) or (k, n)
    bias : Tensor, shape (types, n) or (n,), or None
        Added to the products of a type, or to all; with ``x`` of shape (.., k) only.
    type, rows : str or None
        Map names.
    transpose : bool
        Whether to use the matrices' transposes.

    Returns
    -------
    Tensor, shape (.., n)
    """
    w = w.mT if transpose else w
    if type is None:
        x = x if rows is None else x.index_select(0, plan.index(rows))
        if w.dim() == 2:
            return x @ w if bias is None else torch.addmm(bias, x, w)
        return torch.bmm(_matrices(x), w).reshape(*x.shape[:-1], w.shape[-1])
    bounds, order = plan.host_bounds(type), _segments(plan, type).order
    index = _index(plan, rows, type)
    out = x.new_empty((bounds[-1], *x.shape[1:-1], w.shape[-1]))
    if out.numel() == 0 or x.numel() == 0:
        return out.zero_() if bias is None else out.copy_(bias.index_select(0, plan.index(type)))
    # Nothing is gathered where rows stand in order: there a type's rows are one piece.
    count = bounds[-1] if index is None and order is None else _chunk(x, out)
    for start, stop, pieces in _chunks(bounds, count):
        read = _read(x, index, start, stop)
        made = out[start:stop] if order is None else torch.empty_like(out[start:stop])
        for kind, first, last in pieces:
            left, result = _matrix(read[first:last]), made[first:last].view(-1, w.shape[-1])
            if bias is None:
                torch.mm(left, w[kind], out=result)
            else:
                torch.addmm(bias[kind], left, w[kind], out=result)
        if order is not None:
            out.index_copy_(0, order[start:stop], made)
    return out


def outer(
    plan: Plan,
    x: Tensor,
    y: Tensor,
    *,
    type: str | None = None,
    rows: str | None = None,
    rows_y: str | None = None,
    rows_summed: bool = False,
) -> Tensor:
    """Outer products of the rows of ``x`` and ``y``, summed over each type's rows in fixed order.

    Parameters
    ----------
    plan : Plan
    x : Tensor, shape (.., k)
    y : Tensor, shape (.., n)
    type, rows, rows_y : str or None
        Map names: what selects the sum, and how ``x`` and ``y`` are read.
    rows_summed : bool
        Without ``type``: one sum over everything before the last axis, else one for each row.

    Returns
    -------
    Tensor, shape (types, k, n), (k, n) or (rows, k, n)
    """
    k, n = x.shape[-1], y.shape[-1]
    if type is not None:
        bounds = plan.host_bounds(type)
        ix, iy = _index(plan, rows, type), _index(plan, rows_y, type)
        out = x.new_zeros((len(bounds) - 1, k, n))
        if x.numel() and y.numel():
            count = bounds[-1] if ix is None and iy is None else _chunk(x, y)
            for start, stop, pieces in _chunks(bounds, count):
                left, right = _read(x, ix, start, stop), _read(y, iy, start, stop)
                for kind, first, last in pieces:
                    out[kind].addmm_(_matrix(left[first:last]).mT, _matrix(right[first:last]))
        return out
    x = x if rows is None else x.index_select(0, plan.index(rows))
    y = y if rows_y is None else y.index_select(0, plan.index(rows_y))
    if rows_summed:
        return _matrix(x).mT @ _matrix(y)
    return torch.bmm(_matrices(x).mT, _matrices(y))
