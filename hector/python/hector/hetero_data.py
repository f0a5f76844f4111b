# SPDX-License-Identifier: Apache-2.0
"""PyG's data objects with several types as one set of nodes and edges; waits for no device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from hector.ids import IdRange, check_tensor

__all__ = ["HeteroEdges", "hetero_edges", "is_sample", "known_count"]


@dataclass(frozen=True)
class HeteroEdges:
    """All edges of a ``HeteroData``, nodes numbered type after type.

    Attributes
    ----------
    edge_index : Tensor, int64, shape (2, E)
    edge_type : Tensor, int64, shape (E,)
    node_type : Tensor, int64, shape (num_nodes,)
    names : tuple of str
        The node types.
    counts : tuple of int
        Nodes of each.
    relations : tuple of (str, str, str)
    own_type : IdRange
        To be checked: that every id is one of its own type's nodes.
    """

    edge_index: Tensor
    edge_type: Tensor
    node_type: Tensor
    names: tuple[str, ...]
    counts: tuple[int, ...]
    relations: tuple[tuple[str, str, str], ...]
    own_type: IdRange


def known_count(count: int | None, name: str) -> int:
    """The number of nodes of something, which must be known."""
    if count is None:
        raise ValueError(f"Graph.from_pyg: the number of nodes of {name} is not known")
    return int(count)


def _sent(numbers: Sequence[object], device: torch.device) -> Tensor:
    """Some numbers on a device, which is not waited for."""
    made = torch.tensor(numbers, dtype=torch.int64, device="cpu")
    return made if device.type == "cpu" else made.pin_memory().to(device, non_blocking=True)


def _blocks(counts: list[int], device: torch.device) -> Tensor:
    """0 as often as the first count says, then 1, and so on."""
    numbers = torch.arange(len(counts), device=device)
    return numbers.repeat_interleave(_sent(counts, device), output_size=sum(counts))


def is_sample(data: Any) -> bool:
    """Whether a loader of PyG sampled the data: it notes which seeds a batch was grown from."""
    return any("input_id" in store for store in getattr(data, "node_stores", ()))


def hetero_edges(data: Any, num_relations: int | None) -> HeteroEdges:
    """The edges of a ``HeteroData``.

    Parameters
    ----------
    data : HeteroData
    num_relations : int or None
        How many relations there must be.

    Returns
    -------
    HeteroEdges

    Raises
    ------
    ValueError
        If there is no node type, a count or an edge_index is missing, the number of relations is
        another one, or shapes or devices do not fit.
    """
    names = tuple(data.node_types)
    if not names:
        raise ValueError("Graph.from_pyg: the data has no node type")
    counts = [known_count(data[name].num_nodes, name) for name in names]
    starts = [sum(counts[:i]) for i in range(len(counts))]
    number = {name: i for i, name in enumerate(names)}
    relations = tuple(data.edge_types)
    if num_relations not in (None, len(relations)):
        raise ValueError(
            f"Graph.from_pyg: the data has {len(relations)} edge types, not {num_relations}"
        )
    ends = []
    for relation in relations:
        if not {relation[0], relation[2]} <= number.keys():
            raise ValueError(f"Graph.from_pyg: {relation} names no node type of the data")
        index = getattr(data[relation], "edge_index", None)
        if index is None:
            raise ValueError(
                f"Graph.from_pyg: {relation} has no edge_index; other forms are not read"
            )
        ends.append(check_tensor(f"edge_index of {relation}", index, 2))
    device = ends[0].device if ends else torch.device("cpu")
    for relation, index in zip(relations, ends, strict=True):
        if index.device != device or index.shape[0] != 2:
            raise ValueError(
                f"Graph.from_pyg: edge_index of {relation} is {tuple(index.shape)} on "
                f"{index.device}; all must be (2, E), on one device ({device})"
            )
    rel = _blocks([index.shape[1] for index in ends], device)
    index = torch.cat(ends, 1) if ends else torch.zeros(2, 0, dtype=torch.int64, device=device)
    sides = [[number[relation[side]] for relation in relations] for side in (0, 2)]

    def each_type(values: list[int]) -> Tensor:
        """The value of the type at either end of each edge, shape (2, E)."""
        table = [[values[kind] for kind in side] for side in sides]
        return _sent(table, device)[:, rel]

    def name_the_relation() -> None:
        for relation, ids in zip(relations, ends, strict=True):
            for end, name in zip(ids, relation[::2], strict=True):
                limit = counts[number[name]]
                what = f"edge_index of {relation}", f"nodes {name!r}"
                if end.numel():
                    low, high = (int(bound) for bound in torch.aminmax(end))
                    IdRange(what[0], end, limit, what[1]).check(low, high)

    # An id beyond its own type may still be some other type's node.
    stray = (index < 0) | (index >= each_type(counts))
    return HeteroEdges(
        index + each_type(starts), rel, _blocks(counts, device), names, tuple(counts), relations,
        IdRange("edge_index", stray.byte(), 1, "nodes", name_the_relation),
    )  # fmt: skip
