# SPDX-License-Identifier: Apache-2.0
"""What the graph holds in place of a saved tensor: when the graph lets go, so do the tiers.

Either kind can be asked any number of times, in any order, on any thread, or never.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from .storage import changed_in_place, laid_on, reinterpret

if TYPE_CHECKING:
    from .group import Group
    from .state import EngineState

__all__ = ["Claim", "KeptTensor", "MovedTensor"]

_Tensor = torch.Tensor
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
    """A part in a group: while it is counted there, the group's bytes stay somewhere.

    Attributes
    ----------
    group : Group
    is_counted : bool
        Whether the group, or the one that has absorbed it, counts it. The two change in one line
        without a call, so that no interrupt comes in between.
    load_seen : int
        Which of the group's loads it has asked for last.
    """

    __slots__ = ("group", "is_counted", "load_seen")

    def __init__(self, group: Group) -> None:
        self.group = group
        self.is_counted = False
        self.load_seen = 0


class MovedTensor(Claim):
    """A tensor whose bytes are a group's.

    When the graph lets go of it, it outlives that in the engine's queue.
    """

    __slots__ = ("_counter", "_dtype", "_engine", "_offset", "_size", "_stride", "_version")

    def __init__(
        self,
        engine: EngineState,
        group: Group,
        tensor: torch.Tensor,
        counter: torch.Tensor,
        version: int,
    ) -> None:
        self.group = group
        self.is_counted = False
        self.load_seen = 0
        self._engine = engine
        self._counter = counter
        self._version = version
        self._dtype = tensor.dtype
        self._size = tensor.shape
        self._stride = tensor.stride()
        self._offset: int = tensor.storage_offset()  # type: ignore[assignment]
        self.is_counted, group.claims = True, group.claims + 1
        group.awaited += 1

    def get(self) -> torch.Tensor:
        """The tensor, as it was saved.

        Raises
        ------
        RuntimeError
            If it was changed in place since, as plain autograd raises.
        IoError
            If its bytes cannot be read back.
        """
        version = self._counter._version
        if version != self._version:
            raise changed_in_place(self.describe(), version, self._version)
        if _count_modes() > 0:
            with torch._C._DisableTorchDispatch():
                return self._get()
        return self._get()

    def _get(self) -> torch.Tensor:
        memory, start = self._engine.fetch(self, self.describe)
        dtype, offset, counter = self._dtype, self._offset, self._counter
        if start:
            offset -= start // dtype.itemsize
        if type(memory) is _Tensor and memory.dtype is dtype:
            tensor = reinterpret(memory, self._size, self._stride, offset)
        else:
            device = self.group.device
            tensor = laid_on(memory, dtype, device, offset, self._size, self._stride)
        alias = counter.detach()  # As with_counter() does it, without a call.
        alias.data = tensor
        return alias

    def describe(self) -> str:
        """Dtype, shape and device, for messages."""
        return f"[{self._dtype}, {tuple(self._size)}, {self.group.device}]"

    # Python calls it once, although the queue brings the object back to life.
    def __del__(self) -> None:
        self._engine.drop(self)
