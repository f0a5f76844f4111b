# SPDX-License-Identifier: Apache-2.0
"""From a traced function to emitted forward and backward programs; the order of the passes."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hector.cost import CPU, Machine
from hector.emit import Emitter, Program
from hector.emit.account import account_of, made_bytes
from hector.forms import ALL_FORMS, Forms
from hector.grad import attached, differentiate
from hector.ir.function import Function
from hector.ir.verifier import verify
from hector.passes import (
    aggregate_first,
    canonicalise,
    compact,
    eliminate_common,
    eliminate_dead,
    fold,
    fuse,
    normalise,
    reuse_sums,
)
from hector.passes.canonicalise import check_matrices
from hector.plan import Counts
from hector.split import split

__all__ = ["Built", "Candidates", "Lowered", "Stage", "lower", "rounded"]


_ALIKE = 1.04
"""Predicted times of forms that differ by less are taken to be the same."""


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
    forward, backward : Program
        The second is None where there is none.
    emitter : str
        What they are written in.
    machine : Machine
        That times are predicted for.
    """

    lowered: Lowered
    forms: Forms
    costs: dict[Forms, float]
    forward: Program
    backward: Program | None
    emitter: str
    machine: Machine


class _Pipeline:
    """Runs passes, verifies after each and keeps what they made."""

    def __init__(self, function: Function) -> None:
        self.function = function
        self.stages: list[Stage] = []

    def set(self, name: str, function: Function) -> None:
        self.function = verify(function)
        if not self.stages or self.stages[-1].function.ops != function.ops:
            self.stages.append(Stage(name, function))

    def optimise(self, forms: Forms, routes: frozenset[str], prefix: str = "") -> None:
        self.set(prefix + "canonicalise", check_matrices(canonicalise(self.function)))
        if forms.fold:
            self.set(prefix + "fold", eliminate_dead(fold(self.function)))
        if forms.aggregate_first:
            self.set(prefix + "aggregate_first", eliminate_dead(aggregate_first(self.function)))
        moved = compact(self.function, routes | forms.pair_routes)
        self.set(prefix + "compact", eliminate_dead(moved))
        self.set(prefix + "canonicalise again", canonicalise(self.function))
        self.set(prefix + "eliminate_common", eliminate_common(self.function))
        self.set(prefix + "eliminate_dead", eliminate_dead(self.function))


