# SPDX-License-Identifier: Apache-2.0
"""A plan: what each group of a step does, and when. Data only: saved, loaded, edited by hand."""

from __future__ import annotations

import enum
from dataclasses import dataclass

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
    """

    nbytes: int
    where: Where = Where.KEEP
    drop_at: int | None = None
    read_at: int | None = None
    load_at: int | None = None
    label: str = ""


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


@dataclass(frozen=True, slots=True)
class Plan:
    """Decisions for the groups of a step, in the order of saving."""

    groups: tuple[GroupPlan, ...]
    prediction: Prediction | None = None
    signature: str = ""
    # What the plan could not honour (a limit out of reach), for the report.
    notes: tuple[str, ...] = ()
