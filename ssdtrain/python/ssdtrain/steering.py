# SPDX-License-Identifier: Apache-2.0
"""Which plan a step runs under: profiling, drift, changed shapes. Pure logic, moves nothing.

The engine asks before a step, tells after it, and asks once more when a step saves something else
than was expected.
"""

from __future__ import annotations

import dataclasses
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from typing import Any

from .comparison import PEAK_TOLERANCE, TIME_TOLERANCE, agree, differs, errors, medians
from .correction import averaged, corrected, faster_drive, typical
from .optimise import kept_plan, optimise
from .plan import Limits, Plan, Prediction
from .shapes import MOST_REPLANS, STEPS_OF_CALIBRATION, STEPS_OF_DRIFT, Shape
from .simulate import keep_everything, simulate
from .step_orders import StepOrder, StepResult
from .timeline import Rates, Timeline, signature_of

__all__ = ["Steering", "StepOrder", "StepResult"]

# The first steps under a new plan are no measure of it: pools grow, and the GPU's clock swings
# after the pause in which it was made.
SKIPPED_STEPS = 2
MOST_SIGNATURES = 16
# Where keeping all does not fit. The first step also loads kernels and grows pools.
STREAMED_STEPS = 2
# Steps with everything kept whose mean is taken. After a pause a GPU runs above its lasting clock
# for a step, then below it: on an H200 by 4 % each.
KEPT_STEPS = 2
# Predictions are corrected where they differ by more.
CALIBRATION_TOLERANCE = 0.005
PROMISE_TOLERANCE = 0.002
WAIT_TOLERANCE = 0.01


