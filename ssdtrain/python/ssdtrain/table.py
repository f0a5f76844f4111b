# SPDX-License-Identifier: Apache-2.0
"""The live alias groups: by storage, and in the order of saving."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    from .group import Group

__all__ = ["GroupTable"]


class GroupTable:
    """Finds groups by storage in constant time and links each to the one saved before it."""

    def __init__(self) -> None:
        self._by_storage: dict[int, list[Group]] = {}
        self._newest: Group | None = None

    def of(self, storage: torch.UntypedStorage) -> Sequence[Group]:
        """The groups of a storage, also those of older versions of it."""
        return self._by_storage.get(storage._cdata, ())

    def with_key(self, key: int) -> Sequence[Group]:
        """As :meth:`of`, by the storage's identity."""
        return self._by_storage.get(key, ())

    def add(self, group: Group) -> None:
        """Enter a group as the newest."""
        self._by_storage.setdefault(group.source.key, []).append(group)
        group.previous = self._newest
        if self._newest is not None:
            self._newest.next = group
        self._newest = group

    def remove(self, group: Group) -> None:
        """Forget a group."""
        siblings = self._by_storage[group.source.key]
        siblings.remove(group)
        if not siblings:
            del self._by_storage[group.source.key]
        if group.previous is not None:
            group.previous.next = group.next
        if group.next is not None:
            group.next.previous = group.previous
        else:
            self._newest = group.previous
        group.previous = group.next = None

    def __iter__(self) -> Iterator[Group]:
        """Newest first."""
        group = self._newest
        while group is not None:
            yield group
            group = group.previous
