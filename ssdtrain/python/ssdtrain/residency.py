# SPDX-License-Identifier: Apache-2.0
"""How many bytes of groups are in the memory of the device that computes; decides nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .group import Group
    from .profile import Profile

__all__ = ["Residency"]


class Residency:
    """Counts groups in and out. Used inside the engine's lock.

    Attributes
    ----------
    nbytes : int
        Bytes of groups in memory: originals that a group or something else holds, loaded copies.
    peak : int
        The highest value since :meth:`begin_step`.
    profile : Profile or None
        Is told of every change.
    """

    def __init__(self) -> None:
        self.nbytes = 0
        self.peak = 0
        self.profile: Profile | None = None

    def begin_step(self, profile: Profile | None) -> None:
        """A new step."""
        self.peak = self.nbytes
        self.profile = profile

    def add(self, group: Group) -> None:
        """A group's memory is about to be taken, or is a group's from here on."""
        if group.is_resident:
            return
        if self.profile is not None:
            self.profile.close_segment(self.nbytes)
        group.is_resident = True
        self.nbytes += group.nbytes
        self.peak = max(self.peak, self.nbytes)

    def remove(self, group: Group) -> None:
        """A group's memory has been given back."""
        if not group.is_resident:
            return
        if self.profile is not None:
            self.profile.close_segment(self.nbytes)
        group.is_resident = False
        self.nbytes -= group.nbytes
