# SPDX-License-Identifier: Apache-2.0
"""How each kernel instance is laid out on the machine, as data; nothing is timed here.

Configurations found by tuning stand in ``schedules.json``, keyed by family, dtype, width, size
class and architecture; where there is none, rules decide.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hector.emit.triton.tiles import padded

__all__ = [
    "Key",
    "Outer",
    "Product",
    "Rows",
    "Schedule",
    "Traversal",
    "WalkProduct",
    "by_rule",
    "schedule",
    "size_class",
]

LARGE = 1 << 19
"""Rows from which a kernel is bound by memory, not by its longest chain of steps."""


@dataclass(frozen=True)
class Rows:
    """A kernel that treats each row by itself: rows a program, warps."""

    rows: int
    warps: int


@dataclass(frozen=True)
class Traversal:
    """A walk over the rows of a map's source, target by target.

    Attributes
    ----------
    targets : int
        Targets a program, one lane each; 1 puts ``lanes`` rows of a single target side by side.
    lanes : int
        Rows of one target side by side; 1 unless ``targets`` is 1.
    unroll : int
        Steps whose loads are in flight together.
    split : int
        Rows of a target beyond which it is cut into pieces of this many, summed by a second pass.
    warps : int
    hub_lanes, hub_warps : int
        Pieces side by side in the second pass, and its warps.
    """

    targets: int
    lanes: int
    unroll: int
    split: int
    warps: int
    hub_lanes: int = 64
    hub_warps: int = 8


@dataclass(frozen=True)
class Product:
    """A typed product.

    Attributes
    ----------
    rows : int
        Rows a tile.
    tiles : int
        Tiles of one type that a program takes in turn, its matrix kept.
    columns, depth : int
        Columns of the result, and of the left operand, that a program holds at once.
    stages, warps : int
    matrix_by_column : bool
        Whether the matrices are laid out column after column first.
    """

    rows: int
    tiles: int
    columns: int
    depth: int
    stages: int
    warps: int
    matrix_by_column: bool = False


@dataclass(frozen=True)
class Outer:
    """Sums of outer products.

    Attributes
    ----------
    rows : int
        Rows a step.
    chunk : int
        Rows of one type that a program sums at most; chunks are then added in a fixed order.
    left, right : int
        Extents of the block that a program holds.
    stages, warps : int
    """

    rows: int
    chunk: int
    left: int
    right: int
    stages: int
    warps: int


@dataclass(frozen=True)
class WalkProduct:
    """A walk whose sums go into products.

    Attributes
    ----------
    rows : int
        Targets a tile, one lane each.
    tiles : int
        Tiles of one type that a program takes in turn, its matrices and outer products kept; with
        outer products as many as the rows of the graph ask for (``tables.chunks``).
    unroll : int
        Steps of the walk whose loads are in flight together.
    split : int
        Rows of a target beyond which it is walked beforehand, in pieces of this many.
    warps : int
    hub_lanes : int
        Pieces side by side where they are added.
    matrix_by_column : bool
        Whether the matrices are laid out column after column first.
    """

    rows: int
    tiles: int
    unroll: int
    split: int
    warps: int
    hub_lanes: int = 16
    matrix_by_column: bool = False


Schedule = Rows | Traversal | Product | Outer | WalkProduct


@dataclass(frozen=True)
class Key:
    """What a schedule is looked up by.

    Attributes
    ----------
    family : str
        ``rows``, ``traversal``, ``product``, ``outer`` or ``walk_product``.
    dtype : str
    width : int
        Padded elements of the widest tile row; for products the wider of depth and columns.
    other : int
        The narrower of the two for products, the width of all sums, padded, for walks that
        multiply, accumulators for other walks, else 0.
    size : str
        ``small`` or ``large``.
    architecture : str
        ``sm_90`` or the like; empty off the GPU.
    """

    family: str
    dtype: str
    width: int
    other: int
    size: str
    architecture: str


def size_class(rows: int) -> str:
    """``small`` or ``large``."""
    return "large" if rows >= LARGE else "small"


def _rows(key: Key) -> Rows:
    rows = max(min(2048 // key.width, 256), 1)
    elements = rows * key.width
    return Rows(rows, 8 if elements >= 8192 else 4 if elements >= 512 else 1)


def _traversal(key: Key) -> Traversal:
    large = key.size == "large"
    unroll = 4 if key.dtype == "f32" else 2
    targets = max(min(512 // key.width, 128), 4)
    if key.dtype != "f32":
        targets *= 2
    warps = max(min(targets * key.width // 128, 4), 1)
    hub_lanes = max(min(4096 // key.width, 64), 1)
    return Traversal(targets, 1, unroll, 256 if large else 32, warps, hub_lanes, 8 if large else 4)


def _product(key: Key) -> Product:
    large, single = key.size == "large", key.dtype == "f32"
    rows = 32 if key.width > 128 or (single and large) else 64
    wide = min(max(key.width, 16), 128)
    return Product(
        rows=rows,
        tiles=8 if large else 1,
        columns=wide if key.width <= 128 else 64,
        depth=wide if key.width <= 128 else 64,
        stages=3 if large else 1,
        warps=4 if wide <= 64 else 8,
    )


def _outer(key: Key) -> Outer:
    large = key.size == "large"
    block = min(max(key.width, 16), 64 if key.width > 128 else 128)
    return Outer(
        rows=32 if key.dtype == "f32" else 64,
        chunk=1024 if large else 256,
        left=block,
        right=block,
        stages=1 if key.dtype == "f32" else 3,
        warps=4 if block <= 64 else 8,
    )


def _walk_product(key: Key) -> WalkProduct:
    large, single = key.size == "large", key.dtype == "f32"
    rows = 32 if single or key.width > 64 else 64
    return WalkProduct(
        rows=rows,
        tiles=1024 // rows if large else 1,
        unroll=2,
        split=128 if large else 32,
        warps=4 if max(key.width, key.other) <= 64 else 8,
    )


_RULES: dict[str, Callable[[Key], Schedule]] = {
    "rows": _rows,
    "traversal": _traversal,
    "product": _product,
    "outer": _outer,
    "walk_product": _walk_product,
}
_CLASSES = {
    "rows": Rows,
    "traversal": Traversal,
    "product": Product,
    "outer": Outer,
    "walk_product": WalkProduct,
}


@functools.cache
def _tuned() -> dict[Key, Schedule]:
    """The saved configurations."""
    entries: list[dict[str, Any]] = json.loads(
        Path(__file__).with_name("schedules.json").read_text(encoding="utf-8")
    )
    found: dict[Key, Schedule] = {}
    for entry in entries:
        key = Key(**entry["key"])
        found[key] = _CLASSES[key.family](**entry["schedule"])
    return found


def by_rule(key: Key) -> Schedule:
    """The schedule of a kernel instance that was not tuned."""
    if key.width != padded(key.width):
        raise ValueError(f"schedule: width {key.width} is no power of two")
    return _RULES[key.family](key)


def schedule(key: Key) -> Schedule:
    """The schedule of a kernel instance.

    Parameters
    ----------
    key : Key

    Returns
    -------
    Schedule
        Of the family's class: as saved where it was tuned, by rule otherwise.
    """
    return _tuned().get(key) or by_rule(key)
