# SPDX-License-Identifier: Apache-2.0
"""Spaces, the maps between them, and value types; not for the graph's own numbers (see plan)."""

from __future__ import annotations

import enum
from dataclasses import dataclass

__all__ = ["ELEMENT_BYTES", "MAPS", "Map", "Space", "Type", "compose", "factor"]

ELEMENT_BYTES = {"f64": 8, "f32": 4, "bf16": 2, "f16": 2, "i64": 8}
"""By the name of a dtype; the last is that of dropout's seeds."""


class Space(enum.Enum):
    """What one row of a value stands for."""

    NODE = "node"
    EDGE = "edge"
    SRC_PAIR = "src_pair"
    """A unique (relation, source node) pair."""
    DST_PAIR = "dst_pair"
    """A unique (relation, destination node) pair."""
    RELATION = "relation"
    NODE_TYPE = "node_type"
    WEIGHT = "weight"
    """No rows: the value is one dense tensor shared by everything."""


@dataclass(frozen=True)
class Map:
    """A total function from the rows of one space to the rows of another.

    Attributes
    ----------
    name : str
        ``<source space>.<role>``, as printed in the IR.
    source, target : Space
        ``gather`` reads target rows for every source row; ``segment_sum`` goes the other way.
    """

    name: str
    source: Space
    target: Space


def _maps() -> dict[str, Map]:
    edge, node, relation, kind = Space.EDGE, Space.NODE, Space.RELATION, Space.NODE_TYPE
    rows = [
        ("edge.src", edge, node),
        ("edge.dst", edge, node),
        ("edge.rel", edge, relation),
        ("edge.src_type", edge, kind),
        ("edge.dst_type", edge, kind),
        ("edge.src_pair", edge, Space.SRC_PAIR),
        ("edge.dst_pair", edge, Space.DST_PAIR),
        ("node.type", node, kind),
    ]
    for pair in (Space.SRC_PAIR, Space.DST_PAIR):
        rows.append((f"{pair.value}.node", pair, node))
        rows.append((f"{pair.value}.rel", pair, relation))
        rows.append((f"{pair.value}.type", pair, kind))
    return {name: Map(name, source, target) for name, source, target in rows}


MAPS = _maps()
"""Every map by name."""

# (first, second): composed. The only facts about the graph's structure that rewrites rely on.
_COMPOSED = {
    ("edge.src_pair", "src_pair.node"): "edge.src",
    ("edge.src_pair", "src_pair.rel"): "edge.rel",
    ("edge.src_pair", "src_pair.type"): "edge.src_type",
    ("edge.dst_pair", "dst_pair.node"): "edge.dst",
    ("edge.dst_pair", "dst_pair.rel"): "edge.rel",
    ("edge.dst_pair", "dst_pair.type"): "edge.dst_type",
    ("edge.src", "node.type"): "edge.src_type",
    ("edge.dst", "node.type"): "edge.dst_type",
    ("src_pair.node", "node.type"): "src_pair.type",
    ("dst_pair.node", "node.type"): "dst_pair.type",
}
_FACTORED = {(whole, first): second for (first, second), whole in _COMPOSED.items()}


def compose(first: str, second: str) -> str | None:
    """Name of ``second`` after ``first``, or None where the table has no such map."""
    return _COMPOSED.get((first, second))


def factor(whole: str, first: str) -> str | None:
    """Name of the map ``m`` with ``whole = m after first``, or None where there is none."""
    return _FACTORED.get((whole, first))


@dataclass(frozen=True)
class Type:
    """Type of an IR value.

    Attributes
    ----------
    space : Space
        What a row is; the row count is the graph's and no part of the type.
    shape : tuple of int
        Extents behind the rows (of the whole tensor for ``Space.WEIGHT``).
    dtype : str
        ``f64``, ``f32``, ``bf16`` or ``f16``.
    """

    space: Space
    shape: tuple[int, ...]
    dtype: str

    def __str__(self) -> str:
        return f"{self.space.value}[{', '.join(map(str, self.shape))}] {self.dtype}"

    @property
    def width(self) -> int:
        """Elements in one row."""
        count = 1
        for extent in self.shape:
            count *= extent
        return count

    def with_shape(self, shape: tuple[int, ...]) -> Type:
        """The same space and dtype with another shape."""
        return Type(self.space, shape, self.dtype)
