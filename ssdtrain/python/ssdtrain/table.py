# SPDX-License-Identifier: Apache-2.0
"""The live alias groups: by storage, and in the order of saving."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .group import Group

__all__ = ["GroupTable"]


class GroupTable:
    """Finds groups by storage in constant time.

    An interrupt may come between any two lines: a group is in the whole list at least as long as
    it can be found by its storage, and both ways out may be taken again.
    """

    def __init__(self) -> None:
        self._groups: dict[Group, None] = {}
        self._by_storage: dict[int, list[Group]] = {}

    def with_key(self, key: int) -> Sequence[Group]:
        """The groups of a storage, by its identity, also those of older versions of it."""
        return self._by_storage.get(key, ())

    def add(self, group: Group) -> None:
        """Enter a group as the newest."""
        self._groups[group] = None
        key = group.source.key
        siblings = self._by_storage.get(key)
        if siblings is None:
            self._by_storage[key] = [group]
        else:
            siblings.append(group)

    def remove(self, group: Group) -> None:
        """Forget a group."""
        key = group.source.key
        siblings = self._by_storage.get(key)
        if siblings is not None:
            if group in siblings:
                siblings.remove(group)
            if not siblings:
                self._by_storage.pop(key, None)
        self._groups.pop(group, None)

    def __iter__(self) -> Iterator[Group]:
        """Oldest first."""
        return iter(self._groups)
