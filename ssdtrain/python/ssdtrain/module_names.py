# SPDX-License-Identifier: Apache-2.0
"""Which module of an attached model runs now, for labels; decides nothing."""

from __future__ import annotations

import threading
from functools import partial
from typing import Any

import torch

__all__ = ["ModuleNames"]


class ModuleNames:
    """A stack of names for each thread, kept by hooks on the modules of attached models."""

    def __init__(self) -> None:
        self._local = threading.local()

    def current(self) -> str:
        """The innermost module's name; "" outside of attached models."""
        stack = self._stack()
        return stack[-1] if stack else ""

    def begin_step(self) -> None:
        """Forget what a forward pass left that ended in an exception."""
        self._stack().clear()

    def attach(self, model: torch.nn.Module) -> list[Any]:
        """Put hooks on the modules of a model; their handles."""
        handles: list[Any] = []
        for name, module in model.named_modules():
            if name:
                handles.append(module.register_forward_pre_hook(partial(self._enter, name)))
                handles.append(module.register_forward_hook(self._leave))
        return handles

    def _enter(self, name: str, *_: object) -> None:
        if not torch.compiler.is_compiling():
            self._stack().append(name)

    def _leave(self, *_: object) -> None:
        if torch.compiler.is_compiling():
            return
        stack = self._stack()
        if stack:
            stack.pop()

    def _stack(self) -> list[str]:
        stack: list[str] | None = getattr(self._local, "stack", None)
        if stack is None:
            stack = self._local.stack = []
        return stack

    def __deepcopy__(self, memo: dict[int, Any]) -> ModuleNames:
        return self  # A model that is copied keeps its offloader, which has a lock.

    def __reduce__(self) -> Any:
        return ModuleNames, ()
