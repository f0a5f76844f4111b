# SPDX-License-Identifier: Apache-2.0
"""Takes over saved tensors and gives them back; :mod:`ssdtrain.policy` says what moves when.

One lock guards all state and is never held while a transfer is waited for. The graph may drop a
saved tensor on any thread at any moment, also inside the lock: dropped ones go to a queue that
whoever holds the lock empties.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch

from datapath_core import Error

from .accounting import StepCounts
from .books import MOVED, Books
from .checks import checksum
from .delays import Delays
from .faults import lost, resized
from .group import Group, State
from .guard import Guard
from .loads import Lingering, Loads
from .plan import Where
from .policy import NOTHING, Actions, Placement
from .recomputation import Recomputation
from .saved import Claim, KeptTensor, MovedTensor
from .selection import Selection
from .steps import Steps
from .storage import ByteRange, Layout, VersionWatch, WeakStorage, bytes_of
from .stores import Stores, end_of, present
from .streams import Streams
from .subclasses import WrappedTensor, is_wrapper
from .table import GroupTable
from .tiers import Tier
from .trace import Lane

if TYPE_CHECKING:
    from datapath_core.streams import Ticket

__all__ = ["Engine"]


class Engine:
    """State of one offloader.

    Parameters
    ----------
    selection : Selection
    tiers : sequence of Tier
        In the order in which they are tried.
    streams : Streams
    steps : Steps
        Which policy each step runs under.
    checks : bool
        Verify a checksum of every range that comes back.
    """

    def __init__(
        self,
        selection: Selection,
        tiers: Sequence[Tier],
        streams: Streams,
        steps: Steps,
        *,
        checks: bool,
    ) -> None:
        self.selection = selection
        self.steps = steps
        self.books = Books(steps.first())
        self.tiers = list(tiers)
        self._streams = streams
        self._stores = Stores(tiers, streams, self.books, checks=checks)
        self._loads = Loads(streams, self.books, checks=checks)
        self._lock = Guard()
        self._table = GroupTable()
        self.recomputation = Recomputation(self._table, self._before_write)
        self._dropped: deque[Claim] = deque()
        self._lingering = Lingering()
        self._excluded: dict[int, tuple[WeakStorage, str]] = {}
        self._delays = Delays.from_environment() if checks else None
        self._closing = False
        self._closed = False

    # ------------------------------------------------------------------ saving

    def save(self, tensor: torch.Tensor) -> KeptTensor | MovedTensor | WrappedTensor:
        """Take over a tensor that autograd saves."""
        if (
            type(tensor) is not torch.Tensor
            and is_wrapper(tensor)
            and self.selection.reason_of_surroundings(tensor) is None
        ):
            try:
                return WrappedTensor(tensor, self.save)
            except AttributeError:
                pass  # Its parts cannot be told apart: it stays.
        if self._closing:
            found: ByteRange | str = "offloader closed"
        elif self._lock.is_forked:
            found = "offloader of the parent process"
        else:
            found = self.selection.examine(tensor)
        if isinstance(found, str):
            return self._keep(tensor, found)
        if torch._C._len_torch_dispatch_stack() > 0:
            # The engine's own operators are no model's.
            with torch._C._DisableTorchDispatch():
                return self._move(tensor, found)
        return self._move(tensor, found)

    def _keep(self, tensor: torch.Tensor, reason: str) -> KeptTensor:
        counts = self.books.run.counts
        with self._lock.free():
            counts.saved_tensors += 1
            counts.keep(reason, tensor.numel() * tensor.element_size())
        return KeptTensor(tensor)

    def _move(self, tensor: torch.Tensor, span: ByteRange) -> KeptTensor | MovedTensor:
        storage = tensor.untyped_storage()
        if self._excluded and (reason := self._reason_of_storage(storage)) is not None:
            return self._keep(tensor, reason)
        watch = VersionWatch(tensor)
        layout = Layout.of(tensor)
        actions: Actions | None = NOTHING
        with self._lock.free():
            self._drain()
            self.books.run.counts.saved_tensors += 1
            group = self._find(storage, watch, span)
            is_new = group is None
            if group is None:
                group = self._make(storage, watch, span, tensor)
            # From here on an exception lets go of the claim, and with it of the group.
            saved = MovedTensor(self, group, layout, watch)
            group.claims.add(saved.claim)
            group.awaited += 1
            if is_new:
                actions = self._place(group, tensor)
        self._pause(group)
        while actions is None:
            self._stores.wait_for_room()
            with self._lock.free():
                actions = self._place(group, tensor)
        if actions is not NOTHING:
            self._carry_out(actions)
        self.books.faults.flush()
        return saved

    def exclude(self, storage: torch.UntypedStorage, reason: str) -> None:
        """Leave the tensors of a storage alone for as long as it lives."""
        with self._lock.free():
            self._excluded[storage._cdata] = (WeakStorage(storage), reason)

    def _reason_of_storage(self, storage: torch.UntypedStorage) -> str | None:
        known = self._excluded.get(storage._cdata)
        if known is not None and known[0].is_same_memory(storage):
            return known[1]
        return None

    def _find(
        self, storage: torch.UntypedStorage, watch: VersionWatch, span: ByteRange
    ) -> Group | None:
        """The group that has these bytes already."""
        for group in self._table.of(storage):
            if self._stands_for(group, storage, watch) and group.span.covers(span):
                self.books.run.counts.shared_tensors += 1
                return group
        return None

    def _make(
        self,
        storage: torch.UntypedStorage,
        watch: VersionWatch,
        span: ByteRange,
        tensor: torch.Tensor,
    ) -> Group:
        """A new group with these bytes; it absorbs those that overlap."""
        overlapped = [
            group
            for group in self._table.of(storage)
            if group.span.overlaps(span) and self._stands_for(group, storage, watch)
        ]
        for group in overlapped:
            span = span.union(group.span)
        if overlapped:
            # A window that slides would be stored again at each step: ranges grow geometrically.
            margin = max(group.nbytes for group in overlapped)
            span = span.widened(margin, storage.nbytes())
        run = self.books.run
        group = Group(storage, watch, span, run)
        self._table.add(group)
        self.steps.saved(run, group, tensor)
        for other in overlapped:
            group.claims |= other.claims
            group.awaited += len(other.claims)
            other.merged_into = group
            other.is_counted = True
            if other.run.profile is not None:
                other.run.profile.stays(other)
            self._release(other)
        self.books.residency.add(group)
        return group

    @staticmethod
    def _stands_for(group: Group, storage: torch.UntypedStorage, watch: VersionWatch) -> bool:
        return group.matches(storage, watch.version) and not (
            group.checksum is not None and _is_changed(storage, group)
        )

    def _place(self, group: Group, tensor: torch.Tensor) -> Actions | None:
        """Let a new group go where its step's policy wants it. None: once there is room."""
        if group.state is not State.KEPT:  # Another save has absorbed it.
            return NOTHING
        run = group.run
        placement = self.steps.place(run, group, self._stores)
        if run.wants_recipes or placement.where is Where.RECOMPUTE:
            placement = self._look_for_recipe(group, tensor, placement)
        if group.ingredients is None and not self._stores.start(group, placement):
            return None
        self.books.count_bytes(self._stores.nbytes)
        tick = run.tick("save", group, self.books.residency.settle())
        actions = run.policy.saved(tick, group, self._stores)
        if actions is not NOTHING and self._stores.have_ended(actions):
            return NOTHING
        return actions

    def _look_for_recipe(
        self, group: Group, tensor: torch.Tensor, placement: Placement
    ) -> Placement:
        ingredients = self.recomputation.find(group, tensor)
        measured = None
        if ingredients is not None:
            measured = self.recomputation.measured(ingredients)
            if measured is None:
                with self.books.waiting():
                    measured = self.recomputation.measure(group, ingredients)
        if ingredients is None or measured is None or measured.is_exact is False:
            if placement.where is Where.RECOMPUTE:
                return Placement(Where.KEEP, "no recipe")
            return placement
        if group.run.profile is not None:
            inputs = tuple(claim.group.index for claim in ingredients.claims())
            name = ingredients.recipe.name
            group.run.profile.recipe(group, name, measured.seconds, inputs)
        if placement.where is Where.RECOMPUTE:
            self.recomputation.take(group, ingredients)
            self.books.residency.given_back(group)
        return placement

    # ------------------------------------------------------------------ what a policy wants

    def _pause(self, group: Group) -> None:
        if self._delays is not None:
            self._delays.pause(group.device)

    def _carry_out(self, actions: Actions) -> None:
        for group in actions.drops:
            stored = group.stored
            if group.state is State.STORING and stored is not None:
                self._pause(group)
                self._stores.wait(group, stored)
        with self._lock.free():
            for group in actions.drops:
                self._stores.give_back(group)
            for group in actions.reads:
                if group.stored is not None and group.alive() is None:
                    group.stored.read_ahead()
            for group in actions.loads:
                self._loads.start_early(group)

    # ------------------------------------------------------------------ giving back

    def fetch(self, saved: MovedTensor) -> tuple[torch.UntypedStorage, int]:
        """A storage with a saved tensor's bytes, and the original position of its first byte."""
        return self._fetch(saved.claim, saved.describe, is_tick=True)

    def _fetch(
        self, claim: Claim, describe: Callable[[], str], *, is_tick: bool
    ) -> tuple[torch.UntypedStorage, int]:
        with self._lock.free():
            self._drain()
            group = claim.group.resolve()
            if group.state is State.RELEASED:
                raise RuntimeError(
                    "ssdtrain: the offloader was closed before this backward pass; call close()"
                    " after the last backward"
                )
            found = group.alive()
            self.books.count(group)
            actions = self._tick_of_need(group) if is_tick else NOTHING
            if found is not None:
                if found[0].nbytes() < group.span.stop - found[1]:
                    raise resized(describe(), group, found[0].nbytes())
                if found[1] == 0 and group.state is not State.LOADED:
                    self.books.run.counts.forwarded_bytes += group.nbytes
                if not is_tick and group.state is not State.LOADED:
                    group.watch.check(describe())
            elif group.ingredients is None:
                if not group.in_memory_again():
                    self.books.residency.remove(group)
                    self._loads.start(group, describe())
                found = present(group.held), group.loaded_start
            transfer = group.transfer
            if found is not None and transfer is None:
                self._loads.consume(claim, group)
        self._pause(group)
        if actions is not NOTHING:
            self._carry_out(actions)
        if transfer is not None:
            self._arrive(group, transfer, claim, describe)
        if found is None or self._is_foreign(group, found[0]):
            found = self._compute(group)
            with self._lock.free():
                self._loads.consume(claim, group)
        return found

    def _tick_of_need(self, group: Group) -> Actions:
        if group.is_needed:
            return NOTHING
        group.is_needed = True
        run = group.run
        profile = run.profile
        if profile is not None and self.steps.is_alive_elsewhere(group):
            profile.is_alive_elsewhere(group)
        self.books.count_bytes(self._stores.nbytes)
        tick = run.tick("need", group, self.books.residency.settle())
        return run.policy.needed(tick, group, self._stores)

    def _is_foreign(self, group: Group, storage: torch.UntypedStorage) -> bool:
        """Whether a group was computed again on another stream, which this one does not follow."""
        return (
            group.ingredients is not None
            and group.state is State.LOADED
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
                storage, start = self._fetch(read, describe, is_tick=False)
            else:
                storage, start = read, 0
            inputs.append(operand.layout.on(storage, start))
        token = self.books.tracer.begin(recipe.name)
        try:
            return recipe.run(inputs)
        finally:
            self.books.tracer.end(
                token, Lane.RECOMPUTE, recipe.name, group=group.index, nbytes=group.nbytes
            )

    def _before_write(self, groups: list[Group]) -> None:
        """What these groups are computed from is about to change: compute them now."""
        for group in groups:
            if group.state is not State.DROPPED:
                continue
            output = self._run_recipe(group)
            with self._lock.free():
                if group.state is State.DROPPED:
                    self._dropped.extend(self.recomputation.keep(group, output))
                    self.books.residency.add(group)
                    self.books.count_kept(group, "what it is computed from changed")

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

    # ------------------------------------------------------------------ upkeep

    def drop(self, claim: Claim) -> None:
        """The graph has let go of a saved tensor. Safe on any thread, also inside the lock."""
        if self._lock.is_forked:
            return
        self._dropped.append(claim)
        # One may come between a drain and the end of the lock.
        while self._dropped and not self._lock.is_mine:
            with self._lock.free():
                self._drain()
        self.books.faults.flush()

    def settle(self) -> None:
        """Catch up with ended transfers and dropped tensors."""
        with self._lock.free():
            self._drain()
        while self._dropped and not self._lock.is_mine:
            with self._lock.free():
                self._drain()
        self.books.faults.flush()

    def _drain(self) -> None:
        if self._lock.is_forked:  # Transfers and tiers are the parent's.
            return
        while self._dropped:
            # It leaves the queue last: an interrupt in between only repeats what follows.
            claim = self._dropped[0]
            group = claim.group.resolve()
            if group.state is not State.RELEASED:
                group.claims.discard(claim)
                self._loads.consume(claim, group)
                if not group.claims:
                    self._release(group)
            self._dropped.popleft()
        if self._stores.has_work:
            self._stores.settle()
        if self._lingering.held:
            self._lingering.settle()

    def _release(self, group: Group) -> None:
        # An interrupt may come between any two lines; then all of it is done again.
        self.books.count(group)
        self._stores.release(group)
        if group.stored is not None:
            self._lingering.add(group.stored.out, group.held)
            group.stored.free()
        if group.transfer is not None:
            self._lingering.add(group.transfer, group.held)
        self._dropped.extend(self.recomputation.release(group))
        group.held = group.loaded = group.stored = group.transfer = group.checksum = None
        self.books.residency.remove(group)
        self._table.remove(group)
        group.state = State.RELEASED
        group.run.released(group)

    # ------------------------------------------------------------------ steps and accounts

    def begin_step(self) -> StepCounts | None:
        """A new forward pass: counts start again. Those of the last one; None after a fork."""
        self.settle()
        if self._lock.is_forked:
            return None
        last = self.books.run.counts
        run = self.steps.next(self.books)
        with self._lock.free():
            self._excluded = {k: v for k, v in self._excluded.items() if v[0].get() is not None}
            for group in [group for group in self._table if not group.claims]:
                self._release(group)  # An interrupt came before its first claim.
            self._loads.begin_step()
            self._stores.begin_step()
            self.steps.start(run, self.books, self._table)
        return last

    def report(self) -> dict[str, object]:
        """Counts of the last step, with the groups that are still waiting for their backward."""
        self.settle()
        with self._lock.free():
            if not self._lock.is_forked:
                self._stores.settle_all()
            run = self.books.run
            counts = run.counts.copy()
            live: dict[str, int] = {}
            for group in self._table:
                phase = group.phase()
                live[phase] = live.get(phase, 0) + group.nbytes
                if group.run is run and not group.is_counted:
                    where = group.whereabouts()
                    if where in MOVED:
                        counts.moved[where] += group.nbytes
                    else:
                        counts.keep(where, group.nbytes)
            return {
                **counts.as_dict(),
                "live_bytes": live,
                "faults": self.books.faults.texts(),
                "deviated": run.policy.deviated,
            }

    def close(self) -> None:
        """Wait for what is on its way, then give everything back."""
        self._closing = True
        if self._closed or self._lock.is_forked:
            return
        self._wait_for_all()
        with self._lock.free():
            self._drain()
            for group in list(self._table):
                self._release(group)
        self.books.faults.flush()
        for tier in self.tiers:
            tier.close()
        self._streams.close()
        # Only now: after an interrupt a second call goes on.
        self._closed = True

    def _wait_for_all(self) -> None:
        with self._lock.free():
            tickets = self._lingering.tickets()
            for group in self._table:
                if group.stored is not None:
                    tickets.append(group.stored.out)
                if group.transfer is not None:
                    tickets.append(group.transfer)
        for ticket in tickets:
            try:
                end_of(ticket)
            except (Error, OSError):
                break  # The tier that it belongs to says more about that.

    def __del__(self) -> None:
        # Transfers know the addresses of memory that this engine holds.
        try:
            if not self._closed and not self._lock.is_forked:
                self._wait_for_all()
        except Exception:  # noqa: BLE001
            pass  # The interpreter may be half gone; nobody is left to tell.


def _is_changed(storage: torch.UntypedStorage, group: Group) -> bool:
    """Whether memory no longer has the bytes that were stored, though no version says so."""
    return not torch.equal(checksum(bytes_of(storage, group.span)), present(group.checksum))