def lower(
    function: Function,
    wrt: frozenset[str],
    forms: Forms,
    routes: frozenset[str],
    recompute: bool = False,
) -> Lowered:
    """Run every pass on a traced function with the given forms.

    Parameters
    ----------
    function : Function
        As traced.
    wrt : frozenset of str
        Parameters whose gradients will be wanted; empty for inference.
    forms : Forms
    routes : frozenset of str
        As ``node_routes`` gives them: all that lowering depends on of a graph.
    recompute : bool
        Whether backward does arithmetic on edges again rather than reads it.

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
    pipeline.optimise(forms, routes)
    gradients = differentiate(pipeline.function, wrt)
    if not gradients.reached:
        forward = fuse(attached(pipeline.function))
        pipeline.set("fuse", forward)
        return Lowered(forward, None, (), gradients.active, tuple(pipeline.stages))
    pipeline.set("differentiate", gradients.joint)
    pipeline.set("reuse sums", eliminate_dead(reuse_sums(pipeline.function)))
    pipeline.optimise(forms, routes, "joint: ")
    if recompute:
        pipeline.set("normalise", normalise(pipeline.function))
    cut, backward = split(pipeline.function, len(function.results), recompute)
    forward, backward = verify(fuse(cut)), verify(fuse(backward))
    stages = (*pipeline.stages, Stage("forward: fuse", forward), Stage("backward: fuse", backward))
    return Lowered(forward, backward, gradients.reached, gradients.active, stages)


def _seconds(lowered: Lowered, emitter: Emitter, counts: Counts, machine: Machine) -> float:
    seconds = emitter.seconds(lowered.forward, counts, machine)
    if lowered.backward is not None:
        seconds += emitter.seconds(lowered.backward, counts, machine)
    return seconds


def rounded(counts: Counts) -> Counts:
    """Counts rounded to quarter octaves: graphs alike in size share one decision."""

    def near(count: int) -> int:
        if count < 16:
            return count
        step = 1 << (count.bit_length() - 3)
        return (count + step // 2) // step * step

    return replace(counts, **{name: near(count) for name, count in vars(counts).items()})


class Candidates:
    """The programs of one traced function in every form, each made at first use.

    Parameters
    ----------
    function : Function
        As traced.
    wrt : frozenset of str
        Parameters whose gradients will be wanted.
    routes : frozenset of str
        As ``node_routes`` gives them.
    emitter : Emitter
    """

    def __init__(
        self, function: Function, wrt: frozenset[str], routes: frozenset[str], emitter: Emitter
    ) -> None:
        self._function, self._wrt, self._routes = function, wrt, routes
        self._emitter = emitter
        self._lowered: dict[Forms, Lowered] = {}
        self._programs: dict[tuple[Forms, str], tuple[Program, Program | None]] = {}

    def lowered(self, forms: Forms) -> Lowered:
        """The fused functions of one form."""
        if forms not in self._lowered:
            self._lowered[forms] = lower(
                self._function, self._wrt, forms, self._routes, self._emitter.recomputes
            )
        return self._lowered[forms]

    def programs(self, forms: Forms, counts: Counts) -> tuple[Program, Program | None]:
        """The emitted forward and backward programs of one form, for graphs of this size."""
        key = forms, self._emitter.size_class(counts)
        if key not in self._programs:
            made = self.lowered(forms)
            backward = None if made.backward is None else self._emitter.emit(made.backward, counts)
            self._programs[key] = self._emitter.emit(made.forward, counts), backward
        return self._programs[key]

    def memory(self, forms: Forms, counts: Counts) -> int:
        """Bytes that the programs of one form hold at most, results included, as predicted."""
        made = self.lowered(forms)
        functions = [each for each in (made.forward, made.backward) if each is not None]
        return max(account_of(self._emitter.name, each, counts).memory for each in functions)

    def _chosen(self, costs: dict[Forms, float], counts: Counts, limit: int | None) -> Forms:
        """The fastest form that keeps to the limit; where none does, the one that holds least.

        For training on a GPU, of forms that are predicted to be as fast, as far as predictions go,
        the one that holds least.
        """
        order = sorted(costs, key=lambda each: costs[each])
        if self._emitter.recomputes and self.lowered(order[0]).backward is not None:
            known: dict[float, Forms] = {}
            for each in order:
                if costs[each] <= _ALIKE * costs[order[0]]:
                    known.setdefault(costs[each], each)
            if len(known) > 1:
                best = min(known.values(), key=lambda each: self.memory(each, counts))
                order.sort(key=lambda each: (each is not best, costs[each]))
        if limit is None:
            return order[0]
        for each in order:
            made = self.lowered(each)
            all_at_once = made_bytes(made.forward, counts)
            if made.backward is not None:
                all_at_once = max(all_at_once, made_bytes(made.backward, counts))
            if all_at_once <= limit or self.memory(each, counts) <= limit:
                return each
        return min(order, key=lambda each: self.memory(each, counts))

    def build(
        self,
        counts: Counts,
        forms: Forms | None = None,
        machine: Machine = CPU,
        limit: int | None = None,
    ) -> Built:
        """The programs for graphs of about these counts.

        Parameters
        ----------
        counts : Counts
        forms : Forms or None
            None takes what the cost model predicts to be fastest: the first of equals in the
            order of ``ALL_FORMS``, so that a tie keeps the plainest.
        machine : Machine
        limit : int or None
            Bytes that a pass may hold beside its inputs.

        Returns
        -------
        Built
        """
        considered = ALL_FORMS if forms is None else (forms,)
        costs = {
            each: _seconds(self.lowered(each), self._emitter, counts, machine)
            for each in considered
        }
        best = self._chosen(costs, counts, limit)
        made, (forward, backward) = self.lowered(best), self.programs(best, counts)
        return Built(
            lowered=made,
            forms=best,
            costs=costs,
            forward=forward,
            backward=backward,
            emitter=self._emitter.name,
            machine=machine,
        )
