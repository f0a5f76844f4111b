# SPDX-License-Identifier: Apache-2.0
"""How many bytes of groups are in the memory of the device that computes; decides nothing."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from .group import Group
    from .profile import Profile

__all__ = ["Residency"]

# Groups looked at per call; and where nobody plans with what is found.
_SETTLE_WINDOW = 16
_IDLE_WINDOW = 2
_CPU = torch.device("cpu")


class Residency:
    """Counts groups in and out. Used inside the engine's lock.

    Attributes
    ----------
    nbytes : int
        Bytes of groups in memory: originals that a group or something else holds, loaded copies.
    doubtful : deque of Group
        Given back, while something else still held the memory.
    profile : Profile or None
        Is told of every change.
    """

    def __init__(self) -> None:
        self.nbytes = 0
        self.doubtful: deque[Group] = deque()
        self.profile: Profile | None = None

    def begin_step(self, profile: Profile | None, groups: Iterable[Group] = ()) -> None:
        """A new step, with the groups that there are: an interrupt may have left some uncounted."""
        # Those that the graph has let go of while they were copied are in doubt only.
        found = {group for group in (*groups, *self.doubtful) if group.is_resident}
        self.nbytes = sum(group.nbytes for group in found)
        self.profile = profile

    def add(self, group: Group) -> None:
        """A group's memory is about to be taken, or is a group's from here on."""
        if group.is_resident:
            return
        if self.profile is not None:
            self.profile.close_segment(self.nbytes)
        group.is_resident = True
        self.nbytes += group.nbytes

    def remove(self, group: Group) -> None:
        """A group's memory has been given back."""
        if not group.is_resident:
            return
        if self.profile is not None:
            self.profile.close_segment(self.nbytes)
        group.is_resident = False
        self.nbytes -= group.nbytes

    def given_back(self, group: Group) -> None:
        """A group no longer holds the original; something else may."""
        if group.source.get() is None:
            self.remove(group)
        elif group.is_resident:
            self.doubtful.append(group)

    def settle(self) -> int:
        """Look whether what else held memory has let go; the bytes in memory."""
        doubtful = self.doubtful
        if not doubtful:
            return self.nbytes
        # A GPU's peak is the allocator's to count, but for where it is written down whose it is.
        is_exact = self.profile is not None or doubtful[0].device == _CPU
        for _ in range(min(len(doubtful), _SETTLE_WINDOW if is_exact else _IDLE_WINDOW)):
            group = doubtful.popleft()
            if not group.is_resident or group.held is not None or group.copy is not None:
                continue
            if group.source.get() is None:
                self.remove(group)
            else:
                doubtful.append(group)
        return self.nbytes