class Steering:
    """Decides how each step runs, and makes the plans.

    Parameters
    ----------
    limits : Limits
    rates : callable
        Measures the lanes; called once, when the first plan is made.
    plan : Plan, optional
        A plan that the user gave: followed from the first step on and never replaced.
    planner : callable, optional
        ``optimise``, or a stand-in in tests.

    Notes
    -----
    Use::

        order = steering.begin_step(most_bytes)
        # At a save whose bytes are not those of order.plan at that position:
        order = steering.mismatch(bytes_of_the_groups_saved_so_far)
        # When the step has ended and its events can be read:
        steering.end_step(order, StepResult(...))

    A result may be handed in some steps late, with the order that the step ended under.
    """

    def __init__(
        self,
        limits: Limits,
        rates: Callable[[], Rates],
        plan: Plan | None = None,
        planner: Callable[[Timeline, Rates, Limits], Plan] = optimise,
    ) -> None:
        self._limits = limits
        self._measure_rates = rates
        self._rates: Rates | None = None
        self._fastest = Rates()
        self._given = plan
        self._planner = planner
        self._shapes: OrderedDict[str, Shape] = OrderedDict()
        self._last: str | None = None
        self._order = StepOrder("stream", reason="no step yet")
        self._replans: list[str] = []
        self._given_results: deque[StepResult] = deque(maxlen=STEPS_OF_DRIFT)

    # ------------------------------------------------------------------ before and during a step

    def begin_step(self, most_bytes: int | None = None) -> StepOrder:
        """Say how the next step runs.

        Parameters
        ----------
        most_bytes : int, optional
            Bytes that may be allocated on the device in all. None: no limit is known.

        Returns
        -------
        StepOrder
        """
        self._order = self._choose(most_bytes)
        return self._order

    def mismatch(self, group_bytes: Sequence[int]) -> StepOrder:
        """Say how the rest of a step runs that saves something else than expected.

        Parameters
        ----------
        group_bytes : sequence of int
            Bytes of the groups saved so far, the unexpected one last.

        Returns
        -------
        StepOrder
            Planned, under the plan of a step that begins so, or streaming.
        """
        begin = tuple(group_bytes)
        self._order = StepOrder("stream", None, True, "saves not seen before", partial=True)
        if self._given is None:
            for shape in reversed(self._shapes.values()):
                if shape.plan is not None and shape.group_bytes[: len(begin)] == begin:
                    reason = "another known step"
                    self._order = StepOrder("planned", shape.plan, False, reason, partial=True)
                    break
        return self._order

    def _choose(self, most_bytes: int | None) -> StepOrder:
        if self._given is not None:
            return StepOrder("planned", self._given, reason="plan given by the user")
        shape = self._expected()
        if shape is None:
            return StepOrder("stream", profile=True, reason="first step")
        if shape.plan is not None:
            # A timeline of a streamed step may be far off. One of kept steps is better than any
            # other, since measuring each tick takes host time, of which transfers need some, too.
            settled = shape.clean or shape.checked or shape.replans >= MOST_REPLANS
            profile = shape.drifting != 0 and not settled
            return StepOrder("planned", shape.plan, profile, "plan made from measured steps")
        if shape.timeline is None:
            return StepOrder("stream", profile=True, reason="seen once, not yet measured")
        if not shape.clean and self._fits(shape.timeline, most_bytes):
            kept = kept_plan(shape.timeline)
            return StepOrder("keep", kept, True, "measures times without transfers")
        if shape.steps < STREAMED_STEPS:
            return StepOrder("stream", profile=True, reason="measures a step that is warm")
        self._make_plan(shape)
        return StepOrder("planned", shape.plan, reason="plan made from a streamed step")

    def _expected(self) -> Shape | None:
        """Return the shape that came after the last one the last time, else the last one."""
        if self._last is None:
            return None
        last = self._shapes[self._last]
        if last.successor is not None and last.successor in self._shapes:
            return self._shapes[last.successor]
        return last

    def _fits(self, timeline: Timeline, most_bytes: int | None) -> bool:
        ceilings = [b for b in (most_bytes, self._limits.max_memory) if b is not None]
        if not ceilings:
            return True
        peak = keep_everything(timeline).peak_bytes
        return peak <= min(ceilings)

    # ------------------------------------------------------------------ after a step

    def end_step(self, order: StepOrder, result: StepResult) -> None:
        """Take what was measured of a step.

        Parameters
        ----------
        order : StepOrder
            The last order of that step.
        result : StepResult
        """
        if not result.group_bytes:
            return
        if self._given is not None:
            if result.followed:
                self._given_results.append(result)
            return
        signature = signature_of(result.group_bytes)
        shape = self._seen(signature, result)
        if order.mode == "planned":
            if (
                result.followed
                and not order.partial
                and order.plan is not None
                and shape.plan is not None
                and order.plan.groups is shape.plan.groups
            ):
                self._compare(shape, result)
        elif result.timeline is not None and not shape.clean:
            shape.timeline = result.timeline
            if order.mode == "keep" and result.followed:
                self._take_kept(shape, result.timeline)

    def _take_kept(self, shape: Shape, timeline: Timeline) -> None:
        shape.kept.append(timeline)
        if len(shape.kept) < KEPT_STEPS and timeline.device_type == "cuda":
            return
        shape.timeline = averaged(shape.kept)
        shape.clean = True
        shape.kept.clear()
        self._make_plan(shape)

    def _seen(self, signature: str, result: StepResult) -> Shape:
        shape = self._shapes.get(signature)
        if shape is None:
            shape = self._shapes[signature] = Shape(tuple(result.group_bytes))
            if len(self._shapes) > MOST_SIGNATURES:
                self._shapes.popitem(last=False)
        self._shapes.move_to_end(signature)
        shape.steps += 1
        if self._last is not None and self._last in self._shapes:
            self._shapes[self._last].successor = signature
        self._last = signature
        return shape

    def _compare(self, shape: Shape, result: StepResult) -> None:
        assert shape.plan is not None
        prediction = shape.plan.prediction
        if prediction is None:
            return
        if shape.skipped < SKIPPED_STEPS:
            shape.skipped += 1
            shape.measured.append(result)  # For the report.
            return
        if shape.skipped == SKIPPED_STEPS:
            shape.skipped += 1
            shape.measured.clear()
        if shape.measured:
            # Only the last one's timeline can be of use.
            shape.measured.append(dataclasses.replace(shape.measured.pop(), timeline=None))
        shape.measured.append(result)
        shape.compared += 1
        exceeds = self._exceeds(result, prediction)
        side = 1 if exceeds else differs(result, prediction)
        # Steps that swing to both sides do not drift.
        shape.drifting = side + (shape.drifting if side * shape.drifting > 0 else 0)
        results = list(shape.measured)[-STEPS_OF_DRIFT:]
        # Where steps are faster than predicted the prediction has to follow, and the plan does not.
        if shape.drifting >= STEPS_OF_DRIFT and (exceeds or shape.is_old_enough):
            found = errors(results, prediction)
            reason = (
                f"step time {found['seconds']:+.1%}, peak {found['peak_bytes']:+.1%} beside"
                f" the prediction, {STEPS_OF_DRIFT} steps in a row"
            )
            in_vain = found["seconds"] > TIME_TOLERANCE and shape.is_in_vain(results)
            if shape.replans < MOST_REPLANS and (exceeds or not in_vain):
                self._correct(shape, results)
                self._plan_again(shape, results, reason)
                return
            if shape.tried:
                self._return_to_best(shape, results, reason)
                return
        if len(shape.measured) == STEPS_OF_CALIBRATION:
            self._calibrate(shape, prediction)

    def _calibrate(self, shape: Shape, prediction: Prediction) -> None:
        """Predict what the last steps took; make another plan if this one is not for that."""
        shape.checked = True
        results = list(shape.measured)
        error = typical(result.seconds for result in results) / prediction.seconds - 1
        peak_error = errors(results, prediction)["peak_bytes"]
        may_plan = shape.replans < MOST_REPLANS and shape.is_old_enough
        faster = faster_drive(self._known_rates(), results) if may_plan else ""
        is_right = abs(error) <= CALIBRATION_TOLERANCE and abs(peak_error) <= PEAK_TOLERANCE
        if (is_right and not faster) or not agree(results):
            return
        assert shape.plan is not None
        self._correct(shape, results)
        assert shape.timeline is not None
        found = simulate(shape.timeline, self._known_rates(), shape.plan).prediction
        reason = self._unplanned(found, prediction) or faster
        in_vain = shape.is_in_vain(results)
        if reason and may_plan and not in_vain:
            self._plan_again(shape, results, reason)
            return
        if reason and shape.replans < MOST_REPLANS and not in_vain:
            shape.measured.clear()  # Once more, until the plan is old enough for another.
            return
        if reason and shape.tried:
            self._return_to_best(shape, results, reason)
            return
        shape.plan = dataclasses.replace(shape.plan, prediction=found)
        shape.measured.clear()
        shape.drifting = 0

    def _unplanned(self, found: Prediction, planned: Prediction) -> str:
        """Why another plan may do better than one that does what was found; "" if it may not."""
        allowed = self._limits.max_slowdown
        if allowed is not None and self._limits.max_memory is None:
            slower = found.seconds / found.keep_seconds - 1
            if slower > allowed + PROMISE_TOLERANCE:
                return f"{slower:.1%} slower than with everything kept, {allowed:.1%} allowed"
        waits = found.wait_seconds - planned.wait_seconds
        if waits > WAIT_TOLERANCE * found.keep_seconds:
            return f"waits take {waits / found.keep_seconds:.1%} of the step more than planned"
        return ""

    def _correct(self, shape: Shape, results: Sequence[StepResult]) -> None:
        assert shape.timeline is not None
        assert shape.plan is not None
        shape.timeline, self._rates = corrected(
            shape.timeline, self._known_rates(), shape.plan, results, self._fastest
        )

    def _return_to_best(self, shape: Shape, results: Sequence[StepResult], reason: str) -> None:
        """Of all plans that were tried take the best one: what was learnt makes none better."""
        shape.replans = MOST_REPLANS
        if shape.run_under_the_best(results, self._limits):
            self._replans.append(f"{reason}; back to an earlier plan, which did better")

    def _plan_again(self, shape: Shape, results: Sequence[StepResult], reason: str) -> None:
        shape.remember(results)
        shape.replans += 1
        self._replans.append(reason)
        self._make_plan(shape)

    def _exceeds(self, result: StepResult, prediction: Prediction) -> bool:
        """Whether a step took more memory than allowed, though the plan promised it would not."""
        most = self._limits.max_memory
        return most is not None and prediction.peak_bytes <= most < result.peak_bytes

    def _make_plan(self, shape: Shape) -> None:
        assert shape.timeline is not None
        shape.run_under(self._planner(shape.timeline, self._known_rates(), self._limits))

    def _known_rates(self) -> Rates:
        if self._rates is None:
            self._rates = self._fastest = self._measure_rates()
        return self._rates

    # ------------------------------------------------------------------ for the report

    def describe(self) -> dict[str, Any]:
        """Return what is going on, as plain data.

        Returns
        -------
        dict
            ``mode`` and ``reason`` of the last order; ``plan`` (bytes per place, numbers of groups)
            or None; ``prediction`` and ``measured`` (medians of the last steps), each a dict of
            ``seconds``, ``peak_bytes``, ``wait_seconds`` or None; ``error`` (fractions by which
            the measurement exceeds the prediction: ``seconds``, ``peak_bytes``) or None; ``plans``
            (how many are kept), ``replans`` (how often another was taken), ``last_replan``
            (why, or None); ``notes`` (list of str); ``rates`` (planned with, a dict) or None.
        """
        plan, results, notes = self._current()
        prediction = None if plan is None else plan.prediction
        known = prediction is not None and bool(results)
        return {
            "mode": self._order.mode,
            "reason": self._order.reason,
            "plan": None if plan is None else plan.summary(),
            "prediction": None
            if prediction is None
            else {
                "seconds": prediction.seconds,
                "peak_bytes": prediction.peak_bytes,
                "wait_seconds": prediction.wait_seconds,
            },
            "measured": medians(results) if results else None,
            "error": errors(results, prediction) if known and prediction is not None else None,
            "plans": sum(1 for shape in self._shapes.values() if shape.plan is not None)
            + (self._given is not None),
            "replans": len(self._replans),
            "last_replan": self._replans[-1] if self._replans else None,
            "notes": notes,
            "rates": None if self._rates is None else dataclasses.asdict(self._rates),
        }

    @property
    def current_plan(self) -> Plan | None:
        """The plan of the last order, or the one that the last step's shape has."""
        return self._current()[0]

    @property
    def current_timeline(self) -> Timeline | None:
        """What is known of the last step's shape, corrected by later measurements."""
        return None if self._last is None else self._shapes[self._last].timeline

    def _current(self) -> tuple[Plan | None, list[StepResult], list[str]]:
        if self._given is not None:
            return self._given, list(self._given_results), list(self._given.notes)
        if self._last is None:
            return None, [], []
        shape = self._shapes[self._last]
        notes = [] if shape.plan is None else list(shape.plan.notes)
        if shape.replans >= MOST_REPLANS and abs(shape.drifting) >= STEPS_OF_DRIFT:
            notes.append(
                f"steps still differ from the prediction after {MOST_REPLANS} plans; the last stays"
            )
        return shape.plan, list(shape.measured), notes
