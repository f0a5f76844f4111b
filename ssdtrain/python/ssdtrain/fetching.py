# SPDX-License-Identifier: Apache-2.0
"""Gives saved tensors back: forwards what is alive, loads, or computes again."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch

from datapath_core import Error

from .checks import verify
from .faults import lost, resized
from .group import LOADED, LOADING, RELEASED, STORED, Group
from .loads import consume
from .policy import NOTHING
from .saved import Claim
from .state import EngineState
from .storage import Memory, nbytes_of, storage_of
from .stores import present
from .trace import Lane

if TYPE_CHECKING:
    from datapath_core.streams import Ticket

__all__ = ["Fetching"]


class Fetching(EngineState):
    """The half of the engine that the backward pass sees."""

    def fetch(
        self, claim: Claim, describe: Callable[[], str], is_tick: bool = True
    ) -> tuple[Memory, int]:
        """Memory with a saved tensor's bytes, and the original position of its first byte.

        Parameters
        ----------
        claim : Claim
        describe : callable
            Names the tensor in errors.
        is_tick : bool
            Whether backward asks, not another group that is computed from this one.
        """
        loads, stores, actions = self._loads, self._stores, NOTHING
        lock = self._lock.lock
        if lock._is_owned():  # type: ignore[attr-defined]
            self._lock.refuse()
        with lock:
            if self._dropped or stores.groups or stores.trailing or self._lingering.held:
                self._drain()
            group = claim.group
            if group.merged_into is not None:
                group = group.resolve()
            run, stored = group.run, group.stored
            state = group.state
            if (
                (state is STORED or state is LOADING)
                and stored is not None
                and storage_of(group.source.key) is None
            ):
                found = None
                if not group.is_counted:
                    # As Books.count() does it, which has to look first where the group is.
                    moved, tier = run.counts.moved, stored.tier
                    moved[tier], group.is_counted = moved[tier] + group.nbytes, True
            else:
                found = self._alive(group)
            if is_tick and not group.is_needed:
                group.is_needed = True
                if run.timeline is not None and self.steps.is_alive_elsewhere(group):
                    run.timeline.is_alive_elsewhere(group)
                residency = self.books.residency
                resident = residency.settle() if residency.doubtful else residency.nbytes
                actions = run.policy.needed(run.tick_of_need(group, resident), group, stores)
            if found is not None:
                self._forward(group, found, describe, is_tick)
            elif group.ingredients is None:
                copy = group.copy
                if copy is None:
                    copy = loads.start(group, describe)
                    if group.begun >= self.books.next_count:
                        self.books.count_bytes(group.begun, stores.nbytes)
                found = copy, group.loaded_start
            transfer = group.transfer
            if transfer is not None:
                if loads.take(claim, group, transfer):
                    transfer = None
            elif found is not None:
                consume(claim, group)
            if actions is not NOTHING and self._delays is None and not actions.drops:
                self._read(actions)
                actions = NOTHING
        if self._delays is not None:
            self._pause(group)
        if actions is not NOTHING:
            self._carry_out(actions)
        if transfer is not None:
            self._arrive(group, transfer, claim, describe)
        if found is None or (group.ingredients is not None and self._is_foreign(group, found[0])):
            found = self._compute(group)
            with self._lock.free():
                consume(claim, group)
        return found

    def _alive(self, group: Group) -> tuple[Memory, int] | None:
        """Memory that has a group's bytes already; counts where they were found."""
        if group.state is RELEASED:
            raise RuntimeError(
                "ssdtrain: the offloader was closed before this backward pass; call close()"
                " after the last backward"
            )
        found = group.alive()
        if not group.is_counted:
            self.books.count(group)
        return found

    def _forward(
        self, group: Group, found: tuple[Memory, int], describe: Callable[[], str], is_tick: bool
    ) -> None:
        """Count bytes that are alive; raise if they no longer are what was saved."""
        nbytes = nbytes_of(found[0])
        if nbytes < group.span.stop - found[1]:
            raise resized(describe(), group, nbytes)
        if group.state is not LOADED:
            if found[1] == 0:
                self.books.run.counts.forwarded_bytes += group.nbytes
            if not is_tick:
                group.check_version(describe())

    def _is_foreign(self, group: Group, memory: Memory) -> bool:
        """Whether a group was computed again on another stream, which this one does not follow."""
        return (
            group.state is LOADED
            and memory is group.copy
            and group.load_stream != self._streams.current(group.device)
        )

    # ------------------------------------------------------------------ computing again

    def _compute(self, group: Group) -> tuple[Memory, int]:
        output = self._run_recipe(group)
        with self._lock.free():
            if group.ingredients is not None and group.copy is None:
                self.books.residency.add(group)
                self.recomputation.made(group, output, self._streams.current(group.device))
        return output.untyped_storage(), 0

    def _run_recipe(self, group: Group) -> torch.Tensor:
        ingredients = present(group.ingredients)
        recipe = ingredients.recipe
        inputs = []

        def describe() -> str:
            return f"an input of {recipe.name}"

        for operand, read in zip(recipe.inputs, ingredients.reads, strict=True):
            if isinstance(read, Claim):
                memory, start = self.fetch(read, describe, is_tick=False)
            else:
                operand.check(read, describe())
                memory, start = read, 0
            inputs.append(operand.layout.on(memory, start))
        token = self.books.tracer.begin(recipe.name)
        try:
            output = recipe.run(inputs)
        finally:
            self.books.tracer.end(
                token, Lane.RECOMPUTE, recipe.name, group=group.index, nbytes=group.nbytes
            )
        if group.checksum is not None:
            verify(group, output.untyped_storage(), f"computed again by {recipe.name}")
        return output

    def _arrive(
        self, group: Group, transfer: Ticket, claim: Claim, describe: Callable[[], str]
    ) -> None:
        try:
            self._loads.arrive(group, transfer)
        except (Error, OSError) as error:
            with self._lock.free():
                self._lingering.add(transfer, group.copy)
                self._loads.failed(group, transfer)
            raise lost(error, describe(), group) from error
        self._loads.verify(group, describe)
        with self._lock.free():
            self._loads.arrived(group, transfer)
            consume(claim, group)
