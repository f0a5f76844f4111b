# SPDX-License-Identifier: Apache-2.0
"""What steering orders for a step, and what it is told of one. Data only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from .plan import Plan
from .timeline import Timeline

__all__ = ["Mode", "StepOrder", "StepResult"]

Mode = Literal["stream", "keep", "planned"]


@dataclass(frozen=True, slots=True)
class StepOrder:
    """How a step, or the rest of one, is to run.

    Attributes
    ----------
    mode : {"stream", "keep", "planned"}
        "stream": copies start at the save, the backlog is bounded. "keep": nothing moves.
        "planned": follow ``plan``.
    plan : Plan or None
        With "keep" it says so of each group: what saves something else is another step, of which
        nobody knows that it fits.
    profile : bool
        Whether ``StepResult.timeline`` is wanted.
    reason : str
        For the report.
    partial : bool
        Given on the way: the step is no measurement of the plan.
    """

    mode: Mode
    plan: Plan | None = None
    profile: bool = False
    reason: str = ""
    partial: bool = False


@dataclass(frozen=True, slots=True)
class StepResult:
    """What was measured of a step that has ended.

    Attributes
    ----------
    group_bytes : sequence of int
        Bytes of the step's groups in the order of saving. Empty: a pass without gradients.
    seconds : float
        From the step's begin to its end, with waits.
    peak_bytes : int
        Highest allocated bytes on the device (on the CPU: of the groups); 0 if not measured.
    wait_seconds : float
        Waits for transfers.
    timeline : Timeline or None
        If it was asked for and could be measured.
    followed : bool
        False if the step left its plan on the way; such a step is no measurement of the plan.
    lanes : mapping of str to (int, float)
        Bytes that each lane of the schedulers moved since the step before, and the seconds in which
        it was busy.
    """

    group_bytes: Sequence[int]
    seconds: float
    peak_bytes: int = 0
    wait_seconds: float = 0.0
    timeline: Timeline | None = None
    followed: bool = True
    lanes: Mapping[str, tuple[int, float]] = field(default_factory=dict)
