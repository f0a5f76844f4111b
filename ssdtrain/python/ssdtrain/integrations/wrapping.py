# SPDX-License-Identifier: Apache-2.0
"""What the callbacks of frameworks have in common: wrap a model, attach to it, undo both."""

from __future__ import annotations

from typing import Any

import torch

from ssdtrain.offloader import Offloader

from .wrap_forward import WrapHandle, wrap_forward

__all__ = ["Wrapping"]


class Wrapping:
    """Holds an offloader, and what it has been put around; base of ``OffloadCallback`` classes.

    Parameters
    ----------
    offloader : Offloader
        Stays the caller's.
    attach : bool, default True
        Also ``offloader.attach(module)``.

    Raises
    ------
    TypeError
        If ``offloader`` is no offloader.
    """

    def __init__(self, offloader: Offloader, attach: bool = True) -> None:
        if not isinstance(offloader, Offloader):
            raise TypeError(f"OffloadCallback() takes an Offloader, not {type(offloader).__name__}")
        self.offloader = offloader
        self._attach = attach
        self._handles: list[WrapHandle | Any] = []

    def wrap(self, module: torch.nn.Module, method: str = "forward") -> None:
        """Put the offloader around a module's method, and around nothing else.

        Parameters
        ----------
        module : torch.nn.Module
        method : str
        """
        self.remove()  # The training before may have ended in an exception.
        self._handles.append(wrap_forward(module, self.offloader, method))
        if self._attach:
            self._handles.append(self.offloader.attach(module))

    def remove(self) -> None:
        """Unwrap the module now; for a training that ended in an exception."""
        while self._handles:
            self._handles.pop().remove()
