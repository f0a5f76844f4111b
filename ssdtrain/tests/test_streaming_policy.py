# SPDX-License-Identifier: Apache-2.0
"""Streaming: how much may be on its way, what is dropped, and when a group stays instead."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from ssdtrain.plan import Where
from ssdtrain.policy import StreamingPolicy


class Way:
    """Groups on their way out, on a device with streams or without."""

    def __init__(self, *, streams: bool = True) -> None:
        self.groups: list[Any] = []
        self.streams = streams

    @property
    def nbytes(self) -> int:
        return sum(group.nbytes for group in self.groups)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.groups)

    def in_stream_order(self, group: Any) -> bool:
        return self.streams


def under_way(policy: StreamingPolicy, sizes: list[int], way: Way) -> list[list[int]]:
    """Sizes of what is on its way after each save."""
    found = []
    for tick, nbytes in enumerate(sizes):
        group: Any = SimpleNamespace(nbytes=nbytes)
        if policy.place(group, way).where is not Where.KEEP:
            way.groups.append(group)
        for dropped in policy.saved(tick, group, way).drops:
            way.groups.remove(dropped)
        found.append([entry.nbytes for entry in way.groups])
    return found


def test_two_copies_are_under_way_however_large_the_groups() -> None:
    policy = StreamingPolicy(backlog=10, prefetch=0, wait=True)
    assert under_way(policy, [100] * 4, Way()) == [[100], [100, 100], [100, 100], [100, 100]]


def test_the_backlog_holds_where_groups_are_small() -> None:
    policy = StreamingPolicy(backlog=10, prefetch=0, wait=True)
    assert under_way(policy, [4] * 4, Way()) == [[4], [4, 4], [4, 4], [4, 4]]
    # From the first large one on it is twice that.
    assert under_way(policy, [8, 4, 4], Way()) == [[8], [8, 4], [8, 4, 4]]


@pytest.mark.parametrize("size", [1, 100])
def test_without_a_backlog_each_store_is_waited_for(size: int) -> None:
    policy = StreamingPolicy(backlog=0, prefetch=0, wait=True)
    assert under_way(policy, [size] * 3, Way()) == [[], [], []]


def test_a_host_that_may_not_wait_keeps_what_is_too_much() -> None:
    policy = StreamingPolicy(backlog=10, prefetch=0, wait=False)
    assert under_way(policy, [100] * 4, Way(streams=False))[-1] == [100, 100]
    policy = StreamingPolicy(backlog=10, prefetch=0, wait=False)
    assert under_way(policy, [4] * 4, Way(streams=False))[-1] == [4, 4]
