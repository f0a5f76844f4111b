# SPDX-License-Identifier: Apache-2.0
"""The arguments of a loader that do not say what is sampled: batches, order, devices, depth."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch

from datapath_core.errors import UnsupportedError
from pytorch_direct.loader.order import Order
from pytorch_direct.loader.said import say_once
from pytorch_direct.loader.shards import Shard, shard_of

__all__ = ["LoaderOptions", "read_options"]

#: Of torch's DataLoader, with the value that says nothing: there are no workers, nothing to pin.
_WITHOUT_EFFECT: dict[str, Any] = {
    "num_workers": 0,
    "pin_memory": False,
    "persistent_workers": False,
    "prefetch_factor": None,
    "pin_memory_device": "",
    "multiprocessing_context": None,
    "worker_init_fn": None,
    "timeout": 0,
    "in_order": True,
    # Made by the loader, as in PyG's.
    "dataset": None,
    "collate_fn": None,
}


@dataclass(frozen=True)
class LoaderOptions:
    """How batches are cut, ordered and made."""

    batch_size: int | None
    shuffle: bool
    drop_last: bool
    sampler: Iterable[int] | None
    batch_sampler: Iterable[Any] | None
    seed: int
    shard: Shard
    depth: int
    sm_share: float | None
    transform: Callable[[Any], Any] | None
    transform_sampler_output: Callable[[Any], Any] | None

    def order(self, count: int) -> Order:
        """Return how `count` seeds are cut into batches."""
        return Order(
            count,
            self.batch_size or 1,
            self.shuffle,
            self.drop_last,
            self.shard,
            self.seed,
            self.sampler,
            self.batch_sampler,
        )


def read_options(
    *,
    batch_size: int | None = 1,
    shuffle: bool | None = None,
    drop_last: bool = False,
    sampler: Iterable[int] | None = None,
    batch_sampler: Iterable[Any] | None = None,
    generator: torch.Generator | None = None,
    seed: int | None = None,
    rank: int | None = None,
    world_size: int | None = None,
    depth: int = 2,
    sm_share: float | None = None,
    transform: Callable[[Any], Any] | None = None,
    transform_sampler_output: Callable[[Any], Any] | None = None,
    filter_per_worker: bool | None = None,
    **others: Any,
) -> LoaderOptions:
    """Check the arguments.

    Raises
    ------
    TypeError, ValueError
        One is unknown, out of its domain, or does not go with another.
    """
    for name, value in others.items():
        if name not in _WITHOUT_EFFECT:
            raise TypeError(f"a loader has no argument {name!r}")
        if value != _WITHOUT_EFFECT[name] and name not in ("dataset", "collate_fn"):
            say_once(
                "workers",
                f"{name}= has no effect: batches are made by one thread of this process and by the "
                "GPU; depth= says how many are made ahead",
            )
    del filter_per_worker
    for name, given in (("sampler", sampler), ("batch_sampler", batch_sampler)):
        if given is not None and shuffle:
            raise ValueError(f"{name}= gives the order: leave shuffle out")
    if batch_sampler is not None and (sampler is not None or batch_size != 1 or drop_last):
        raise ValueError(
            "batch_sampler= says what a batch is: leave batch_size, sampler and drop_last out"
        )
    if batch_size is None and batch_sampler is None:
        raise UnsupportedError("batch_size=None (no batches) is not supported: give a number")
    size = 1 if batch_size is None else operator.index(batch_size)
    if size < 1:
        raise ValueError(f"batch_size must be at least 1, not {size}")
    depth = operator.index(depth)
    if depth < 0:
        raise ValueError(f"depth must be 0 (no thread) or more, not {depth}")
    if sm_share is not None and not 0 < sm_share <= 1:
        raise ValueError(f"sm_share must be in (0, 1], not {sm_share}")
    for name, function in (
        ("transform", transform),
        ("transform_sampler_output", transform_sampler_output),
    ):
        if function is not None and not callable(function):
            raise TypeError(f"{name} must be callable, not {type(function).__name__}")
    given_order = sampler is not None or batch_sampler is not None
    # Who gives the order has shared it out.
    shard = Shard(0, 1) if given_order and world_size is None else shard_of(rank, world_size)
    if batch_sampler is not None and shard.world_size > 1:
        raise ValueError(
            "batch_sampler= says what each rank takes: leave rank= and world_size= out"
        )
    return LoaderOptions(
        None if batch_sampler is not None else size,
        bool(shuffle),
        bool(drop_last),
        sampler,
        batch_sampler,
        _seed(seed, generator, shard),
        shard,
        depth,
        sm_share,
        transform,
        transform_sampler_output,
    )


def _seed(seed: int | None, generator: torch.Generator | None, shard: Shard) -> int:
    if seed is not None:
        if generator is not None:
            raise ValueError("give seed= or generator=, not both")
        seed = operator.index(seed)
        if not 0 <= seed < 2**63:
            raise ValueError(f"seed must be in [0, 2^63), not {seed}")
        return seed
    if generator is None and shard.world_size > 1:
        # Ranks must agree on the order, and their own generators may not.
        return 0
    if generator is not None and generator.device.type != "cpu":
        raise ValueError(
            f"generator must be on the CPU, so that every device gives the same batches, not on "
            f"{generator.device}"
        )
    return int(torch.randint(2**63 - 1, (), generator=generator, device="cpu"))
