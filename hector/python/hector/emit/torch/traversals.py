# SPDX-License-Identifier: Apache-2.0
"""The traversal template on PyTorch: segment sums, maxima and softmax in a fixed order."""

from __future__ import annotations

import functools
import math
import warnings

import torch
from torch import Tensor

from hector.ir.types import MAPS
from hector.plan import Plan

__all__ = [
    "gather_dot",
    "gather_sum",
    "segment_lse",
    "segment_max",
    "segment_softmax",
    "segment_weights",
]

# Edges whose rows are held at a time where two gathered operands meet.
CHUNK_BYTES = 1 << 20


def gather_sum(
    plan: Plan, x: Tensor, scale: Tensor | None = None, *, map: str, rows: str | None = None
) -> Tensor:
    """Sums the rows of ``x`` (read through ``rows``, times ``scale``) over each target of ``map``.

    Parameters
    ----------
    plan : Plan
    x : Tensor, shape (.., *features)
    scale : Tensor or None, shape (source rows of ``map``, ..), last extent 1
    map, rows : str
        Map names.

    Returns
    -------
    Tensor, shape (targets, *features)
        Accumulated in fp32 for bf16 and fp16.
    """
    targets = plan.counts.rows(MAPS[map].target)
    out_shape = (targets, *x.shape[1:])
    index, segments = plan.grouped_index(rows, map), plan.segments(map)
    if index.numel() == 0 or x.numel() == 0 or targets == 0:
        return x.new_zeros(out_shape)
    dtype = x.dtype
    if dtype in (torch.bfloat16, torch.float16):
        x, scale = x.float(), None if scale is None else scale.float()
    if scale is not None and segments.order is not None:
        scale = scale.index_select(0, segments.order)
    if x.dtype == torch.float32 and not x.is_cuda:
        out = _bags(x, scale, index, segments.bounds)
    else:
        read = x.index_select(0, index)
        out = torch.segment_reduce(
            read if scale is None else read * scale,
            "sum", offsets=segments.bounds, axis=0, unsafe=True, initial=0,
        )  # fmt: skip
    return out.reshape(out_shape).to(dtype)


def _bags(x: Tensor, scale: Tensor | None, index: Tensor, bounds: Tensor) -> Tensor:
    """One weighted embedding bag for each scale; reads every row once and stores sums only."""
    heads = 1 if scale is None else scale[0].numel()
    flat = x.reshape(x.shape[0], -1)
    if heads == 1:
        weights = None if scale is None else scale.reshape(-1)
        return _bag(flat, weights, index, bounds)
    lead = math.prod(x.shape[1:-1])
    scales = scale.expand(-1, *x.shape[1:-1], 1).reshape(-1, lead)  # type: ignore[union-attr]
    tables = flat.reshape(x.shape[0] * lead, -1)
    bags = [
        _bag(tables, scales[:, head].contiguous(), index * lead + head, bounds)
        for head in range(lead)
    ]
    return torch.stack(bags, 1)


def _bag(table: Tensor, weights: Tensor | None, index: Tensor, bounds: Tensor) -> Tensor:
    bag: Tensor = torch.embedding_bag(
        table.contiguous(), index, bounds, False, 0, False, weights, True
    )[0]
    return bag


@functools.cache
def _quietly() -> None:
    """Let PyTorch say here, once and unheard, that its sparse tensors are in beta."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        one = torch.zeros(1, dtype=torch.int64, device="cpu")
        torch.sparse_csr_tensor(torch.tensor([0, 1], device="cpu"), one, one.float(), (1, 1))


def _sampled(plan: Plan, targets: Tensor, others: Tensor, rows: str | None) -> Tensor:
    """Inner products for each edge of its target's row and another: those of one sparse matrix."""
    bounds = plan.segments("edge.dst").bounds
    edges = plan.counts.edge
    out = targets.new_zeros((edges, *targets.shape[1:-1]))
    if out.numel() == 0 or targets.shape[-1] == 0:
        return out
    _quietly()
    columns = torch.arange(edges, device="cpu") if rows is None else plan.index(rows)
    columns = columns.to(bounds.dtype)
    lead = math.prod(targets.shape[1:-1])
    left = targets.reshape(targets.shape[0], lead, targets.shape[-1])
    right = others.reshape(others.shape[0], lead, others.shape[-1])
    found = out.view(edges, lead)
    size = (left.shape[0], right.shape[0])
    for head in range(lead):
        places = torch.sparse_csr_tensor(
            bounds, columns, out.new_zeros(edges), size, device=out.device, check_invariants=False
        )
        both = left[:, head].contiguous(), right[:, head].contiguous().mT
        found[:, head] = torch.sparse.sampled_addmm(places, *both, beta=0).values()
    return out


