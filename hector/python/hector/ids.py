# SPDX-License-Identifier: Apache-2.0
"""Tensors of ids and the ranges that they must keep to; nothing is read through them here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["IdRange", "ask", "check_tensor"]

_INTEGERS = (torch.int32, torch.int64)


@dataclass(frozen=True)
class IdRange:
    """Ids that must be in [0, limit), checked with the answer that building a plan waits for.

    Attributes
    ----------
    name : str
    ids : Tensor, integer
    limit : int
    what : str
        What is numbered, for the message.
    explain : callable or None
        Called where an id is out of range; raises an error that says more.
    of_edges : bool
        Whether these are ends or relations of edges, which are looked at in any case.
    """

    name: str
    ids: Tensor
    limit: int
    what: str
    explain: Callable[[], None] | None = None
    of_edges: bool = False

    def check(self, low: int, high: int) -> None:
        """Raise IndexError unless the smallest and the largest id are in range."""
        if low < 0 or high >= self.limit:
            if self.explain is not None:
                self.explain()
            bad = low if low < 0 else high
            raise IndexError(
                f"Graph: {self.name} holds {bad}, but there are {self.limit} {self.what}"
            )


def ask(ranges: Sequence[IdRange], numbers: Sequence[Tensor]) -> list[int]:
    """Values of some tensors of few elements, the ranges checked: one wait for the device.

    Parameters
    ----------
    ranges : sequence of IdRange
    numbers : sequence of Tensor, integer, of one dimension

    Returns
    -------
    list of int

    Raises
    ------
    IndexError
        If an id is out of its range.
    """
    checked = [each for each in ranges if each.ids.numel()]
    ends = [end.reshape(1) for each in checked for end in torch.aminmax(each.ids)]
    found = torch.cat([value.long() for value in (*ends, *numbers)]).tolist()
    for place, each in enumerate(checked):
        each.check(found[2 * place], found[2 * place + 1])
    return [int(value) for value in found[len(ends) :]]


def check_tensor(name: str, value: object, rank: int) -> Tensor:
    """A dense tensor of ids of a rank.

    Raises
    ------
    TypeError
        If it is no dense tensor of int32 or int64.
    ValueError
        If it has another rank.
    """
    if not isinstance(value, Tensor):
        raise TypeError(f"Graph: {name} must be a tensor, not {type(value).__name__}")
    if value.dtype not in _INTEGERS:
        raise TypeError(f"Graph: {name} must be int32 or int64, not {value.dtype}")
    if value.layout is not torch.strided:
        raise TypeError(f"Graph: {name} must be dense, not {value.layout}; use to_dense()")
    if value.dim() != rank:
        raise ValueError(f"Graph: {name} must have {rank} dimension(s), not {tuple(value.shape)}")
    return value
