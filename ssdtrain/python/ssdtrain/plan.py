# SPDX-License-Identifier: Apache-2.0
"""A plan: what each group of a step does, and when. Data only: saved, loaded, edited by hand."""

from __future__ import annotations

import dataclasses
import enum
import itertools
import os
from dataclasses import dataclass
from typing import Any

from .documents import Fields, read_document, write_document
from .timeline import Timeline

__all__ = ["GroupPlan", "Limits", "Plan", "Prediction", "Where"]


class Where(enum.StrEnum):
    """Where a group's bytes are between save and need."""

    KEEP = "keep"
    HOST = "host"
    DISK = "disk"
    RECOMPUTE = "recompute"


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """What one group does; ticks are positions in the step's list of ticks.

    Attributes
    ----------
    nbytes : int
        To recognise the group in a later step.
    where : Where
    drop_at : int or None
        Tick (its save or a later one) at which its memory is given back: the compute stream waits
        for the copy there. None: kept, or recomputed (then at the save).
    read_at : int or None
        DISK of a GPU tensor: tick at which it starts from disk to a pinned buffer.
    load_at : int or None
        Tick, no later than its need, at which it starts back to the device.
    label : str
        For people.
    need_at : int or None
        Tick at which it has to be there, for what is computed from it too: loads and reads that
        start at one tick start in this order, and then those saved last first.
    """

    nbytes: int
    where: Where = Where.KEEP
    drop_at: int | None = None
    read_at: int | None = None
    load_at: int | None = None
    label: str = ""
    need_at: int | None = None


@dataclass(frozen=True, slots=True)
class Limits:
    """What a plan has to keep to.

    Attributes
    ----------
    max_memory : int or None
        Bytes that ``Prediction.peak_bytes`` may reach: the step is made as fast as that allows.
    max_slowdown : float or None
        Fraction of the step with everything kept that may be added to it: the peak is made as low
        as that allows. Without either limit it is 0.02; with both, memory comes first.
    host_bytes : int
        Ceiling of pinned memory, with the buffers on the way to disk and back.
    staging_bytes : int
        Part of ``host_bytes`` that only the way to disk and back may use.
    disk_bytes : int
        Ceiling of disk space; 0 switches the disk off.
    write_bytes : int or None
        Bytes that a step may write to disk; None: any number.
    allow_host : bool
        Whether groups may wait in pinned memory. If False, it only serves the disk.
    allow_recompute : bool
    """

    max_memory: int | None = None
    max_slowdown: float | None = None
    host_bytes: int = 0
    disk_bytes: int = 0
    write_bytes: int | None = None
    allow_host: bool = True
    allow_recompute: bool = True
    staging_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Prediction:
    """What a plan is expected to do, and the step without it.

    Attributes
    ----------
    seconds, keep_seconds : float
        The step under the plan, and with everything kept.
    peak_bytes, keep_peak_bytes : int
        Highest allocated bytes on the device (on the CPU: of the groups).
    wait_seconds, recompute_seconds : float
        Parts of ``seconds``.
    host_bytes, disk_bytes : int
        Highest use of pinned memory, and bytes written to disk in the step.
    """

    seconds: float
    keep_seconds: float
    peak_bytes: int
    keep_peak_bytes: int
    wait_seconds: float = 0.0
    recompute_seconds: float = 0.0
    host_bytes: int = 0
    disk_bytes: int = 0


_FORMAT = "ssdtrain plan"