def gather_dot(
    plan: Plan, x: Tensor, y: Tensor, *, rows: str | None = None, rows_y: str | None = None
) -> Tensor:
    """Inner products over the last axis of rows of ``x`` and ``y``, each read through a map.

    Parameters
    ----------
    plan : Plan
    x, y : Tensor, shape (.., *lead, k)
    rows, rows_y : str or None

    Returns
    -------
    Tensor, shape (rows, *lead)
    """
    # A sparse matrix of PyTorch has no more entries than places.
    fits = plan.counts.edge <= x.shape[0] * y.shape[0] and x.dtype == y.dtype
    if fits and not x.is_cuda and x.dtype in (torch.float32, torch.float64):
        if rows_y == "edge.dst":
            return _sampled(plan, y, x, rows)
        if rows == "edge.dst":
            return _sampled(plan, x, y, rows_y)
    ix = None if rows is None else plan.index(rows)
    iy = None if rows_y is None else plan.index(rows_y)
    total = x.shape[0] if ix is None else int(ix.shape[0])
    out = x.new_empty((total, *x.shape[1:-1]))
    if out.numel() == 0 or x.shape[-1] == 0:
        return out.zero_()
    step = max(CHUNK_BYTES // (x[0].numel() * x.element_size()), 64)
    for start in range(0, total, step):
        piece = slice(start, start + step)
        left = x[piece] if ix is None else x.index_select(0, ix[piece])
        right = y[piece] if iy is None else y.index_select(0, iy[piece])
        torch.sum(left * right, -1, out=out[piece])
    return out


def _grouped(plan: Plan, x: Tensor, map: str) -> Tensor:
    order = plan.segments(map).order
    return x if order is None else x.index_select(0, order)


def _maximum(plan: Plan, grouped: Tensor, map: str) -> Tensor:
    """Segment maxima of grouped rows, 0 for an empty segment."""
    bounds = plan.segments(map).bounds
    targets = plan.counts.rows(MAPS[map].target)
    if grouped.numel() == 0 or targets == 0:
        return grouped.new_zeros((targets, *grouped.shape[1:]))
    flat = grouped.reshape(grouped.shape[0], -1)
    high = torch.segment_reduce(flat, "max", offsets=bounds, axis=0, unsafe=True)
    high = high.masked_fill((bounds[1:] == bounds[:-1])[:, None], 0)
    return high.reshape(targets, *grouped.shape[1:])


def segment_max(plan: Plan, x: Tensor, *, map: str) -> Tensor:
    """Maximum of the rows of ``x`` over each target of ``map``; 0 where there is none."""
    return _maximum(plan, _grouped(plan, x, map), map)


def segment_softmax(plan: Plan, x: Tensor, *, map: str) -> Tensor:
    """Softmax of the rows of ``x`` that share a target of ``map``, maximum subtracted."""
    target = plan.index(map)
    dtype = x.dtype
    if dtype in (torch.bfloat16, torch.float16):
        x = x.float()
    high = _maximum(plan, _grouped(plan, x, map), map)
    raised = x.sub(high.index_select(0, target)).exp_()
    total = gather_sum(plan, raised, map=map)
    return raised.div_(total.index_select(0, target)).to(dtype)


def segment_lse(plan: Plan, x: Tensor, *, map: str) -> Tensor:
    """Logarithm of the sum of exponentials over each target of ``map``, at least in fp32."""
    target = plan.index(map)
    if x.dtype in (torch.bfloat16, torch.float16):
        x = x.float()
    high = _maximum(plan, _grouped(plan, x, map), map)
    raised = x.sub(high.index_select(0, target)).exp_()
    return gather_sum(plan, raised, map=map).log_().add_(high)


def segment_weights(plan: Plan, x: Tensor, lse: Tensor, *, map: str) -> Tensor:
    """Softmax of ``x`` over each target of ``map``, from ``segment_lse`` of it."""
    return (x - lse.index_select(0, plan.index(map))).exp_().to(x.dtype)
