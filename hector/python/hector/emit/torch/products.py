# SPDX-License-Identifier: Apache-2.0
"""The product template on PyTorch: typed products and their weight gradients, without E x d x d.

Rows are read through a map in chunks, a relation after another, so neither gathered rows nor
gathered matrices are ever stored for all edges.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from hector.plan import Plan

__all__ = ["linear", "outer"]

# Rows gathered at a time: small enough to stay in a core's cache until the product reads them.
CHUNK_BYTES = 1 << 20


def _chunk(*operands: Tensor) -> int:
    row = max(operand[0].numel() * operand.element_size() for operand in operands)
    return max(CHUNK_BYTES // max(row, 1), 64)


def _pieces(bounds: list[int], rows: int) -> Iterator[tuple[int, int, int]]:
    """(type, start, stop) of every non-empty piece of every segment."""
    for kind in range(len(bounds) - 1):
        for start in range(bounds[kind], bounds[kind + 1], rows):
            yield kind, start, min(start + rows, bounds[kind + 1])


def _read(x: Tensor, index: Tensor | None, start: int, stop: int) -> Tensor:
    rows = x[start:stop] if index is None else x.index_select(0, index[start:stop])
    return _matrix(rows)


def _matrix(x: Tensor) -> Tensor:
    """All that stands before the last axis as rows; -1 is no size where another one is 0."""
    return x.reshape(math.prod(x.shape[:-1]), x.shape[-1])


def _matrices(x: Tensor) -> Tensor:
    """One matrix for each row of ``x``."""
    return x.reshape(x.shape[0], math.prod(x.shape[1:-1]), x.shape[-1])


def _index(plan: Plan, rows: str | None, type_: str) -> Tensor | None:
    """Where to read the grouped rows of ``type_``; None where they stand in order already."""
    if rows is None and plan.segments(type_).order is None:
        return None
    return plan.grouped_index(rows, type_)


def linear(
    plan: Plan,
    x: Tensor,
    w: Tensor,
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
            return x @ w
        return torch.bmm(_matrices(x), w).reshape(*x.shape[:-1], w.shape[-1])
    bounds, order = plan.host_bounds(type), plan.segments(type).order
    index = _index(plan, rows, type)
    out = x.new_empty((bounds[-1], *x.shape[1:-1], w.shape[-1]))
    if out.numel() == 0 or x.numel() == 0:
        return out.zero_()
    for kind, start, stop in _pieces(bounds, _chunk(x, out)):
        piece = _read(x, index, start, stop)
        if order is None:
            torch.mm(piece, w[kind], out=out[start:stop].view(-1, w.shape[-1]))
        else:
            product = torch.mm(piece, w[kind]).view(-1, *out.shape[1:])
            out.index_copy_(0, order[start:stop], product)
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
            for kind, start, stop in _pieces(bounds, _chunk(x, y)):
                left, right = _read(x, ix, start, stop), _read(y, iy, start, stop)
                out[kind].addmm_(left.mT, right)
        return out
    x = x if rows is None else x.index_select(0, plan.index(rows))
    y = y if rows_y is None else y.index_select(0, plan.index(rows_y))
    if rows_summed:
        return _matrix(x).mT @ _matrix(y)
    return torch.bmm(_matrices(x).mT, _matrices(y))
