# SPDX-License-Identifier: Apache-2.0
"""The live alias groups, by storage."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .group import Group

__all__ = ["GroupTable"]


class GroupTable:
    """Finds groups by storage in constant time.

    An interrupt may come between any two lines: the way out may be taken again.

    Attributes
    ----------
    by_storage : dict of int to tuple of Group
        By the storage's identity; also groups of older versions of it.
    """

    def __init__(self) -> None:
        self.by_storage: dict[int, tuple[Group, ...]] = {}

    def with_key(self, key: int) -> Sequence[Group]:
        """The groups of a storage, by its identity, also those of older versions of it."""
        return self.by_storage.get(key, ())

    def add(self, group: Group) -> None:
        """Enter a group."""
        key, groups = group.source.key, self.by_storage
        groups[key] = (*groups[key], group) if key in groups else (group,)

    def remove(self, group: Group) -> None:
        """Forget a group."""
        key, groups = group.source.key, self.by_storage
        siblings = groups.get(key, ())
        if len(siblings) > 1:
            groups[key] = tuple(other for other in siblings if other is not group)
        elif group in siblings:
            del groups[key]

    def __iter__(self) -> Iterator[Group]:
        """All groups."""
        return chain.from_iterable(self.by_storage.values())
