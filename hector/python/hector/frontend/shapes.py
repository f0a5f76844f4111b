# SPDX-License-Identifier: Apache-2.0
"""Recording of what moves or joins dimensions; arithmetic is in operators."""

from __future__ import annotations

import math
from typing import Any

from hector.frontend.index import GraphIndex, RowCount
from hector.frontend.location import user_location
from hector.frontend.record import Call, Recorder, SpaceVar
from hector.ir.types import MAPS, Space

__all__ = [
    "axis",
    "broadcast",
    "broadcast_to",
    "concat",
    "getitem",
    "one_row",
    "permute",
    "reshape",
]


def axis(r: Recorder, x: Call, dim: Any) -> int:
    """A dimension number as a non-negative one.

    Raises
    ------
    IndexError
        If the tensor has no such dimension.
    """
    rank = len(x.shape)
    if not isinstance(dim, int) or not -rank <= dim < rank:
        raise IndexError(f"dimension {dim} of a tensor of shape {x.shape} ({x.location})")
    return dim % rank


def one_row(x: Call, y: Call) -> bool:
    """Whether both have one row, so that rows and a weight that broadcasts look alike."""
    known = [call.var.space for call in (x, y)]
    rows = len(x.shape) == len(y.shape) > 0 and x.shape[0] == y.shape[0] == 1
    return (
        rows
        and (known[0] is not known[1] or known[0] is None)
        and (None in known or Space.WEIGHT in known)
    )


def broadcast(r: Recorder, x: Call, y: Call, name: str) -> tuple[tuple[int, ...], SpaceVar]:
    """Shape and space of an elementwise result; states what the operands' spaces must be."""
    rank = max(len(x.shape), len(y.shape))
    a = (1,) * (rank - len(x.shape)) + x.shape
    b = (1,) * (rank - len(y.shape)) + y.shape
    for low, high in ((x, y), (y, x)):
        short = len(low.shape) < len(high.shape)
        if short and low.var.space not in (None, Space.WEIGHT):
            hint = "add the missing feature dimension, as in score[:, None] * message"
            raise r.refuse(f"{name} of {low.shape} and {high.shape}", hint)
    for number, (m, n) in enumerate(zip(a, b, strict=True)):
        if m != n and 1 not in (m, n):
            space = (x if y.var.space is None else y).var.space
            rows = ""
            if number == 0 and space not in (None, Space.WEIGHT):
                rows = f"; the first extent must be exactly {r.counts.rows(space)}, one for each "
                rows += space.value.replace("_", " ")
            raise ValueError(
                f"{user_location()}: {x.shape} and {y.shape} do not broadcast in {name}{rows}"
            )
    shape = tuple(n if m == 1 else m for m, n in zip(a, b, strict=True))
    if one_row(x, y):
        return shape, SpaceVar.either(x.var, y.var)
    for low, high in ((x, y), (y, x)):
        short = len(low.shape) < len(high.shape)
        same = len(low.shape) == len(high.shape) > 0
        if short or (same and low.shape[0] == 1 != high.shape[0]):
            r.require(low, Space.WEIGHT, f"{name} of {low.shape} and {high.shape}")
            return shape, high.var
    return shape, (r.join(x, y, name) if rank else x.var)


def reshape(r: Recorder, x: Call, *shape: Any) -> Call:
    """Record a reshape; rows stay rows."""
    extents = _extents(r, shape, "reshape")
    width = math.prod(x.shape[1:])
    if extents.count(-1) > 1:
        raise ValueError(f"reshape of {x.shape} to {tuple(extents)}: more than one -1")
    if -1 in extents:
        hole = extents.index(-1)
        rest = math.prod(extents[:hole] + extents[hole + 1 :])
        if hole == 0 and rest == width:
            extents[0] = x.shape[0]
        elif rest and math.prod(x.shape) % rest == 0:
            extents[hole] = math.prod(x.shape) // rest
            if x.shape and extents[0] == x.shape[0] == 0:
                extents[hole] = width // max(math.prod(extents[1:hole] + extents[hole + 1 :]), 1)
        else:
            raise ValueError(f"{x.shape} does not reshape to {tuple(extents)}")
    new = tuple(extents)
    if math.prod(new) != math.prod(x.shape):
        raise ValueError(f"{x.shape} does not reshape to {new}")
    if not new or not x.shape or new[0] != x.shape[0] or math.prod(new[1:]) != width:
        r.require(x, Space.WEIGHT, f"reshape of {x.shape} to {new}, which mixes rows,")
    return r.call("reshape", (x,), new, x.var)


def _extents(r: Recorder, shape: tuple[Any, ...], what: str) -> list[int]:
    wanted = shape[0] if len(shape) == 1 and isinstance(shape[0], tuple | list) else shape
    extents = [item.value if isinstance(item, RowCount) else item for item in wanted]
    if any(isinstance(item, bool) or not isinstance(item, int) for item in extents):
        raise r.refuse(f"{what} to {wanted}", "use integers")
    return extents


