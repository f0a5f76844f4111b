# SPDX-License-Identifier: Apache-2.0
"""Hooks on a model that tell an engine what is in memory anyway, and which module runs.

They are in the model's dictionaries, so copies and pickles of the model take them along: a copy
tells the same engine, a pickle carries none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from .subclasses import parts_of

if TYPE_CHECKING:
    from .engine import Engine

__all__ = ["attach"]


def attach(engine: Engine, model: torch.nn.Module) -> Handles:
    """Put hooks on a model.

    Parameters
    ----------
    engine : Engine
    model : torch.nn.Module

    Returns
    -------
    Handles
    """
    tell = Exclusions(engine)
    hooks = [
        model.register_forward_pre_hook(tell, with_kwargs=True),
        *engine.steps.modules.attach(model),
    ]
    return Handles(engine, hooks)


class Handles:
    """Several hooks' handles as one; the engine records recipes while there is one."""

    def __init__(self, engine: Engine, handles: list[Any]) -> None:
        self._handles = handles
        self._attached = engine.recomputation.attached
        self._token = object()
        if engine.steps.steering is not None:
            self._attached.add(self._token)

    def remove(self) -> None:
        """Take the hooks away."""
        while self._handles:
            self._handles.pop().remove()
        self._attached.discard(self._token)


class Exclusions:
    """The hook before a model's forward pass."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def __call__(
        self, module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        """Leave alone what the model and its caller hold."""
        for parameter in module.parameters():
            self._exclude(parameter, "parameter")
        for buffer in module.buffers():
            self._exclude(buffer, "buffer")
        for value in (*args, *kwargs.values()):
            self._exclude(value, "model input")

    def _exclude(self, value: object, reason: str) -> None:
        if isinstance(value, torch.Tensor):
            for part in parts_of(value):
                if part.layout is not torch.strided:
                    continue
                try:
                    storage = part.untyped_storage()
                except (RuntimeError, NotImplementedError):
                    continue  # A subclass without a storage of its own: it stays anyway.
                self._engine.exclude(storage, reason)
        elif isinstance(value, dict):
            for item in value.values():
                self._exclude(item, reason)
        elif isinstance(value, list | tuple):
            for item in value:
                self._exclude(item, reason)

    def __deepcopy__(self, memo: dict[int, Any]) -> Exclusions:
        return self

    def __reduce__(self) -> Any:
        return _tell_nobody, ()


def _tell_nobody() -> Any:
    return _nothing


def _nothing(*_: object) -> None:
    """What a pickled model calls."""
