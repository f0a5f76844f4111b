# SPDX-License-Identifier: Apache-2.0
"""What was measured of one step: its ticks, its groups, the rates of its lanes. Decides nothing."""

from __future__ import annotations

import dataclasses
import hashlib
import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from .documents import Fields, read_document, write_document

__all__ = ["Rates", "SavedGroup", "Tick", "Timeline", "signature_of"]


def signature_of(group_bytes: Iterable[int]) -> str:
    """Name of a sequence of saves: a hash of the groups' bytes in the order of saving."""
    text = ",".join(str(nbytes) for nbytes in group_bytes)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


_FORMAT = "ssdtrain timeline"


@dataclass(frozen=True, slots=True)
class Tick:
    """A moment at which a group was saved, or needed, for the first time.

    Attributes
    ----------
    kind : {"save", "need"}
    group : int
        Position of the group among those of the step, in the order of saving.
    seconds : float
        Time of computation since the step began; waits for transfers are left out.
    others : int
        Bytes allocated on the device that are no group's.
    others_peak : int
        The highest value of ``others`` since the tick before.
    """

    kind: Literal["save", "need"]
    group: int
    seconds: float
    others: int
    others_peak: int


@dataclass(frozen=True, slots=True)
class SavedGroup:
    """A range of bytes that the graph saves.

    Attributes
    ----------
    nbytes : int
    saved_at : int
        Tick of its save.
    needed_at : int or None
        Tick at which backward asks first; None if it never does.
    released_after : int
        The last tick before the graph lets go of it.
    frees : bool
        Whether its memory becomes free when the graph does not hold it: False if something else
        keeps it alive until it is needed.
    can_move : bool
        False for what must stay, whatever the plan: absorbed by a larger range, no tier takes it.
    label : str
        Dtype, shape and module, for the plan's table.
    recipe : str or None
        Name of the nearly free operation that computes it again.
    recompute_seconds : float
        Time of that operation.
    recompute_inputs : tuple of int
        Groups whose bytes it reads. What is not a group (a parameter) is in memory anyway.
    """

    nbytes: int
    saved_at: int
    needed_at: int | None
    released_after: int
    frees: bool = True
    can_move: bool = True
    label: str = ""
    recipe: str | None = None
    recompute_seconds: float = 0.0
    recompute_inputs: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Rates:
    """Measured bytes per second of each lane while the opposite lane is busy too; 0: no such lane.

    On the CPU only ``write`` and ``read`` exist. ``overhead`` is the fixed time of one transfer
    in seconds. The rates ``*_alone`` are those while the opposite lane is idle; 0: the same as when
    it is busy. ``contention`` is the part of a second by which computation falls behind for each
    second in which a lane of the device is busy, since copies use its memory and its power too.
    """

    d2h: float = 0.0
    h2d: float = 0.0
    write: float = 0.0
    read: float = 0.0
    overhead: float = 0.0
    d2h_alone: float = 0.0
    h2d_alone: float = 0.0
    write_alone: float = 0.0
    read_alone: float = 0.0
    contention: float = 0.0


