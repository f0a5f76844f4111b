# SPDX-License-Identifier: Apache-2.0
"""What is known of one sequence of saves: its timeline, its plan, and how earlier plans did."""

from __future__ import annotations

import dataclasses
import statistics
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from .correction import typical
from .optimise import DEFAULT_SLOWDOWN
from .plan import Limits, Plan
from .step_orders import StepResult
from .timeline import Timeline

__all__ = [
    "MOST_REPLANS", "STEPS_OF_CALIBRATION", "STEPS_OF_DRIFT", "Shape", "Tried", "best_of",
]  # fmt: skip

STEPS_OF_DRIFT = 3
MOST_REPLANS = 4

# Predictions are compared with so many steps together.
STEPS_OF_CALIBRATION = 6
# A measured step may take longer than its bound by this part of it, as the predictions may be off.
_SLOWER = 0.01
# Less than this is no gain.
_FASTER = 0.01


class Tried(NamedTuple):
    """A plan and what its steps typically were."""

    plan: Plan
    seconds: float
    peak_bytes: int

    @classmethod
    def of(cls, plan: Plan, results: Sequence[StepResult]) -> Tried:
        """A plan with steps that followed it."""
        peak = statistics.median(result.peak_bytes for result in results)
        return cls(plan, typical(result.seconds for result in results), int(peak))

    def as_measured(self) -> Plan:
        """The plan, predicted to do what it did."""
        if self.plan.prediction is None:
            return self.plan
        found = dataclasses.replace(
            self.plan.prediction, seconds=self.seconds, peak_bytes=self.peak_bytes
        )
        return dataclasses.replace(self.plan, prediction=found)


def best_of(tried: Sequence[Tried], limits: Limits, keep_seconds: float) -> Tried:
    """The plan that kept to its limits best.

    Parameters
    ----------
    tried : sequence of Tried
        At least one; of equally good ones the last is taken.
    limits : Limits
    keep_seconds : float
        Of a step in which nothing moves.
    """
    slowdown = DEFAULT_SLOWDOWN if limits.max_slowdown is None else limits.max_slowdown
    most = keep_seconds * (1 + slowdown) * (1 + _SLOWER)

    def rank(one: Tried) -> tuple[bool, float]:
        if limits.max_memory is not None:
            return one.peak_bytes > limits.max_memory, one.seconds
        is_late = one.seconds > most
        return is_late, one.seconds if is_late else one.peak_bytes

    return min(reversed(tried), key=rank)


@dataclass(slots=True)
class Shape:
    """What is known of one sequence of saves.

    Attributes
    ----------
    compared : int
        Steps under the present plan that count.
    checked : bool
        Whether a prediction of the present plan has been corrected or kept.
    drifting : int
        Steps in a row on one side of the prediction, below it negative.
    tried : list of Tried
        Earlier plans.
    """

    group_bytes: tuple[int, ...]
    timeline: Timeline | None = None
    clean: bool = False
    plan: Plan | None = None
    kept: list[Timeline] = field(default_factory=list)
    measured: deque[StepResult] = field(default_factory=lambda: deque(maxlen=STEPS_OF_CALIBRATION))
    skipped: int = 0
    compared: int = 0
    checked: bool = False
    drifting: int = 0
    replans: int = 0
    tried: list[Tried] = field(default_factory=list)
    successor: str | None = None
    steps: int = 0

    @property
    def is_old_enough(self) -> bool:
        """Whether the plan may be replaced: each has to be twice as old as the one before."""
        return self.compared >= STEPS_OF_DRIFT << min(self.replans, MOST_REPLANS - 1)

    def is_in_vain(self, results: Sequence[StepResult]) -> bool:
        """Whether the last new plan made steps no faster: another one would not either."""
        if not self.tried:
            return False
        return typical(r.seconds for r in results) > (1 - _FASTER) * self.tried[-1].seconds

    def run_under(self, plan: Plan) -> None:
        """Another plan from here on."""
        self.plan = plan
        self.measured.clear()
        self.drifting = self.skipped = self.compared = 0
        self.checked = False

    def remember(self, results: Sequence[StepResult]) -> None:
        """How the present plan did, before another comes."""
        assert self.plan is not None
        self.tried.append(Tried.of(self.plan, results))

    def run_under_the_best(self, results: Sequence[StepResult], limits: Limits) -> bool:
        """Take the best of the plans that were tried, with this one; whether it is another."""
        assert self.timeline is not None
        self.remember(results)
        present = self.tried[-1]
        best = best_of(self.tried, limits, self.timeline.seconds)
        self.tried.clear()
        if best is present:
            return False
        self.run_under(best.as_measured())
        return True