def broadcast_to(r: Recorder, x: Call, *shape: Any) -> Call:
    """Record an expansion of features of extent 1; rows stay rows."""
    wanted = shape[0] if len(shape) == 1 and isinstance(shape[0], tuple | list) else shape
    by_rows = any(isinstance(item, RowCount) for item in wanted)
    extents = _extents(r, shape, "expand")
    if len(extents) > len(x.shape):
        r.require(x, Space.WEIGHT, "expand to more dimensions")
        x = reshape(r, x, (*(1,) * (len(extents) - len(x.shape)), *x.shape))
    if len(extents) != len(x.shape):
        raise ValueError(f"expand of {x.shape} to {tuple(extents)}")
    pairs = zip(x.shape, extents, strict=True)
    new = tuple(old if extent == -1 else extent for old, extent in pairs)
    if any(old not in (1, extent) for old, extent in zip(x.shape, new, strict=True)):
        raise ValueError(f"expand of {x.shape} to {tuple(extents)}")
    if new[:1] != x.shape[:1]:
        if by_rows:
            raise r.refuse(
                "a weight expanded to rows",
                "in arithmetic it broadcasts by itself, and a product of a concatenation is a sum "
                "of products: torch.cat([x, w], 1) @ M is x @ M[:k] + w @ M[k:]",
            )
        r.require(x, Space.WEIGHT, "expand along dimension 0")
    return x if new == x.shape else r.call("broadcast", (x,), new, x.var)


def permute(r: Recorder, x: Call, *dims: Any) -> Call:
    """Record a permutation of dimensions; rows stay first."""
    wanted = dims[0] if len(dims) == 1 and isinstance(dims[0], tuple | list) else dims
    perm = tuple(axis(r, x, dim) for dim in wanted)
    if sorted(perm) != list(range(len(x.shape))):
        raise ValueError(f"permute{perm} of a tensor of shape {x.shape}")
    if perm and perm[0] != 0:
        r.require(x, Space.WEIGHT, "moving dimension 0")
    return r.call("permute", (x,), tuple(x.shape[i] for i in perm), x.var, perm=perm)


def concat(r: Recorder, tensors: Any, dim: int = 0) -> Call:
    """Record a concatenation of features."""
    parts = tuple(tensors)
    if not parts or not all(isinstance(part, Call) for part in parts):
        raise r.refuse("cat of something else than traced tensors", "pass tensors as arguments")
    where = axis(r, parts[0], dim)
    for part in parts:
        trimmed = [p.shape[:where] + p.shape[where + 1 :] for p in (part, parts[0])]
        if len(part.shape) != len(parts[0].shape) or trimmed[0] != trimmed[1]:
            raise ValueError(f"cat of {parts[0].shape} and {part.shape} along {dim}")
        if where == 0:
            r.require(part, Space.WEIGHT, "cat along dimension 0")
        else:
            r.join(parts[0], part, "cat")
    first = parts[0].shape
    total = sum(part.shape[where] for part in parts)
    shape = (*first[:where], total, *first[where + 1 :])
    return r.call("concat", parts, shape, parts[0].var, axis=where)


def getitem(r: Recorder, x: Call, key: Any) -> Call:
    """Record indexing: by a graph index on the rows, or by slices, integers and None."""
    if isinstance(key, tuple) and any(isinstance(item, GraphIndex) for item in key):
        first, rest = key[0], key[1:]
        if not isinstance(first, GraphIndex) or any(isinstance(i, GraphIndex) for i in rest):
            raise r.refuse("a graph index behind the first dimension", "permute the tensor first")
        x = getitem(r, x, first)
        return getitem(r, x, (slice(None), *rest)) if rest else x
    if isinstance(key, GraphIndex):
        through = MAPS[key.map]
        r.require(x, through.target, f"indexing by {key.text}")
        shape = (r.counts.rows(through.source), *x.shape[1:])
        return r.call("gather", (x,), shape, SpaceVar(through.source), map=key.map)
    items = list(key) if isinstance(key, tuple) else [key]
    for item in items:
        basic = isinstance(item, int | slice) and not isinstance(item, bool)
        if not (item is None or item is Ellipsis or basic):
            text = f"indexing by a {type(item).__name__}"
            raise r.refuse(text, "use g.src, g.dst, g.rel, a node type, slices, integers or None")
    used = sum(item is not None and item is not Ellipsis for item in items)
    if items.count(Ellipsis) > 1 or used > len(x.shape):
        raise IndexError(f"too many indices {key} for shape {x.shape}")
    fill = [slice(None)] * (len(x.shape) - used)
    where = items.index(Ellipsis) if Ellipsis in items else len(items)
    items[where : where + 1] = fill
    if not items or items[0] != slice(None):
        r.require(x, Space.WEIGHT, "indexing dimension 0 by something else than a graph index")
    return _basic(r, x, items)


def _basic(r: Recorder, x: Call, items: list[Any]) -> Call:
    dim, out = 0, []
    for item in items:
        if item is None:
            out.append(1)
            continue
        extent = x.shape[dim]
        if isinstance(item, int):
            if not -extent <= item < extent:
                raise IndexError(f"index {item} of an extent of {extent}")
            start, stop = item % extent, item % extent + 1
        else:
            start, stop, step = item.indices(extent)
            if step != 1:
                raise r.refuse("a slice with a step", "use step 1")
            stop = max(start, stop)
            out.append(stop - start)
        if (start, stop) != (0, extent):
            shape = (*x.shape[:dim], stop - start, *x.shape[dim + 1 :])
            x = r.call("slice", (x,), shape, x.var, axis=dim, start=start, stop=stop)
        dim += 1
    return x if tuple(out) == x.shape else r.call("reshape", (x,), tuple(out), x.var)
