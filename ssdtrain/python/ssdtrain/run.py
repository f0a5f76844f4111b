# SPDX-License-Identifier: Apache-2.0
"""One step: its groups in the order of saving, its ticks, the policy it runs under.

Backward of a step can overlap with the forward pass of the next; then both are alive.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

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
    live : int
        How many groups the graph still holds.
    peak_bytes : int
        Of groups, between ticks.
    lanes : dict
        Of :class:`~ssdtrain.step_orders.StepResult`, set at the end.
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
        self.live = 0
        self.peak_bytes = 0
        self.lanes: dict[str, tuple[int, float]] = {}

    def add(self, group: Group) -> int:
        """Enter a group; its position."""
        index = len(self.groups)
        self.groups.append(group)
        self.group_bytes.append(group.nbytes)
        self.live += 1
        return index

    def released(self, group: Group) -> None:
        """The graph has let go of a group; said twice, it is the same."""
        groups, index = self.groups, group.index
        if groups[index] is not None:
            groups[index], self.live = None, self.live - 1
        profile = self.profile
        if profile is None:
            return
        if profile.detailed:
            profile.released(group)
        elif self.needs and not self.live:
            profile.look_at_peak()

    def tick_of_save(self, group: Group, resident: int) -> int:
        """Count the tick of a save, at which so many bytes are in memory; its number."""
        # What is between ticks: a group that is saved comes and may go within its tick.
        if resident - group.nbytes > self.peak_bytes:
            self.peak_bytes = resident - group.nbytes
        if self.timeline is not None:
            self.timeline.tick("save", group, resident)
        self.ticks = number = self.ticks + 1
        return number - 1

    def tick_of_need(self, group: Group, resident: int) -> int:
        """Count the tick of a need, at which so many bytes are in memory; its number."""
        if resident > self.peak_bytes:
            self.peak_bytes = resident
        if self.timeline is not None:
            self.timeline.tick("need", group, resident)
        self.needs += 1
        self.ticks = number = self.ticks + 1
        return number - 1
