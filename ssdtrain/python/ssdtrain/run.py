# SPDX-License-Identifier: Apache-2.0
"""One step: its groups in the order of saving, its ticks, the policy it runs under.

Backward of a step can overlap with the forward pass of the next; then both are alive.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from .accounting import StepCounts

if TYPE_CHECKING:
    from .group import Group
    from .policy import Policy
    from .profile import Profile

__all__ = ["Run"]


class Run:
    """State of one step.

    Parameters
    ----------
    number : int
    policy : Policy
    profile : Profile or None
        Writes a timeline.

    Attributes
    ----------
    timeline : Profile or None
        The same, if it wants to know of each tick.
    groups : list of Group or None
        None once the graph has let go of it.
    group_bytes : list of int
    ticks : int
        How many there have been: saves and needs of groups, each counted the first time.
    needs : int
    held : set of int
        Positions of the groups that the graph still holds.
    peak_bytes : int
        Of groups, between ticks.
    """

    def __init__(self, number: int, policy: Policy, profile: Profile | None = None) -> None:
        self.counts = StepCounts(number)
        self.policy = policy
        self.profile = profile
        self.timeline = profile if profile is not None and profile.detailed else None
        self.groups: list[Group | None] = []
        self.group_bytes: list[int] = []
        self.ticks = 0
        self.needs = 0
        self.held: set[int] = set()
        self.peak_bytes = 0

    def add(self, group: Group) -> int:
        """Enter a group; its position."""
        groups = self.groups
        index = len(groups)
        groups.append(group)
        self.group_bytes.append(group.nbytes)
        self.held.add(index)
        return index

    def released(self, group: Group) -> None:
        """The graph has let go of a group; said twice, it is the same."""
        self.groups[group.index] = None
        self.held.discard(group.index)
        if self.timeline is not None:
            self.timeline.released(group)
        elif self.profile is not None and self.needs and not self.held:
            self.profile.look_at_peak()

    def tick(self, kind: Literal["save", "need"], group: Group, resident: int) -> int:
        """Count a tick, at which so many bytes of groups are in memory; its number."""
        # What is between ticks: a group that is saved comes and may go within its tick.
        if kind == "save":
            between = resident - group.nbytes
        else:
            between = resident
            self.needs += 1
        if between > self.peak_bytes:
            self.peak_bytes = between
        number = self.ticks
        self.ticks = number + 1
        if self.timeline is not None:
            self.timeline.tick(kind, group, resident)
        return number
