# SPDX-License-Identifier: Apache-2.0
"""Saved tensors that wrap others: DTensor, quantised and float8 tensors, anything traceable.

A wrapper says itself what it consists of (``__tensor_flatten__``). Its parts are saved by the
same rules as any tensor, and the wrapper is put around them again. All others stay.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch.utils import _python_dispatch

from .storage import changed_in_place

__all__ = ["Saved", "WrappedTensor", "is_parameter", "is_wrapper", "parts_of"]

# They can be taken apart, but not like this: the bytes of the first are not there yet, the second
# is known by the identity of one of its parts.
_WHOLE = frozenset({"AsyncCollectiveTensor", "NestedTensor", "FunctionalTensor", "FakeTensor"})


class Saved(Protocol):
    """What the graph holds in place of a tensor."""

    def get(self) -> torch.Tensor:
        """The tensor, as it was saved."""


def _is_traceable(tensor: Any) -> bool:
    return bool(_python_dispatch.is_traceable_wrapper_subclass(tensor))


def is_wrapper(tensor: torch.Tensor) -> bool:
    """Whether a tensor can be taken apart and put together again."""
    return (
        _is_traceable(tensor) and type(tensor).__name__ not in _WHOLE and not is_parameter(tensor)
    )


def is_parameter(tensor: torch.Tensor) -> bool:
    """Whether a tensor is a leaf that requires a gradient, or a view of one."""
    base = tensor._base
    if base is None:
        base = tensor
    if base.requires_grad and base.is_leaf:
        return True
    # To ask costs more than all else here.
    return type(base) is not torch.Tensor and isinstance(base, torch.nn.Parameter)


def parts_of(tensor: torch.Tensor) -> list[torch.Tensor]:
    """The plain tensors that a tensor consists of: itself, or its parts' parts."""
    if not _is_traceable(tensor):
        return [tensor]
    flatten: Any = tensor
    names, _ = flatten.__tensor_flatten__()
    found = []
    for name in names:
        part = getattr(tensor, name)
        if isinstance(part, torch.Tensor):
            found += parts_of(part)
    return found


class WrappedTensor:
    """A wrapper whose parts are saved one by one.

    In-place operators on a wrapper need not show in the counters of its parts. A detached alias
    whose parts have been taken out follows the wrapper's own.

    Parameters
    ----------
    tensor : torch.Tensor
    save : callable
        Takes over a part.

    Raises
    ------
    AttributeError
        If no alias can be emptied.
    """

    __slots__ = ("_alias", "_context", "_parts", "_size", "_stride", "_type", "_version")

    def __init__(self, tensor: torch.Tensor, save: Callable[[torch.Tensor], Saved]) -> None:
        wrapper: Any = tensor
        names, self._context = wrapper.__tensor_flatten__()
        self._alias = tensor.detach()
        self._version = tensor._version
        found = {name: getattr(tensor, name) for name in names}
        for name, part in found.items():
            if isinstance(part, torch.Tensor):
                setattr(self._alias, name, None)
        self._type: Any = type(tensor)
        self._size = tensor.size()
        self._stride = tensor.stride()
        self._parts = {
            name: save(part) if isinstance(part, torch.Tensor) else _Value(part)
            for name, part in found.items()
        }

    def get(self) -> torch.Tensor:
        """The tensor; raises ``RuntimeError`` if it was changed, and what its parts raise."""
        version = self._alias._version
        if version != self._version:
            what = f"[{self._type.__name__}, {tuple(self._size)}]"
            raise changed_in_place(what, version, self._version)
        parts = {name: part.get() for name, part in self._parts.items()}
        tensor: torch.Tensor = self._type.__tensor_unflatten__(
            parts, self._context, self._size, self._stride
        )
        return tensor.detach() if tensor.requires_grad else tensor


class _Value:
    """A part that is no tensor."""

    __slots__ = ("_value",)

    def __init__(self, value: Any) -> None:
        self._value = value

    def get(self) -> Any:
        return self._value
