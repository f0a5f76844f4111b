# SPDX-License-Identifier: Apache-2.0
"""Watches operators in the forward pass, to write recipes for what the graph saves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from .recipes import Operand, Recipe

__all__ = ["Recorder"]


class Recorder(TorchDispatchMode):
    """The mode that is active inside ``with off:``; one per thread.

    Parameters
    ----------
    has_bytes : callable
        ``has_bytes(operand) -> bool``: whether a group of the engine has the operand's bytes at
        its version. Called by :meth:`recipe`.
    before_write : callable, optional
        ``before_write(key)`` is called before an operator writes to a storage that a recorded
        operator read or made: the last moment to compute what depends on its bytes, or copy them.
    """

    def __init__(
        self,
        has_bytes: Callable[[Operand], bool],
        before_write: Callable[[int], None] | None = None,
    ) -> None:
        super().__init__()
        self._has_bytes = has_bytes
        self._before_write = before_write

    def recipe(self, tensor: torch.Tensor) -> Recipe | None:
        """How to compute the storage of a tensor again, as it is now; None if that is unknown.

        Parameters
        ----------
        tensor : torch.Tensor
            That autograd saves: a recorded output, or a view of one.
        """
        raise NotImplementedError

    def forget_step(self) -> None:
        """Drop all records; recipes given before stay valid. Leaving the context does it too."""
        raise NotImplementedError

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Run an operator, and remember it if it is on the list."""
        raise NotImplementedError
