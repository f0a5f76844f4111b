# SPDX-License-Identifier: Apache-2.0
"""What the graph holds in place of a saved tensor: when the graph lets go, so do the tiers.

Either kind can be asked any number of times, in any order, on any thread, or never.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from .storage import VersionWatch, changed_in_place, laid_on

if TYPE_CHECKING:
    from .group import Group
    from .state import EngineState

__all__ = ["Claim", "KeptTensor", "MovedTensor"]

_count_modes = torch._C._len_torch_dispatch_stack


class KeptTensor:
    """A tensor that stays where it is.

    It holds a detached alias: with the tensor itself, a node that saves its own output would own
    itself. No node owns a leaf; that one is held itself, so that memory which is swapped below a
    parameter (``parameter.data = ...``) is neither kept alive nor mistaken for the new one.
    """

    __slots__ = ("_alias", "_version")

    def __init__(self, tensor: torch.Tensor) -> None:
        self._version = tensor._version
        self._alias = tensor if tensor.is_leaf and tensor.requires_grad else tensor.detach()

    def get(self) -> torch.Tensor:
        """The tensor; raises ``RuntimeError`` if it was changed in place since it was saved."""
        if self._alias._version != self._version:
            text = f"[{self._alias.dtype}, {tuple(self._alias.shape)}, {self._alias.device}]"
            raise changed_in_place(text, self._alias._version, self._version)
        return self._alias


class Claim:
    """A saved tensor's part in a group; it outlives the saved tensor in the engine's queue."""

    __slots__ = ("group", "load_seen")

    def __init__(self, group: Group) -> None:
        self.group = group
        self.load_seen = 0


class MovedTensor:
    """A tensor whose bytes are a group's."""

    __slots__ = ("_dtype", "_engine", "_offset", "_size", "_stride", "_watch", "claim")

    def __init__(
        self, engine: EngineState, group: Group, tensor: torch.Tensor, watch: VersionWatch
    ) -> None:
        self._engine = engine
        self.claim = Claim(group)
        self._watch = watch
        self._dtype = tensor.dtype
        self._size = tensor.size()
        self._stride = tensor.stride()
        self._offset: int = tensor.storage_offset()  # type: ignore[assignment]

    def get(self) -> torch.Tensor:
        """The tensor, as it was saved.

        Raises
        ------
        RuntimeError
            If it was changed in place since, as plain autograd raises.
        IoError
            If its bytes cannot be read back.
        """
        watch = self._watch
        if watch.alias._version != watch.version:
            watch.check(self.describe())
        if _count_modes() > 0:
            with torch._C._DisableTorchDispatch():
                return self._get()
        return self._get()

    def _get(self) -> torch.Tensor:
        storage, start = self._engine.fetch(self.claim, self.describe)
        dtype, offset = self._dtype, self._offset
        if start:
            offset -= start // dtype.itemsize
        device = self.claim.group.device
        return self._watch.attach(laid_on(storage, dtype, device, offset, self._size, self._stride))

    def describe(self) -> str:
        """Dtype, shape and device, for messages."""
        return f"[{self._dtype}, {tuple(self._size)}, {self.claim.group.device}]"

    def __del__(self) -> None:
        self._engine.drop(self.claim)
