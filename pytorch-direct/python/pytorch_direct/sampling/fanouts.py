# SPDX-License-Identifier: Apache-2.0
"""Numbers of neighbours to take, for each hop and edge type."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence

from pytorch_direct.graph.graph import EdgeType

__all__ = ["NumNeighbors", "fanouts_of"]

NumNeighbors = Sequence[int] | Mapping[EdgeType, Sequence[int]]


def fanouts_of(
    num_neighbors: NumNeighbors, edge_types: Sequence[EdgeType]
) -> dict[EdgeType, tuple[int, ...]]:
    """Return the fan-outs of each edge type, all of one length.

    Raises
    ------
    TypeError, ValueError
        An edge type is missing or unknown, lengths differ, or a number is below -1.
    """
    if isinstance(num_neighbors, Mapping):
        if unknown := [kind for kind in num_neighbors if kind not in edge_types]:
            raise ValueError(
                f"num_neighbors: there is no edge type {unknown[0]}; there are {list(edge_types)}"
            )
        if missing := [kind for kind in edge_types if kind not in num_neighbors]:
            raise ValueError(
                f"num_neighbors lacks edge type {missing[0]}; give it zeros to leave it out"
            )
        found = {kind: _list(num_neighbors[kind]) for kind in edge_types}
    else:
        hops = _list(num_neighbors)
        found = dict.fromkeys(edge_types, hops)
    lengths = {len(hops) for hops in found.values()}
    if len(lengths) > 1:
        raise ValueError(
            f"num_neighbors: edge types have {sorted(lengths)} hops; fill the shorter with zeros"
        )
    return found


def _list(numbers: Sequence[int]) -> tuple[int, ...]:
    if not isinstance(numbers, Sequence):
        raise TypeError(
            f"num_neighbors must be a list of ints, or a dict of such lists by edge type, not "
            f"{type(numbers).__name__}"
        )
    hops = tuple(operator.index(number) for number in numbers)
    for hop, number in enumerate(hops):
        if not -1 <= number < 2**31:
            raise ValueError(
                f"num_neighbors: hop {hop} takes {number}; valid are -1 (all) to 2^31 - 1"
            )
    return hops
