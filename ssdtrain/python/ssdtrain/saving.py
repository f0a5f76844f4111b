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
from .recorder import is_only_recorded
from .saved import KeptTensor, MovedTensor
from .state import EngineState
from .storage import ByteRange, WeakStorage, bytes_of, counter_of
from .stores import present
from .subclasses import WrappedTensor, is_wrapper

__all__ = ["Saving"]

_Tensor: Final = torch.Tensor
_count_modes = torch._C._len_torch_dispatch_stack
_unseen = torch._C._DisableTorchDispatch
_RECOMPUTE: Final = Where.RECOMPUTE


class Saving(EngineState):
    """The half of the engine that the forward pass sees."""

    def save(self, tensor: torch.Tensor) -> KeptTensor | MovedTensor | WrappedTensor:
        """Take over a tensor that autograd saves."""
        if type(tensor) is not _Tensor or self._closing or self._lock.is_forked:
            return self._save_with_care(tensor)
        if not (modes := _count_modes()):
            return self._save_plain(tensor)
        if not is_only_recorded(modes):
            return self._save_with_care(tensor)
        # The engine's own operators are no model's.
        with _unseen():
            return self._save_plain(tensor)

    def _save_plain(self, tensor: torch.Tensor) -> KeptTensor | MovedTensor:
        """As :meth:`save`, of a tensor that wraps nothing, unseen by dispatch modes."""
        found = self.selection.examine(tensor)
        if isinstance(found, str):
            return self._keep(tensor, found)
        return self._move(tensor, found)

    def _save_with_care(self, tensor: torch.Tensor) -> KeptTensor | MovedTensor | WrappedTensor:
        """As :meth:`save`: subclasses, within dispatch modes, once the offloader is closed."""
        reason = self.selection.reason_of_surroundings(tensor)
        if reason is None and type(tensor) is not _Tensor and is_wrapper(tensor):
            try:
                return WrappedTensor(tensor, self.save)
            except AttributeError:
                pass  # Its parts cannot be told apart: it stays.
        if self._closing:
            return self._keep(tensor, "offloader closed")
        if self._lock.is_forked:
            return self._keep(tensor, "offloader of the parent process")
        if reason is not None and type(tensor) is _Tensor:
            return self._keep(tensor, reason)
        found = self.selection.examine(tensor)
        if isinstance(found, str):
            return self._keep(tensor, found)
        with _unseen():
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
        version = tensor._version
        counter = counter_of(tensor)
        actions: Actions | None = NOTHING
        run, stores, lock = self.books.run, self._stores, self._lock.lock
        if lock._is_owned():  # type: ignore[attr-defined]
            self._lock.refuse()
        with lock:
            if self._dropped or stores.groups or stores.trailing or self._lingering.held:
                self._drain()
            run.counts.saved_tensors += 1
            siblings = self._table.by_storage.get(storage._cdata)
            group = self._find(siblings, storage, version, span) if siblings else None
            is_new = group is None
            if group is None:
                group = self._make(siblings, storage, counter, version, span, tensor)
            # From here on an exception lets go of the claim, and with it of the group.
            saved = MovedTensor(self, group, tensor, counter, version)
            if is_new:
                actions = self._place(group, tensor)
        if self._delays is not None:
            self._pause(group)
        if actions is not NOTHING:
            self._finish(group, tensor, actions)
        if self.books.faults.unlogged is not None:
            self.books.faults.flush()
        return saved

    def _finish(self, group: Group, tensor: torch.Tensor, actions: Actions | None) -> None:
        """Outside the lock: what :meth:`_place` wants to be done, once there is room."""
        while actions is None:
            self._stores.wait_for_room(group)
            with self._lock.free():
                actions = self._place(group, tensor)
        self._carry_out(actions)

    def exclude(self, storage: torch.UntypedStorage, reason: str) -> None:
        """Leave the tensors of a storage alone for as long as it lives."""
        with self._lock.free():
            self._excluded[storage._cdata] = (WeakStorage(storage), reason)

    def _reason_of_storage(self, storage: torch.UntypedStorage) -> str | None:
        known = self._excluded.get(storage._cdata)
        if known is not None and known[0].is_same_memory(storage):
            return known[1]
        return None

    def _overlapping(
        self,
        siblings: Sequence[Group],
        storage: torch.UntypedStorage,
        version: int,
        span: ByteRange,
    ) -> Sequence[Group]:
        """The groups that have some of these bytes."""
        return [
            group
            for group in siblings
            if group.span.overlaps(span) and self._stands_for(group, storage, version)
        ]

    def _find(
        self,
        siblings: Sequence[Group],
        storage: torch.UntypedStorage,
        version: int,
        span: ByteRange,
    ) -> Group | None:
        """The group that has these bytes already."""
        for group in siblings:
            if self._stands_for(group, storage, version) and group.span.covers(span):
                self.books.run.counts.shared_tensors += 1
                return group
        return None

    def _make(
        self,
        siblings: Sequence[Group] | None,
        storage: torch.UntypedStorage,
        counter: torch.Tensor,
        version: int,
        span: ByteRange,
        tensor: torch.Tensor,
    ) -> Group:
        """A new group with these bytes; it absorbs those that overlap."""
        overlapped: Sequence[Group] = ()
        if siblings:
            overlapped = self._overlapping(siblings, storage, version, span)
            if overlapped:
                span = _span_of_all(overlapped, span, storage.nbytes())
        run = self.books.run
        group = Group(storage, tensor.dtype, counter, version, span, run)
        self._table.add(group)
        if run.profile is not None or self.steps.device is None:
            self.steps.saved(run, group, tensor)
        for other in overlapped:
            group.awaited += other.claims
            other.merged_into, group.claims = group, group.claims + other.claims
            other.is_counted = True
            if other.run.profile is not None:
                other.run.profile.stays(other)
            self._release(other)
        self.books.residency.add(group)
        return group

    @staticmethod
    def _stands_for(group: Group, storage: torch.UntypedStorage, version: int) -> bool:
        return group.matches(storage, version) and not (
            group.checksum is not None and _is_changed(storage, group)
        )

    def _place(self, group: Group, tensor: torch.Tensor) -> Actions | None:
        """Let a new group go where its step's policy wants it. None: once there is room."""
        if group.state is not KEPT:  # Another save has absorbed it.
            return NOTHING
        run, stores = group.run, self._stores
        policy = run.policy
        before = policy.deviated
        placement = policy.place(group, stores)
        if policy.deviated is not before:
            placement = self.steps.place_otherwise(run, group, stores, placement)
        if run.timeline is not None or placement.where is _RECOMPUTE:
            placement = self._look_for_recipe(group, tensor, placement)
        if group.ingredients is None and not stores.start(group, placement):
            return None
        residency = self.books.residency
        resident = residency.settle() if residency.doubtful else residency.nbytes
        actions = run.policy.saved(run.tick_of_save(group, resident), group, stores)
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


def _span_of_all(groups: Sequence[Group], span: ByteRange, limit: int) -> ByteRange:
    """A range with those of groups, which it overlaps, within so many bytes."""
    for group in groups:
        span = span.union(group.span)
    # A window that slides would be stored again at each step: ranges grow geometrically.
    return span.widened(max(group.nbytes for group in groups), limit)


def _is_changed(storage: torch.UntypedStorage, group: Group) -> bool:
    """Whether memory no longer has the bytes that were stored, though no version says so."""
    return not torch.equal(checksum(bytes_of(storage, group.span)), present(group.checksum))
