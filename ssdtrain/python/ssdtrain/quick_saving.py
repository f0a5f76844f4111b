# SPDX-License-Identifier: Apache-2.0
"""The save of a tensor in one piece, for what most of them are: plain, alone, and on their way out.

:mod:`ssdtrain.saving` is taken apart by concepts, and most of the functions that a tensor passes
there find nothing to do: it wraps nothing, is no parameter, overlaps nothing, and no step is
written down. Here all these questions are asked first; what is not plain goes the other way, and
nothing has been changed by then.
"""

from __future__ import annotations

from typing import Final

import torch

from .group import Group
from .policy import NOTHING, Actions
from .recorder import is_only_recorded
from .saved import KeptTensor, MovedTensor
from .saving import Saving
from .selection import is_capturing
from .storage import ALIGNMENT, counter_of
from .subclasses import WrappedTensor

__all__ = ["QuickSaving"]

_Tensor: Final = torch.Tensor
_NOTHING: Final[Actions | None] = NOTHING
_count_modes = torch._C._len_torch_dispatch_stack
_unseen = torch._C._DisableTorchDispatch
_dispatch_keys = torch._C._dispatch_keys


class QuickSaving(Saving):
    """:class:`~ssdtrain.saving.Saving` with a short way through it."""

    def save(self, tensor: torch.Tensor) -> KeptTensor | MovedTensor | WrappedTensor:
        """As :meth:`Saving.save`."""
        if not (modes := _count_modes()):
            return self._save_quickly(tensor)
        if not is_only_recorded(modes) or type(tensor) is not _Tensor:
            return super().save(tensor)
        with _unseen():
            return self._save_quickly(tensor)

    def _save_quickly(self, tensor: torch.Tensor) -> KeptTensor | MovedTensor | WrappedTensor:
        selection = self.selection
        if (
            type(tensor) is not _Tensor
            or self._is_unusual
            or _dispatch_keys(tensor).raw_repr() not in selection.usual_keys
            or (span := selection.whole.get(tensor.nbytes)) is None
            or tensor.storage_offset()
            or not tensor.is_contiguous()
        ):
            return super().save(tensor)
        base = tensor._base
        if base is None:
            base = tensor
        storage = tensor.untyped_storage()
        key = storage._cdata
        guard, stores = self._lock, self._stores
        lock = guard.lock
        if (
            not base.requires_grad  # It may be filled later: see ssdtrain.late_writes.
            or base.is_leaf
            or type(base) is not _Tensor
            or storage.data_ptr() % ALIGNMENT
            or key in self._excluded
            or (selection.device_type == "cuda" and is_capturing())
            or guard.is_forked
            or lock._is_owned()  # type: ignore[attr-defined]
        ):
            return super().save(tensor)
        version = tensor._version
        counter = counter_of(tensor)
        saved, actions = None, _NOTHING
        with lock:
            if self._dropped or stores.groups or stores.trailing or self._lingering.held:
                self._drain()
            run, groups = self.books.run, self._table.by_storage
            siblings = groups.get(key)
            if siblings is not None:
                group = siblings[0]
                if group.span is span and self._stands_for(group, storage, version):
                    run.counts.saved_tensors += 1
                    run.counts.shared_tensors += 1
                    saved = MovedTensor(self, group, tensor, counter, version)
            elif run.timeline is None:
                group = Group(storage, tensor.dtype, counter, version, span, run)
                groups[key] = (group,)
                residency = self.books.residency
                group.is_resident, residency.nbytes = True, residency.nbytes + group.nbytes
                if not group.index:
                    self.steps.saved(run, group, tensor)
                run.counts.saved_tensors += 1
                saved = MovedTensor(self, group, tensor, counter, version)
                actions = self._place(group, tensor)
        if saved is None:
            return super().save(tensor)
        if actions is not _NOTHING:
            self._finish(group, tensor, actions)
        if self.books.faults.unlogged is not None:
            self.books.faults.flush()
        return saved
