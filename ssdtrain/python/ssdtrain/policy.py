# SPDX-License-Identifier: Apache-2.0
"""What to do at each tick of a step: a plan's word, or the rules of streaming. Moves nothing."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from .group import Group
from .plan import GroupPlan, Plan, Where

__all__ = [
    "NOTHING", "Actions", "KeepPolicy", "Outgoing", "Placement", "PlannedPolicy", "Policy",
    "StreamingPolicy",
]  # fmt: skip

# Groups without anything to load that streaming walks past: thousands may have stayed in memory.
_PREFETCH_WINDOW = 64
# Reading from disk runs ahead of loading to the device by this many times the bytes.
_READ_AHEAD = 2
# Fewer copies under way than these, and computation stands still for each.
_LEAST_COPIES = 2


class Outgoing(Protocol):
    """What is on its way out, as a policy sees it."""

    nbytes: int

    def __iter__(self) -> Iterator[Group]: ...  # Oldest first.

    def in_stream_order(self, group: Group) -> bool:
        """Whether the group's device goes on by itself while the host does."""


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a group is to go.

    Attributes
    ----------
    where : Where or None
        None: wherever there is room first.
    reason : str
        Of KEEP, for the report.
    """

    where: Where | None
    reason: str = ""


class Actions(NamedTuple):
    """What is to be done at a tick, in this order.

    Attributes
    ----------
    drops, reads, loads : collections of Group
        Whose memory is given back; which start from disk to the host; which start to the device.
    """

    drops: Collection[Group] = ()
    reads: Collection[Group] = ()
    loads: Collection[Group] = ()


NOTHING = Actions()
_new = tuple.__new__  # Half the time of the constructor that a named tuple has.


class Policy(Protocol):
    """Asked inside the engine's lock, tick by tick, in the order in which ticks come.

    Attributes
    ----------
    deviated : str or None
        Why a step is another one than was planned.
    waits : bool
        Whether the host waits for room on the way to disk though the device stands still meanwhile.
    """

    deviated: str | None
    waits: bool

    def place(self, group: Group, outgoing: Outgoing) -> Placement:
        """Where a group that was saved just now goes."""

    def saved(self, tick: int, group: Group, outgoing: Outgoing) -> Actions:
        """A group was saved, and is on its way if it was to go."""

    def needed(self, tick: int, group: Group, outgoing: Outgoing) -> Actions:
        """Backward asks for a group for the first time."""


class KeepPolicy:
    """Nothing moves."""

    waits = False

    def __init__(self, reason: str) -> None:
        self.deviated: str | None = None
        self._placement = Placement(Where.KEEP, reason)

    def place(self, group: Group, outgoing: Outgoing) -> Placement:
        """As :meth:`Policy.place`."""
        return self._placement

    def saved(self, tick: int, group: Group, outgoing: Outgoing) -> Actions:
        """As :meth:`Policy.saved`."""
        return NOTHING

    def needed(self, tick: int, group: Group, outgoing: Outgoing) -> Actions:
        """As :meth:`Policy.needed`."""
        return NOTHING


class StreamingPolicy:
    """Copies start at the save; the oldest is dropped when too much is on its way.

    On a device with streams dropping costs the host nothing: the stream waits. On the CPU the host
    waits, or the tensor stays.

    Parameters
    ----------
    backlog : int
        Bytes that may be on their way out. Where groups are large it is taken as twice the largest
        one of the step so far, since otherwise each copy would be waited for at once; 0 stays 0.
    prefetch : int
        Bytes that may be loaded before they are asked for.
    wait : bool
        Whether the host may wait.
    """

    def __init__(self, backlog: int, prefetch: int, wait: bool) -> None:
        self.deviated: str | None = None
        self._given = backlog
        self._backlog = backlog
        self._prefetch = prefetch
        self.waits = wait
        self._anywhere = Placement(None)

    def place(self, group: Group, outgoing: Outgoing) -> Placement:
        """As :meth:`Policy.place`."""
        if self._given and self._backlog < _LEAST_COPIES * group.nbytes:
            self._backlog = _LEAST_COPIES * group.nbytes
        waiting = outgoing.nbytes
        if (
            not self.waits
            and waiting
            and waiting + group.nbytes > self._backlog
            and not outgoing.in_stream_order(group)
        ):
            return Placement(Where.KEEP, "drives behind")
        return self._anywhere

    def saved(self, tick: int, group: Group, outgoing: Outgoing) -> Actions:
        """As :meth:`Policy.saved`."""
        excess = outgoing.nbytes - self._backlog
        if excess <= 0 or not (self.waits or outgoing.in_stream_order(group)):
            return NOTHING
        drops = []
        for oldest in outgoing:
            if excess <= 0:
                break
            drops.append(oldest)
            excess -= oldest.nbytes
        return Actions(drops=drops)

    def needed(self, tick: int, group: Group, outgoing: Outgoing) -> Actions:
        """As :meth:`Policy.needed`: what was saved before this group is asked for next."""
        if self._prefetch == 0:
            return NOTHING
        loads, reads = [], []
        budget, passed = self._prefetch, 0
        reading = self._prefetch * _READ_AHEAD
        for candidate in _before(group):
            if passed >= _PREFETCH_WINDOW or reading <= 0:
                break
            if candidate.copy is not None:
                budget -= candidate.nbytes
            elif candidate.stored is not None and candidate.alive() is None:
                reading -= candidate.nbytes
                if candidate.nbytes <= budget:
                    budget -= candidate.nbytes
                    loads.append(candidate)
                else:
                    budget = 0
                    if not outgoing.in_stream_order(group):
                        break
                    reads.append(candidate)
            else:
                passed += 1
        return Actions(reads=reads, loads=loads)


class PlannedPolicy:
    """Does what a plan says, for as long as the step is the one that was planned.

    Parameters
    ----------
    plan : Plan
    groups : sequence
        The step's groups in the order of saving, None for those that are gone: it grows.
    rest : Policy
        What happens once the step is another one.
    """

    waits = False

    def __init__(self, plan: Plan, groups: Sequence[Group | None], rest: Policy) -> None:
        self.deviated: str | None = None
        self.plan = plan
        self._groups = groups
        self._rest = rest
        self._last = 2 * len(plan.groups)
        placements = {where: Placement(where, "planned to stay") for where in Where}
        # Bytes, where to, and the tick before which it cannot be needed.
        self._planned = [
            (entry.nbytes, placements[entry.where], _earliest(entry)) for entry in plan.groups
        ]
        self._ticks: dict[int, tuple[list[int], list[int], list[int]]] = {}
        for index, entry in enumerate(plan.groups):
            for kind, tick in enumerate((entry.drop_at, entry.read_at, entry.load_at)):
                if tick is not None:
                    self._ticks.setdefault(tick, ([], [], []))[kind].append(index)
        for _, reads, loads in self._ticks.values():
            reads.sort(key=self._urgency)
            loads.sort(key=self._urgency)
        # Most ticks have nothing to do, or one thing: which, and for which group.
        self._only: dict[int, tuple[int, int]] = {}
        for tick, kinds in self._ticks.items():
            found = [(kind, index) for kind, indices in enumerate(kinds) for index in indices]
            if len(found) == 1:
                self._only[tick] = found[0]

    def place(self, group: Group, outgoing: Outgoing) -> Placement:
        """As :meth:`Policy.place`."""
        if self.deviated is None:
            index, planned = group.index, self._planned
            if index < len(planned) and planned[index][0] == group.nbytes:
                return planned[index][1]
            self._compare(group)
        return self._rest.place(group, outgoing)

    def _urgency(self, index: int) -> tuple[int, int]:
        """Of those that start at one tick the first that is needed goes first."""
        need = self.plan.groups[index].need_at
        return self._last if need is None else need, -index

    def _compare(self, group: Group) -> None:
        planned = self.plan.groups
        if group.index >= len(planned):
            self.deviated = f"more than the {len(planned)} groups planned"
        elif planned[group.index].nbytes != group.nbytes:
            self.deviated = (
                f"group {group.index} has {group.nbytes} bytes, planned were"
                f" {planned[group.index].nbytes}"
            )

    def saved(self, tick: int, group: Group, outgoing: Outgoing) -> Actions:
        """As :meth:`Policy.saved`."""
        if self.deviated is not None:
            return self._rest.saved(tick, group, outgoing)
        only = self._only.get(tick)
        if only is None:
            return self._at(tick) if tick in self._ticks else NOTHING
        return self._act(only)

    def needed(self, tick: int, group: Group, outgoing: Outgoing) -> Actions:
        """As :meth:`Policy.needed`."""
        if self.deviated is None:
            if tick >= self._planned[group.index][2]:
                only = self._only.get(tick)
                if only is None:
                    return self._at(tick) if tick in self._ticks else NOTHING
                return self._act(only)
            self.deviated = f"group {group.index} was needed at tick {tick}, before planned"
        return self._rest.needed(tick, group, outgoing)

    def _act(self, only: tuple[int, int]) -> Actions:
        """One thing to do with one group, if it is still there."""
        kind, index = only
        groups = self._groups
        if index >= len(groups) or (group := groups[index]) is None:
            return NOTHING
        if kind == 0:
            return _new(Actions, ((group,), (), ()))
        return _new(Actions, ((), (), (group,)) if kind == 2 else ((), (group,), ()))

    def _at(self, tick: int) -> Actions:
        drops, reads, loads = self._ticks[tick]
        return Actions(self._live(drops), self._live(reads), self._live(loads))

    def _live(self, indices: Sequence[int]) -> Sequence[Group]:
        groups, known = self._groups, len(self._groups)
        return [group for i in indices if i < known and (group := groups[i]) is not None]


def _earliest(entry: GroupPlan) -> int:
    tick = entry.drop_at if entry.load_at is None else entry.load_at
    return 0 if tick is None else tick


def _before(group: Group) -> Iterator[Group]:
    """The groups of its step that were saved before a group, newest first."""
    groups = group.run.groups
    for index in range(group.index - 1, -1, -1):
        candidate = groups[index]
        if candidate is not None:
            yield candidate
