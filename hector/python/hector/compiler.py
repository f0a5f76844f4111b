# SPDX-License-Identifier: Apache-2.0
"""From a traced function to emitted forward and backward programs; the order of the passes."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hector.cost import CPU, Cost, Machine, function_cost
from hector.emit import Emitter, Program
from hector.forms import ALL_FORMS, Forms
from hector.grad import differentiate
from hector.ir.function import Function, param_name
from hector.ir.verifier import verify
from hector.passes import (
    aggregate_first,
    canonicalise,
    compact,
    eliminate_common,
    eliminate_dead,
    fold,
    fuse,
)
from hector.passes.canonicalise import check_matrices
from hector.plan import Counts
from hector.split import split

__all__ = ["Built", "Stage", "build", "choose"]


@dataclass(frozen=True)
class Stage:
    """The IR after one pass."""

    name: str
    function: Function


@dataclass(frozen=True)
class Lowered:
    """Fused forward and backward functions, before emission.

    Attributes
    ----------
    forward : Function
        Results: the outputs, then what the backward reads.
    backward : Function or None
        None where no gradient is wanted or reachable.
    reached : tuple of str
        Parameters whose gradients the backward returns, in order.
    active : tuple of bool
        Which outputs depend on a parameter whose gradient is wanted.
    stages : tuple of Stage
    """

    forward: Function
    backward: Function | None
    reached: tuple[str, ...]
    active: tuple[bool, ...]
    stages: tuple[Stage, ...]


@dataclass(frozen=True)
class Built:
    """Everything about one compiled specialisation.

    Attributes
    ----------
    lowered : Lowered
    forms : Forms
    costs : dict of Forms to float
        Predicted seconds of every form considered.
    forward_cost, backward_cost : Cost
        The second is None without a backward program.
    forward, backward : Program
    """

    lowered: Lowered
    forms: Forms
    costs: dict[Forms, float]
    forward_cost: Cost
    backward_cost: Cost | None
    forward: Program
    backward: Program | None


class _Pipeline:
    """Runs passes, verifies after each and keeps what they made."""

    def __init__(self, function: Function) -> None:
        self.function = function
        self.stages: list[Stage] = []

    def set(self, name: str, function: Function) -> None:
        self.function = verify(function)
        if not self.stages or self.stages[-1].function.ops != function.ops:
            self.stages.append(Stage(name, function))

    def optimise(self, forms: Forms, counts: Counts, prefix: str = "") -> None:
        self.set(prefix + "canonicalise", check_matrices(canonicalise(self.function)))
        if forms.fold:
            self.set(prefix + "fold", eliminate_dead(fold(self.function)))
        if forms.aggregate_first:
            self.set(prefix + "aggregate_first", eliminate_dead(aggregate_first(self.function)))
        both = forms.compact_src, forms.compact_dst
        self.set(prefix + "compact", eliminate_dead(compact(self.function, counts, *both)))
        self.set(prefix + "canonicalise again", canonicalise(self.function))
        self.set(prefix + "eliminate_common", eliminate_common(self.function))
        self.set(prefix + "eliminate_dead", eliminate_dead(self.function))


def lower(function: Function, wrt: frozenset[str], forms: Forms, counts: Counts) -> Lowered:
    """Run every pass on a traced function with the given forms.

    Parameters
    ----------
    function : Function
        As traced.
    wrt : frozenset of str
        Parameters whose gradients will be wanted; empty for inference.
    forms : Forms
    counts : Counts

    Returns
    -------
    Lowered

    Raises
    ------
    UnsupportedError
        If the program needs a different matrix for each edge.
    """
    pipeline = _Pipeline(function)
    pipeline.set("trace", function)
    pipeline.optimise(forms, counts)
    gradients = differentiate(pipeline.function, wrt)
    if not gradients.reached:
        forward = fuse(pipeline.function)
        pipeline.set("fuse", forward)
        return Lowered(forward, None, (), gradients.active, tuple(pipeline.stages))
    pipeline.set("differentiate", gradients.joint)
    pipeline.optimise(forms, counts, "joint: ")
    cut, backward = split(pipeline.function, len(function.results))
    forward, backward = verify(fuse(cut)), verify(fuse(backward))
    stages = (*pipeline.stages, Stage("forward: fuse", forward), Stage("backward: fuse", backward))
    return Lowered(forward, backward, gradients.reached, gradients.active, stages)


def _seconds(lowered: Lowered, counts: Counts, machine: Machine) -> float:
    seconds = function_cost(lowered.forward, counts, machine).seconds
    if lowered.backward is not None:
        seconds += function_cost(lowered.backward, counts, machine).seconds
    return seconds


def rounded(counts: Counts) -> Counts:
    """Counts rounded to quarter octaves: graphs alike in size share one decision."""

    def near(count: int) -> int:
        if count < 16:
            return count
        step = 1 << (count.bit_length() - 3)
        return (count + step // 2) // step * step

    return replace(counts, **{name: near(count) for name, count in vars(counts).items()})


def choose(
    function: Function, wrt: frozenset[str], counts: Counts, machine: Machine = CPU
) -> tuple[Lowered, Forms, dict[Forms, float]]:
    """Lower with the forms that the cost model predicts to be fastest.

    Parameters
    ----------
    function : Function
    wrt : frozenset of str
    counts : Counts
    machine : Machine

    Returns
    -------
    lowered : Lowered
    forms : Forms
        The first of equals in the order of ``ALL_FORMS``, so that a tie keeps the plainest.
    costs : dict of Forms to float
        Predicted seconds of all.
    """
    made = {forms: lower(function, wrt, forms, counts) for forms in ALL_FORMS}
    costs = {forms: _seconds(lowered, counts, machine) for forms, lowered in made.items()}
    best = min(ALL_FORMS, key=lambda forms: costs[forms])
    return made[best], best, costs


def build(
    function: Function,
    wrt: frozenset[str],
    counts: Counts,
    emitter: Emitter,
    forms: Forms | None = None,
    machine: Machine = CPU,
) -> Built:
    """Compile a traced function for graphs of about these counts.

    Parameters
    ----------
    function : Function
        As traced.
    wrt : frozenset of str
        Parameters whose gradients will be wanted.
    counts : Counts
    emitter : Emitter
    forms : Forms or None
        None lets the cost model choose.
    machine : Machine

    Returns
    -------
    Built
    """
    names = {param_name(param) for param in function.params}
    assert wrt <= names, wrt - names
    if forms is None:
        lowered, forms, costs = choose(function, wrt, counts, machine)
    else:
        lowered = lower(function, wrt, forms, counts)
        costs = {forms: _seconds(lowered, counts, machine)}
    backward = lowered.backward
    return Built(
        lowered=lowered,
        forms=forms,
        costs=costs,
        forward_cost=function_cost(lowered.forward, counts, machine),
        backward_cost=None if backward is None else function_cost(backward, counts, machine),
        forward=emitter.emit(lowered.forward),
        backward=None if backward is None else emitter.emit(backward),
    )
