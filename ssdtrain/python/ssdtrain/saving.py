# SPDX-License-Identifier: Apache-2.0
"""Takes over the tensors that autograd saves: finds or makes their groups, and sends them off."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import torch

from .checks import checksum
from .group import KEPT, Group
from .plan import Where
from .policy import NOTHING, Actions, Placement
from .saved import KeptTensor, MovedTensor
from .state import EngineState
from .storage import ByteRange, VersionWatch, WeakStorage, bytes_of
from .stores import present
from .subclasses import WrappedTensor, is_wrapper

__all__ = ["Saving"]

_count_modes = torch._C._len_torch_dispatch_stack
_RECOMPUTE: Final = Where.RECOMPUTE


class Saving(EngineState):
    """The half of the engine that the forward pass sees."""

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
        if _count_modes() > 0:
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
        actions: Actions | None = NOTHING
        with self._lock.free():
            self._drain()
            self.books.run.counts.saved_tensors += 1
            group = None
            siblings = self._table.with_key(storage._cdata)
            if siblings:
                group = self._find(siblings, storage, watch, span)
            is_new = group is None
            if group is None:
                group = self._make(siblings, storage, watch, span, tensor)
            # From here on an exception lets go of the claim, and with it of the group.
            saved = MovedTensor(self, group, tensor, watch)
            group.claims.add(saved.claim)
            group.awaited += 1
            if is_new:
                actions = self._place(group, tensor)
        if self._delays is not None:
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
        self,
        siblings: Sequence[Group],
        storage: torch.UntypedStorage,
        watch: VersionWatch,
        span: ByteRange,
    ) -> Group | None:
        """The group that has these bytes already."""
        for group in siblings:
            if self._stands_for(group, storage, watch) and group.span.covers(span):
                self.books.run.counts.shared_tensors += 1
                return group
        return None

    def _make(
        self,
        siblings: Sequence[Group],
        storage: torch.UntypedStorage,
        watch: VersionWatch,
        span: ByteRange,
        tensor: torch.Tensor,
    ) -> Group:
        """A new group with these bytes; it absorbs those that overlap."""
        overlapped: Sequence[Group] = ()
        if siblings:
            overlapped = [
                group
                for group in siblings
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
        if run.profile is not None or self.steps.device is None:
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
        if group.state is not KEPT:  # Another save has absorbed it.
            return NOTHING
        run, stores = group.run, self._stores
        policy = run.policy
        was = policy.deviated
        placement = policy.place(group, stores)
        if policy.deviated is not None and was is None:
            placement = self.steps.place_otherwise(run, group, stores, placement)
        if run.timeline is not None or placement.where is _RECOMPUTE:
            placement = self._look_for_recipe(group, tensor, placement)
        if group.ingredients is None and not stores.start(group, placement):
            return None
        tick = self.books.tick("save", group, stores.nbytes)
        actions = run.policy.saved(tick, group, stores)
        if actions is not NOTHING and stores.have_ended(actions):
            return NOTHING
        return actions

    def _look_for_recipe(
        self, group: Group, tensor: torch.Tensor, placement: Placement
    ) -> Placement:
        ingredients = self.recomputation.find(group, tensor)
        measured = None
        if ingredients is not None:
            measured = self.recomputation.measured(group, ingredients)
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


def _is_changed(storage: torch.UntypedStorage, group: Group) -> bool:
    """Whether memory no longer has the bytes that were stored, though no version says so."""
    return not torch.equal(checksum(bytes_of(storage, group.span)), present(group.checksum))
