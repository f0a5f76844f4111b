# SPDX-License-Identifier: Apache-2.0
"""In which order an epoch visits the seeds, and which of them make a batch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sized
from dataclasses import dataclass
from typing import Any

import torch

from pytorch_direct.loader.shards import Shard

__all__ = ["Job", "Order", "mixed"]

#: Batches of one epoch have numbers below this.
_MOST = 1 << 40


@dataclass(frozen=True)
class Job:
    """One batch to make."""

    epoch: int
    index: int  #: Its place among the batches of this rank.
    number: int  #: Unlike any other batch's of this loader, on any rank: random numbers come of it.
    positions: torch.Tensor  #: Of its seeds among all.

    def __str__(self) -> str:
        where = "no seeds"
        if self.positions.numel():
            low, high = (int(bound) for bound in torch.aminmax(self.positions))
            where = f"{self.positions.numel()} seeds at positions in [{low}, {high}]"
        return f"batch {self.index} of epoch {self.epoch}, {where}"


@dataclass(frozen=True)
class Order:
    """How epochs are cut into batches."""

    count: int
    batch_size: int
    shuffle: bool
    drop_last: bool
    shard: Shard
    seed: int
    sampler: Iterable[int] | None = None
    batch_sampler: Iterable[Any] | None = None

    def __len__(self) -> int:
        """Return the number of batches of this rank."""
        if self.batch_sampler is not None:
            return _length(self.batch_sampler, "batch_sampler")
        count = self.count if self.sampler is None else _length(self.sampler, "sampler")
        mine = count if self.shard.world_size == 1 else self.shard.size(count, self.drop_last)
        return mine // self.batch_size if self.drop_last else -(-mine // self.batch_size)

    def jobs(self, epoch: int) -> Iterator[Job]:
        """Yield the batches of an epoch."""
        for given in (self.sampler, self.batch_sampler):
            if hasattr(given, "set_epoch"):
                given.set_epoch(epoch)  # type: ignore[union-attr]
        groups = self._batches() if self.batch_sampler is not None else self._cut(epoch)
        for index, positions in enumerate(groups):
            number = index * self.shard.world_size + self.shard.rank
            if number >= _MOST:
                raise ValueError(f"an epoch has at most {_MOST} batches on all ranks")
            yield Job(epoch, index, epoch * _MOST + number, positions)

    def _cut(self, epoch: int) -> Iterator[torch.Tensor]:
        order = self.shard.take(self._whole(epoch), self.drop_last)
        for begin in range(0, order.numel(), self.batch_size):
            positions = order[begin : begin + self.batch_size]
            if positions.numel() == self.batch_size or not self.drop_last:
                yield positions

    def _whole(self, epoch: int) -> torch.Tensor:
        if self.sampler is not None:
            return _positions(list(self.sampler), self.count, "sampler")
        if not self.shuffle:
            return torch.arange(self.count, device="cpu")
        generator = torch.Generator("cpu").manual_seed(mixed(self.seed, epoch))
        return torch.randperm(self.count, generator=generator, device="cpu")

    def _batches(self) -> Iterator[torch.Tensor]:
        assert self.batch_sampler is not None
        for group in self.batch_sampler:
            yield _positions(list(group), self.count, "batch_sampler")


def mixed(seed: int, number: int) -> int:
    """Return 63 bits that depend on all bits of both (the finaliser of splitmix64)."""
    mask = (1 << 64) - 1
    bits = (seed + (number + 1) * 0x9E3779B97F4A7C15) & mask
    bits = ((bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9) & mask
    bits = ((bits ^ (bits >> 27)) * 0x94D049BB133111EB) & mask
    return (bits ^ (bits >> 31)) >> 1


def _positions(given: list[Any], count: int, what: str) -> torch.Tensor:
    positions = torch.as_tensor([int(i) for i in given], dtype=torch.int64, device="cpu")
    bad = (positions < 0) | (positions >= count)
    if bool(bad.any()):
        raise IndexError(f"{what} gave position {int(positions[bad][0])}; there are {count} seeds")
    return positions


def _length(given: Iterable[Any], what: str) -> int:
    if not isinstance(given, Sized):
        raise TypeError(f"{what} has no length, so the loader has none; iterate it instead")
    return len(given)
