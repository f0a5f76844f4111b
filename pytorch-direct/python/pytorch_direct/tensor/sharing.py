# SPDX-License-Identifier: Apache-2.0
"""Unified tensors among processes: one copy in shared memory, registered by each user of it."""

from __future__ import annotations

import logging
from multiprocessing.reduction import ForkingPickler
from typing import Any

import torch

from pytorch_direct.memory.registration import registration_of
from pytorch_direct.tensor.unified_tensor import UnifiedTensor, current_registration, plain, wrap

__all__ = ["move_to_shared_memory"]

_logger = logging.getLogger("pytorch_direct")


def move_to_shared_memory(tensor: UnifiedTensor) -> None:
    """Give the tensor, and every unified tensor over the same memory, a shared copy of that memory.

    The old memory stays registered until kernels that read it have ended: nothing is pulled from
    under them, as torch's own ``share_memory_`` would.
    """
    with torch._C.DisableTorchFunctionSubclass():
        if tensor.is_shared():  # type: ignore[no-untyped-call]
            return
        registration = current_registration(tensor)
        registration.settle()
        _logger.warning(
            "moving a unified tensor's storage of %d bytes into shared memory; ordinary tensors "
            "over it keep the old memory",
            registration.nbytes,
        )
        old = tensor.untyped_storage()
        shared = torch.UntypedStorage._new_shared(  # type: ignore[no-untyped-call]
            old.nbytes()
        )
        shared.copy_(old)
        moved = [item for item in registration.tensors.values() if isinstance(item, UnifiedTensor)]
        for item in moved:
            # Not item.set_(): autograd refuses it for leaves and views.
            item.data = torch.empty(0, dtype=item.dtype).set_(
                shared, item.storage_offset(), item.size(), item.stride()
            )
        fresh = registration_of(tensor, lazy=not registration.is_registered)
        for item in moved:
            item._registration = fresh
            fresh.tensors[id(item)] = item


def _rebuild(ordinary: torch.Tensor, requires_grad: bool) -> UnifiedTensor:
    """Registration waits for the first use by a GPU: most workers have none."""
    alias = wrap(ordinary, registration_of(ordinary, lazy=True))
    if requires_grad:
        alias.requires_grad_()
    return alias


def _reduce(tensor: UnifiedTensor) -> tuple[Any, tuple[torch.Tensor, bool]]:
    if tensor.requires_grad and not tensor.is_leaf:
        raise RuntimeError(
            "cannot send a tensor that autograd computed to another process; send its detach()"
        )
    move_to_shared_memory(tensor)
    return _rebuild, (plain(tensor).detach(), tensor.requires_grad)


ForkingPickler.register(UnifiedTensor, _reduce)