@dataclass(frozen=True, slots=True)
class Plan:
    """Decisions for the groups of a step, in the order of saving.

    Attributes
    ----------
    groups : tuple of GroupPlan
    prediction : Prediction or None
        None after an edit: simulate it to know.
    signature : str
        ``signature_of`` the groups' bytes.
    notes : tuple of str
        What the plan could not honour (a limit out of reach), for the report.
    """

    groups: tuple[GroupPlan, ...]
    prediction: Prediction | None = None
    signature: str = ""
    notes: tuple[str, ...] = ()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the plan to a JSON file that people can read and edit."""
        write_document(path, _FORMAT, self.to_dict())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Plan:
        """Read a plan from a JSON file.

        Raises
        ------
        ValueError
            If the file is no plan, or something in it makes no sense; names the place.
        OSError
            If the file cannot be read.
        """
        return cls.from_dict(read_document(path, _FORMAT), str(path))

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as JSON-like data; what is None is left out of the groups."""
        groups = [
            {name: value for name, value in dataclasses.asdict(group).items() if value is not None}
            for group in self.groups
        ]
        prediction = None if self.prediction is None else dataclasses.asdict(self.prediction)
        return {
            "signature": self.signature,
            "notes": list(self.notes),
            "prediction": prediction,
            "groups": groups,
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any], source: str = "plan") -> Plan:
        """Return the plan that ``to_dict`` described; `source` is named in errors.

        Raises
        ------
        ValueError
            Names the field.
        """
        fields = Fields(data, source)
        prediction = fields.optional_dict("prediction")
        groups = [_group_from(entry) for entry in fields.dicts("groups")]
        plan = cls(
            tuple(groups),
            None if prediction is None else _prediction_from(prediction),
            fields.text("signature", ""),
            tuple(fields.texts("notes")),
        )
        fields.nothing_else()
        return plan

    def edit(self, *positions: int, **changes: Any) -> Plan:
        """Return the plan with groups changed: ``plan.edit(3, 4, where=Where.KEEP)``.

        Parameters
        ----------
        *positions : int
            Groups, in the order of saving.
        **changes
            Fields of ``GroupPlan``. With KEEP or RECOMPUTE the ticks are cleared.

        Returns
        -------
        Plan
            Without a prediction.

        Raises
        ------
        IndexError, TypeError, ValueError
            If there is no such group or field, or ticks are out of order.
        """
        groups = list(self.groups)
        for position in positions:
            if not 0 <= position < len(groups):
                raise IndexError(f"group {position} of a plan of {len(groups)} groups")
            if "where" in changes:
                changes["where"] = _where(changes["where"], f"group {position}")
                if changes["where"] in (Where.KEEP, Where.RECOMPUTE):
                    changes |= dict.fromkeys(("drop_at", "read_at", "load_at", "need_at"))
            groups[position] = dataclasses.replace(groups[position], **changes)
            _check_group(groups[position], f"group {position}")
        return dataclasses.replace(self, groups=tuple(groups), prediction=None)

    def summary(self) -> dict[str, Any]:
        """Return ``bytes`` by place, how many ``groups`` there are, and how many are ``moved``."""
        where = {place.value: 0 for place in Where}
        for group in self.groups:
            where[group.where.value] += group.nbytes
        moved = sum(1 for group in self.groups if group.where is not Where.KEEP)
        return {"bytes": where, "groups": len(self.groups), "moved": moved}

    def check(self, timeline: Timeline) -> None:
        """Raise ``ValueError`` if the plan cannot be followed in a step; names the group."""
        if len(self.groups) != len(timeline.groups):
            raise ValueError(
                f"the plan is for {len(self.groups)} groups, the step has {len(timeline.groups)};"
                " make a plan from this step"
            )
        for index, (plan, group) in enumerate(zip(self.groups, timeline.groups, strict=True)):
            name = f"group {index} ({plan.label})" if plan.label else f"group {index}"
            _check_group(plan, name)
            if plan.nbytes != group.nbytes:
                raise ValueError(
                    f"{name} has {plan.nbytes} bytes in the plan and {group.nbytes} in the step;"
                    " make a plan from this step"
                )
            if plan.where is Where.KEEP:
                continue
            if not group.can_move:
                raise ValueError(f"{name} cannot be moved; its where must be 'keep'")
            if plan.where is Where.RECOMPUTE:
                if group.recipe is None:
                    raise ValueError(f"{name} has no recipe; its where cannot be 'recompute'")
                continue
            if plan.where is Where.HOST and timeline.device_type == "cpu":
                raise ValueError(f"{name} is in host memory already; its where cannot be 'host'")
            first, last = group.saved_at, group.needed_at
            if last is None:
                last = len(timeline.ticks) - 1
            for field in ("drop_at", "read_at", "load_at"):
                tick = getattr(plan, field)
                if tick is not None and not first <= tick <= last:
                    raise ValueError(
                        f"{name}: {field} is tick {tick}, outside of {first} (its save) to {last}"
                        " (its need)"
                    )


def _check_group(plan: GroupPlan, name: str) -> None:
    names = ("drop_at", "read_at", "load_at", "need_at")
    ticks = [(field, getattr(plan, field)) for field in names]
    for field, number in (("nbytes", plan.nbytes), *ticks):
        is_whole = isinstance(number, int) and not isinstance(number, bool)
        if not is_whole and (number is not None or field == "nbytes"):
            raise TypeError(f"{name}: {field} is {number!r}, not a whole number")
    if plan.nbytes < 0:
        raise ValueError(f"{name}: nbytes is {plan.nbytes}, less than 0")
    if plan.where in (Where.KEEP, Where.RECOMPUTE):
        for field, tick in ticks:
            if tick is not None:
                raise ValueError(
                    f"{name}: {field} means nothing when where is {plan.where.value!r}"
                )
        return
    if plan.drop_at is None:
        raise ValueError(
            f"{name}: where is {plan.where.value!r} without drop_at: it would be copied in vain;"
            " give the tick at which its memory is given back, or keep it"
        )
    if plan.where is Where.HOST and plan.read_at is not None:
        raise ValueError(f"{name}: read_at means nothing when where is 'host'")
    known = [(field, tick) for field, tick in ticks if tick is not None]
    for (one, earlier), (other, later) in itertools.pairwise(known):
        if later < earlier:
            raise ValueError(f"{name}: {other} is tick {later}, before {one}, {earlier}")


def _where(value: object, name: str) -> Where:
    try:
        return Where(str(value))
    except ValueError:
        places = ", ".join(repr(place.value) for place in Where)
        raise ValueError(f"{name}: where is {value!r}; it must be one of {places}") from None


def _group_from(fields: Fields) -> GroupPlan:
    plan = GroupPlan(
        nbytes=fields.whole("nbytes"),
        where=_where(fields.text("where", "keep"), fields.name),
        drop_at=fields.optional_whole("drop_at"),
        read_at=fields.optional_whole("read_at"),
        load_at=fields.optional_whole("load_at"),
        label=fields.text("label", ""),
        need_at=fields.optional_whole("need_at"),
    )
    fields.nothing_else()
    _check_group(plan, fields.name)
    return plan


def _prediction_from(fields: Fields) -> Prediction:
    prediction = Prediction(
        seconds=fields.number("seconds"),
        keep_seconds=fields.number("keep_seconds"),
        peak_bytes=fields.whole("peak_bytes"),
        keep_peak_bytes=fields.whole("keep_peak_bytes"),
        wait_seconds=fields.number("wait_seconds", 0.0),
        recompute_seconds=fields.number("recompute_seconds", 0.0),
        host_bytes=fields.whole("host_bytes", 0),
        disk_bytes=fields.whole("disk_bytes", 0),
    )
    fields.nothing_else()
    return prediction
