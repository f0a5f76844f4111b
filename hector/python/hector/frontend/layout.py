# SPDX-License-Identifier: Apache-2.0
"""Recording of what cuts, joins and renames dimensions, in terms of the forms in shapes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from hector.dtypes import NAMES
from hector.frontend.index import GraphIndex, RowCount
from hector.frontend.record import Call, Recorder
from hector.frontend.shapes import axis, broadcast_to, concat, getitem, permute, reshape
from hector.ir.types import Space

__all__ = ["LAYOUT"]


def _narrow(r: Recorder, x: Call, dim: int, start: int, length: int) -> Call:
    where = axis(r, x, dim)
    if not 0 <= start <= start + length <= x.shape[where]:
        raise IndexError(f"narrow({dim}, {start}, {length}) of a tensor of shape {x.shape}")
    return getitem(r, x, (slice(None),) * where + (slice(start, start + length),))


def _split(r: Recorder, x: Call, split_size: Any, dim: int = 0) -> tuple[Call, ...]:
    extent = x.shape[axis(r, x, dim)]
    if isinstance(split_size, int):
        if split_size < 1:
            raise ValueError(f"split of {x.shape} into pieces of {split_size}")
        starts = range(0, max(extent, 1), split_size)
        sizes = [min(split_size, extent - start) for start in starts]
    else:
        sizes = list(split_size)
    if sum(sizes) != extent or min(sizes, default=0) < 0:
        raise ValueError(f"split of {x.shape} along {dim} into {sizes}")
    starts_of = [sum(sizes[:i]) for i in range(len(sizes))]
    pairs = zip(starts_of, sizes, strict=True)
    return tuple(_narrow(r, x, dim, start, size) for start, size in pairs)


def _chunk(r: Recorder, x: Call, chunks: int, dim: int = 0) -> tuple[Call, ...]:
    extent = x.shape[axis(r, x, dim)]
    return _split(r, x, max(-(-extent // chunks), 1), dim)


def _unbind(r: Recorder, x: Call, dim: int = 0) -> tuple[Call, ...]:
    where = axis(r, x, dim)
    lead = (slice(None),) * where
    return tuple(getitem(r, x, (*lead, i)) for i in range(x.shape[where]))


def _unsqueeze(r: Recorder, x: Call, dim: int) -> Call:
    lead = dim if dim >= 0 else len(x.shape) + 1 + dim
    return getitem(r, x, (slice(None),) * lead + (None,))


def _squeeze(r: Recorder, x: Call, dim: Any = None) -> Call:
    if dim is None:
        raise r.refuse("squeeze of every dimension", "name the dimension")
    dims = dim if isinstance(dim, tuple | list) else (dim,)
    for where in sorted((axis(r, x, d) for d in dims), reverse=True):
        if x.shape[where] == 1:
            x = getitem(r, x, (slice(None),) * where + (0,))
    return x


def _stack(r: Recorder, tensors: Any, dim: int = 0) -> Call:
    parts = tuple(tensors)
    if not parts or not all(isinstance(part, Call) for part in parts):
        raise r.refuse("stack of something else than traced tensors", "pass tensors as arguments")
    where = dim if dim >= 0 else len(parts[0].shape) + 1 + dim
    return concat(r, tuple(_unsqueeze(r, part, where) for part in parts), where)


def _flatten(r: Recorder, x: Call, start_dim: int = 0, end_dim: int = -1) -> Call:
    first, last = axis(r, x, start_dim), axis(r, x, end_dim)
    joined = math.prod(x.shape[first : last + 1])
    return reshape(r, x, (*x.shape[:first], joined, *x.shape[last + 1 :]))


def _unflatten(r: Recorder, x: Call, dim: int, sizes: Any) -> Call:
    where, extents = axis(r, x, dim), list(sizes)
    if extents.count(-1) == 1:
        rest = -math.prod(extents)
        extents[extents.index(-1)] = x.shape[where] // rest if rest else 0
    if math.prod(extents) != x.shape[where]:
        raise ValueError(f"unflatten of {x.shape} along {dim} into {tuple(sizes)}")
    return reshape(r, x, (*x.shape[:where], *extents, *x.shape[where + 1 :]))


def _transpose(r: Recorder, x: Call, dim0: int, dim1: int) -> Call:
    dims = list(range(len(x.shape)))
    a, b = axis(r, x, dim0), axis(r, x, dim1)
    dims[a], dims[b] = dims[b], dims[a]
    return permute(r, x, tuple(dims))


def _movedim(r: Recorder, x: Call, source: Any, destination: Any) -> Call:
    sources, places = (
        [axis(r, x, d) for d in (dims if isinstance(dims, tuple | list) else (dims,))]
        for dims in (source, destination)
    )
    if len(sources) != len(places) or len({*sources}) != len({*places}) != len(places):
        raise ValueError(f"movedim from {source} to {destination} of a tensor of shape {x.shape}")
    placed = dict(zip(places, sources, strict=True))
    others = iter(i for i in range(len(x.shape)) if i not in sources)
    return permute(r, x, tuple(placed[i] if i in placed else next(others)
                               for i in range(len(x.shape))))  # fmt: skip


def _like(change: Callable[[Recorder, Call, Any], Call]) -> Callable[..., Call]:
    def handler(r: Recorder, x: Call, other: Call) -> Call:
        if not isinstance(other, Call):
            raise r.refuse("a shape that is not a traced tensor's", "use a traced tensor")
        if not other.shape or other.var.space is Space.WEIGHT:
            return change(r, x, other.shape)
        return change(r, x, (RowCount(r, other.shape[0]), *other.shape[1:]))

    return handler


def _index_select(r: Recorder, x: Call, dim: int, index: Any) -> Call:
    if not isinstance(index, GraphIndex) or axis(r, x, dim) != 0:
        raise r.refuse("index_select by something else than a graph index", "use x[g.src]")
    return getitem(r, x, index)


def _embedding(r: Recorder, input: Any, weight: Call, padding_idx: None = None,
               max_norm: None = None, norm_type: float = 2.0, scale_grad_by_freq: bool = False,
               sparse: bool = False) -> Call:  # fmt: skip
    if padding_idx is not None or max_norm is not None or scale_grad_by_freq or sparse:
        raise r.refuse("embedding with options", "use weight[g.rel]")
    if not isinstance(input, GraphIndex):
        raise r.refuse("embedding of something else than a graph index", "use weight[g.rel]")
    return getitem(r, weight, input)


def _converted(dtype: torch.dtype | None) -> Callable[..., Call]:
    def handler(r: Recorder, x: Call, *args: Any, **kwargs: Any) -> Call:
        wanted = [dtype] if dtype is not None else [*args, *kwargs.values()]
        names = [a.dtype if isinstance(a, Call) else NAMES.get(a, a) for a in wanted]
        if any(name != x.dtype for name in names if not isinstance(name, bool)):
            text = ", ".join(map(str, names))
            raise r.refuse(f"conversion of {x.dtype} to {text}", "convert the arguments before")
        return x

    return handler


LAYOUT: dict[str, Callable[..., Any]] = {
    "getitem": getitem, "cat": concat, "stack": _stack, "split": _split, "chunk": _chunk,
    "unbind": _unbind, "narrow": _narrow,
    "select": lambda r, x, dim, index: getitem(
        r, x, (slice(None),) * axis(r, x, dim) + (index,)
    ),
    "reshape": reshape, "view": reshape, "reshape_as": _like(reshape), "view_as": _like(reshape),
    "flatten": _flatten, "unflatten": _unflatten, "unsqueeze": _unsqueeze, "squeeze": _squeeze,
    "permute": permute, "transpose": _transpose, "swapaxes": _transpose, "swapdims": _transpose,
    "movedim": _movedim, "t": lambda r, x: permute(r, x, tuple(range(len(x.shape)))[::-1]),
    "expand": broadcast_to, "broadcast_to": broadcast_to, "expand_as": _like(broadcast_to),
    "index_select": _index_select, "embedding": _embedding,
    "contiguous": lambda r, x: x, "clone": lambda r, x: x,
    "to": _converted(None), "type_as": _converted(None), "float": _converted(torch.float32),
    "double": _converted(torch.float64), "half": _converted(torch.float16),
    "bfloat16": _converted(torch.bfloat16),
}  # fmt: skip
"""Handlers by name."""
