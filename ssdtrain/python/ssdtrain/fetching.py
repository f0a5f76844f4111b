# SPDX-License-Identifier: Apache-2.0
"""Gives saved tensors back: forwards what is alive, loads, or computes again."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch

from datapath_core import Error

from .checks import verify
from .faults import lost, resized
from .group import LOADED, RELEASED, Group
from .policy import NOTHING, Actions
from .saved import Claim
from .state import EngineState
from .stores import present
from .trace import Lane

if TYPE_CHECKING:
    from datapath_core.streams import Ticket

__all__ = ["Fetching"]


class Fetching(EngineState):
    """The half of the engine that the backward pass sees."""

    def fetch(
        self, claim: Claim, describe: Callable[[], str], is_tick: bool = True
    ) -> tuple[torch.UntypedStorage, int]:
        """A storage with a saved tensor's bytes, and the original position of its first byte.

        Parameters
        ----------
        claim : Claim
        describe : callable
            Names the tensor in errors.
        is_tick : bool
            Whether backward asks, not another group that is computed from this one.
        """
        loads = self._loads
        with self._lock.free():
            self._drain()
            group = claim.group
            if group.merged_into is not None:
                group = group.resolve()
            if group.state is RELEASED:
                raise RuntimeError(
                    "ssdtrain: the offloader was closed before this backward pass; call close()"
                    " after the last backward"
                )
            found = group.alive()
            if not group.is_counted:
                self.books.count(group)
            actions = NOTHING if group.is_needed or not is_tick else self._tick_of_need(group)
            if found is not None:
                if found[0].nbytes() < group.span.stop - found[1]:
                    raise resized(describe(), group, found[0].nbytes())
                if group.state is not LOADED:
                    if found[1] == 0:
                        self.books.run.counts.forwarded_bytes += group.nbytes
                    if not is_tick:
                        group.watch.check(describe())
            elif group.ingredients is None:
                if not group.in_memory_again():
                    self.books.residency.remove(group)
                    loads.start(group, describe)
                held = group.held
                assert held is not None
                found = held, group.loaded_start
            transfer = group.transfer
            if found is not None and transfer is None:
                loads.consume(claim, group)
            if self._delays is None and actions is not NOTHING and not actions.drops:
                self._read(actions)
                actions = NOTHING
            if transfer is not None and loads.has_arrived(group, transfer):
                loads.consume(claim, group)
                transfer = None
        if self._delays is not None:
            self._pause(group)
        if actions is not NOTHING:
            self._carry_out(actions)
        if transfer is not None:
            self._arrive(group, transfer, claim, describe)
        if found is None or (group.ingredients is not None and self._is_foreign(group, found[0])):
            found = self._compute(group)
            with self._lock.free():
                loads.consume(claim, group)
        return found

    def _tick_of_need(self, group: Group) -> Actions:
        group.is_needed = True
        run, stores = group.run, self._stores
        if run.timeline is not None and self.steps.is_alive_elsewhere(group):
            run.timeline.is_alive_elsewhere(group)
        tick = self.books.tick("need", group, stores.nbytes)
        return run.policy.needed(tick, group, stores)

    def _is_foreign(self, group: Group, storage: torch.UntypedStorage) -> bool:
        """Whether a group was computed again on another stream, which this one does not follow."""
        return (
            group.state is LOADED
            and storage is group.held
            and group.load_stream != self._streams.current(group.device)
        )

    # ------------------------------------------------------------------ computing again

    def _compute(self, group: Group) -> tuple[torch.UntypedStorage, int]:
        output = self._run_recipe(group)
        with self._lock.free():
            if group.ingredients is not None and not group.in_memory_again():
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
                storage, start = self.fetch(read, describe, is_tick=False)
            else:
                operand.check(read, describe())
                storage, start = read, 0
            inputs.append(operand.layout.on(storage, start))
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
                self._lingering.add(transfer, group.held)
                self._loads.failed(group, transfer)
            raise lost(error, describe(), group) from error
        self._loads.verify(group, describe)
        with self._lock.free():
            self._loads.arrived(group, transfer)
            self._loads.consume(claim, group)
