# SPDX-License-Identifier: Apache-2.0
"""What was measured of one step: its ticks, its groups, the rates of its lanes. Decides nothing."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

__all__ = ["Rates", "SavedGroup", "Tick", "Timeline", "signature_of"]


def signature_of(group_bytes: Iterable[int]) -> str:
    """Name of a sequence of saves: a hash of the groups' bytes in the order of saving."""
    text = ",".join(str(nbytes) for nbytes in group_bytes)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


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
    it is busy.
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
