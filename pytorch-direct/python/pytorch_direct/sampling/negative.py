# SPDX-License-Identifier: Apache-2.0
"""Negatives of link tasks: nodes drawn by number of batch, the same for every device."""

from __future__ import annotations

import math
from typing import Literal

import torch

from pytorch_direct import _native
from pytorch_direct.graph.build import _weights

__all__ = ["NegativeSampling", "draw_nodes"]

_TRIES = 6


class NegativeSampling:
    """How links that do not exist are made up.

    Like PyG's, and like there a negative may happen to be an edge of the graph.

    Parameters
    ----------
    mode : {"binary", "triplet"}
        "binary": pairs of nodes. "triplet": other destinations for each link's source.
    amount : int or float
        Negatives for each link; whole with triplets.
    src_weight, dst_weight : torch.Tensor, optional
        One a node: draw it in proportion. None: uniformly.

    Raises
    ------
    ValueError
        An argument is out of its domain.
    """

    def __init__(
        self,
        mode: Literal["binary", "triplet"],
        amount: float = 1,
        src_weight: torch.Tensor | None = None,
        dst_weight: torch.Tensor | None = None,
    ) -> None:
        if mode not in ("binary", "triplet"):
            raise ValueError(f"mode must be 'binary' or 'triplet', not {mode!r}")
        if not (math.isfinite(amount) and amount > 0):
            raise ValueError(f"amount must be above 0, not {amount}")
        if mode == "triplet" and amount != math.ceil(amount):
            raise ValueError(f"amount must be whole with triplets, not {amount}")
        self.mode = mode
        self.amount = amount
        self.src_sums = _sums(src_weight, "src_weight")
        self.dst_sums = _sums(dst_weight, "dst_weight")

    @property
    def is_triplet(self) -> bool:
        """Whether destinations alone are drawn."""
        return self.mode == "triplet"

    def count(self, links: int) -> int:
        """Return how many negatives go with a number of links."""
        return math.ceil(links * self.amount)


def _sums(weight: torch.Tensor | None, what: str) -> torch.Tensor | None:
    if weight is None:
        return None
    numbers = _weights(weight, what, int(weight.shape[0]) if weight.dim() == 1 else -1)
    sums = torch.empty(numbers.shape[0], dtype=torch.int64)
    drawable = torch.empty(1, dtype=torch.int64)
    ends = torch.tensor([0, numbers.shape[0]])
    _native.weight_sums(
        ends.data_ptr(), 1, numbers.data_ptr(), sums.data_ptr(), drawable.data_ptr(), 1
    )
    if int(drawable[0]) == 0:
        raise ValueError(f"{what}: no weight is above 0")
    return sums


def draw_nodes(
    count: int,
    nodes: int,
    sums: torch.Tensor | None,
    *,
    what: str,
    seed: int,
    batch: int,
    purpose: int,
    before: torch.Tensor | None = None,
    node_time: torch.Tensor | None = None,
) -> torch.Tensor:
    """Draw nodes on the CPU.

    Parameters
    ----------
    count, nodes : int
        How many, and of how many.
    sums : torch.Tensor or None
        Running sums of integer weights.
    what : str
        Name of the weights, for messages.
    seed, batch, purpose : int
        What the random numbers are a function of.
    before, node_time : torch.Tensor or None
        For each draw the time up to which a node may be from, and the nodes' times. A draw that is
        too late is repeated; where that does not help either, the earliest node is taken, as PyG
        does.

    Raises
    ------
    ValueError
        There is no node to draw, the weights have another length, or no node is early enough.
    """
    if count == 0:
        return torch.empty(0, dtype=torch.int64)
    if nodes == 0:
        raise ValueError("negatives cannot be drawn from a type without nodes")
    if sums is not None and sums.shape[0] != nodes:
        raise ValueError(f"{what} has {sums.shape[0]} weights, but there are {nodes} nodes")

    def draw(attempt: int) -> torch.Tensor:
        numbers = torch.empty(count, dtype=torch.int64)
        bound = nodes if sums is None else int(sums[-1])
        _native.random_below(
            seed, batch, purpose, count, attempt * count, bound, numbers.data_ptr()
        )
        return numbers if sums is None else torch.searchsorted(sums, numbers, right=True)

    drawn = draw(0)
    if node_time is None or before is None:
        return drawn
    for attempt in range(1, _TRIES):
        late = node_time[drawn] > before
        if not bool(late.any()):
            return drawn
        drawn = torch.where(late, draw(attempt), drawn)
    earliest = int(node_time.argmin())
    if bool((node_time[earliest] > before).any()):
        raise ValueError(
            f"negatives: no node is from time {int(before.min())} or before, so none can be drawn "
            "for links of that time"
        )
    return torch.where(node_time[drawn] > before, earliest, drawn)