@dataclass(frozen=True, slots=True)
class Timeline:
    """One step.

    Attributes
    ----------
    ticks : tuple of Tick
    groups : tuple of SavedGroup
    seconds : float
        Computation from the step's begin to its end, waits left out.
    tail_peak : int
        The highest value of ``others`` after the last tick.
    device_type : {"cuda", "cpu"}
    resident_known : bool
        Whether ``others`` was measured (CUDA) or is 0 because nobody counts (CPU).
    signature : str
        ``signature_of`` the groups' bytes.
    """

    ticks: tuple[Tick, ...]
    groups: tuple[SavedGroup, ...]
    seconds: float
    tail_peak: int = 0
    device_type: str = "cuda"
    resident_known: bool = True
    signature: str = ""

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the timeline to a JSON file, to plan from it later or elsewhere."""
        write_document(path, _FORMAT, self.to_dict())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Timeline:
        """Read a timeline from a JSON file.

        Raises
        ------
        ValueError
            If the file is no timeline, or something in it makes no sense; names the place.
        OSError
            If the file cannot be read.
        """
        return cls.from_dict(read_document(path, _FORMAT), str(path))

    def to_dict(self) -> dict[str, Any]:
        """Return the timeline as JSON-like data."""
        data = dataclasses.asdict(self)
        return {name: list(v) if isinstance(v, tuple) else v for name, v in data.items()}

    @classmethod
    def from_dict(cls, data: dict[str, Any], source: str = "timeline") -> Timeline:
        """Return the timeline that ``to_dict`` described; `source` is named in errors.

        Raises
        ------
        ValueError
            Names the field.
        """
        fields = Fields(data, source)
        timeline = cls(
            ticks=tuple(_tick_from(entry) for entry in fields.dicts("ticks")),
            groups=tuple(_group_from(entry) for entry in fields.dicts("groups")),
            seconds=fields.number("seconds"),
            tail_peak=fields.whole("tail_peak", 0),
            device_type=fields.text("device_type", "cuda"),
            resident_known=fields.flag("resident_known", True),
            signature=fields.text("signature", ""),
        )
        fields.nothing_else()
        timeline.check(source)
        return timeline

    def check(self, name: str = "timeline") -> None:
        """Raise ``ValueError`` if ticks and groups contradict each other; says where."""
        if self.device_type not in ("cuda", "cpu"):
            raise ValueError(f"{name}: device_type is {self.device_type!r}, not 'cuda' or 'cpu'")
        seconds = 0.0
        for position, tick in enumerate(self.ticks):
            place = f"{name}: tick {position}"
            if tick.seconds < seconds:
                raise ValueError(f"{place} is at {tick.seconds} s, before the tick before it")
            seconds = tick.seconds
            if not 0 <= tick.group < len(self.groups):
                raise ValueError(f"{place} is of group {tick.group}; there are {len(self.groups)}")
            group = self.groups[tick.group]
            expected = group.saved_at if tick.kind == "save" else group.needed_at
            if expected != position:
                raise ValueError(
                    f"{place} is the {tick.kind} of group {tick.group}, which has it at {expected}"
                )
        if self.seconds < seconds:
            raise ValueError(f"{name}: the step ends at {self.seconds} s, before its last tick")
        for index, group in enumerate(self.groups):
            _check_group(group, len(self.ticks), len(self.groups), f"{name}: group {index}")


def _check_group(group: SavedGroup, ticks: int, groups: int, name: str) -> None:
    needed = group.saved_at if group.needed_at is None else group.needed_at
    if not 0 <= group.saved_at <= needed <= group.released_after < max(ticks, 1):
        raise ValueError(
            f"{name}: saved_at {group.saved_at}, needed_at {group.needed_at} and released_after"
            f" {group.released_after} are not in order within {ticks} ticks"
        )
    for source in group.recompute_inputs:
        if not 0 <= source < groups:
            raise ValueError(f"{name}: is computed from group {source}; there are {groups}")


def _tick_from(fields: Fields) -> Tick:
    kind = fields.text("kind")
    if kind not in ("save", "need"):
        raise ValueError(f"{fields.name}: kind is {kind!r}, not 'save' or 'need'")
    tick = Tick(
        kind="save" if kind == "save" else "need",
        group=fields.whole("group"),
        seconds=fields.number("seconds"),
        others=fields.whole("others"),
        others_peak=fields.whole("others_peak"),
    )
    fields.nothing_else()
    return tick


def _group_from(fields: Fields) -> SavedGroup:
    group = SavedGroup(
        nbytes=fields.whole("nbytes"),
        saved_at=fields.whole("saved_at"),
        needed_at=fields.optional_whole("needed_at"),
        released_after=fields.whole("released_after"),
        frees=fields.flag("frees", True),
        can_move=fields.flag("can_move", True),
        label=fields.text("label", ""),
        recipe=fields.optional_text("recipe"),
        recompute_seconds=fields.number("recompute_seconds", 0.0),
        recompute_inputs=tuple(fields.wholes("recompute_inputs")),
    )
    fields.nothing_else()
    return group
