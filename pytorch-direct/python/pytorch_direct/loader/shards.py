# SPDX-License-Identifier: Apache-2.0
"""Which part of an epoch's seeds a rank takes, so that all ranks have as many batches."""

from __future__ import annotations

import operator
from dataclasses import dataclass

import torch

from pytorch_direct.loader.said import say_once

__all__ = ["Shard", "shard_of"]


@dataclass(frozen=True)
class Shard:
    """One rank of several."""

    rank: int
    world_size: int

    def size(self, count: int, drop_last: bool) -> int:
        """Return how many of `count` positions each rank takes."""
        return count // self.world_size if drop_last else -(-count // self.world_size)

    def take(self, order: torch.Tensor, drop_last: bool) -> torch.Tensor:
        """Return this rank's part of a common order: each world_size-th, from its rank on.

        What is left over is filled up from the front of the order, as often as that takes; with
        `drop_last` it is left out.
        """
        if self.world_size == 1:
            return order
        each = self.size(order.numel(), drop_last)
        mine = torch.arange(each, device="cpu") * self.world_size + self.rank
        return order[mine % order.numel()] if order.numel() else order


def shard_of(rank: int | None, world_size: int | None) -> Shard:
    """Return the shard as given, else this process' place in ``torch.distributed``.

    Raises
    ------
    ValueError
        Only one of the two is given, or they are out of range.
    """
    if world_size is not None and operator.index(world_size) == 1 and rank in (None, 0):
        return Shard(0, 1)
    if (rank is None) != (world_size is None):
        raise ValueError("rank= and world_size= go together: give both or neither")
    if rank is not None and world_size is not None:
        rank, world_size = operator.index(rank), operator.index(world_size)
        if world_size < 1 or not 0 <= rank < world_size:
            raise ValueError(
                f"rank must be in [0, world_size), but they are {rank} and {world_size}"
            )
        return Shard(rank, world_size)
    distributed = torch.distributed
    if not (distributed.is_available() and distributed.is_initialized()):
        return Shard(0, 1)
    found = Shard(distributed.get_rank(), distributed.get_world_size())
    if found.world_size > 1:
        say_once(
            "shards",
            f"torch.distributed is initialised, so loaders share their seeds out: rank "
            f"{found.rank} takes one in {found.world_size}. Where the seeds are split already, or "
            "where one rank alone has a loader, give world_size=1",
        )
    return found
