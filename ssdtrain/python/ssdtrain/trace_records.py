# SPDX-License-Identifier: Apache-2.0
"""What a trace consists of, and what core's schedulers add to it; records nothing itself."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

__all__ = ["Counter", "Instant", "Lane", "Quantity", "Record", "Span", "moment", "with_hops"]


class Lane(enum.StrEnum):
    """Where a span happens; the order is that of the rows in a viewer."""

    COMPUTE = "compute"
    RECOMPUTE = "recompute"
    D2H = "device to host"
    H2D = "host to device"
    WRITE = "disk write"
    READ = "disk read"


class Quantity(enum.StrEnum):
    """What a counter counts, in bytes."""

    DEVICE = "allocated on the device"  # by anyone; on the CPU: the groups' bytes in memory
    HOST = "pinned host memory"
    DISK = "on disk"
    BACKLOG = "on the way out"


# Names of a scheduler's lanes in core -> lanes here; what is missing moves no group.
_CORE_LANES = {"d2h": Lane.D2H, "h2d": Lane.H2D, "write": Lane.WRITE, "read": Lane.READ}


@dataclass(frozen=True, slots=True)
class Span:
    """Something that took time.

    Attributes
    ----------
    lane : Lane
    label : str
    begin, end : int
        Host monotonic clock in ns.
    step, group : int
        Which step's which group, in the order of saving; -1: no group's.
    nbytes : int
    failed : bool
        Whether it is a transfer that ended in an error.
    sequence : tuple of (str, int) or None
        A scheduler's device and the number of the submission there, counted from 0.
    """

    lane: Lane
    label: str
    begin: int
    end: int
    step: int = 0
    group: int = -1
    nbytes: int = 0
    failed: bool = False
    sequence: tuple[str, int] | None = None


@dataclass(frozen=True, slots=True)
class Instant:
    """Something that happened at a moment: host monotonic ns."""

    lane: Lane
    label: str
    time: int
    step: int = 0
    group: int = -1
    nbytes: int = 0


@dataclass(frozen=True, slots=True)
class Counter:
    """The value of a quantity in bytes from a moment on: host monotonic ns."""

    quantity: Quantity
    time: int
    value: int


Record = Span | Instant | Counter


def moment(record: Record) -> int:
    """When a record is, or begins, in host monotonic ns."""
    return record.begin if isinstance(record, Span) else record.time


def with_hops(
    records: Sequence[Record], schedulers: Mapping[str, Mapping[str, Any]]
) -> list[Record]:
    """Put the hops that schedulers remember in place of the spans that stand for them."""
    if not records:
        return []
    owners = {
        record.sequence: record
        for record in records
        if isinstance(record, Span) and record.sequence is not None
    }
    begin = min(map(moment, records))
    hops: list[Record] = []
    replaced = set()
    for name, description in schedulers.items():
        for hop in _hops(description):
            sequence = (name, hop["transfer"])
            owner = owners.get(sequence)
            if owner is None and hop["start"] < begin:
                continue  # Before anything was recorded.
            owner = owner or Span(Lane.D2H, "not a group's", 0, 0)
            replaced.add(sequence)
            hops.append(
                replace(
                    owner,
                    lane=_CORE_LANES[hop["lane"]],
                    begin=hop["start"],
                    end=hop["end"],
                    nbytes=hop["nbytes"],
                    failed=hop["failed"],
                    sequence=sequence,
                )
            )
    kept = [
        record
        for record in records
        if not (isinstance(record, Span) and record.sequence in replaced)
    ]
    return kept + hops


def _hops(description: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Hops on lanes that matter, with the time that they were only queued taken out.

    A copy lane is a stream: a hop there begins when the one before it has ended, whenever it was
    handed over.
    """
    hops = [dict(hop) for hop in description.get("trace", ()) if hop["lane"] in _CORE_LANES]
    hops.sort(key=lambda hop: hop["end"])
    ends: dict[str, int] = {}
    for hop in hops:
        if hop["lane"] in ("d2h", "h2d"):
            hop["start"] = max(hop["start"], ends.get(hop["lane"], 0))
            ends[hop["lane"]] = hop["end"]
    return hops
