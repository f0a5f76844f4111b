# SPDX-License-Identifier: Apache-2.0
"""Offloading in a Lightning ``Trainer``."""

from __future__ import annotations

from typing import Any

from ssdtrain.offloader import Offloader

from .wrap_forward import WrapHandle, wrap_forward

try:
    from lightning.pytorch import Callback
except ImportError:
    try:
        from pytorch_lightning import Callback
    except ImportError as error:
        raise ImportError(f"{__name__} needs Lightning: pip install 'lightning>=2.5'") from error

__all__ = ["OffloadCallback"]


class OffloadCallback(Callback):
    """Offloads what ``training_step`` saves for backward.

    The one line::

        trainer = Trainer(max_epochs=1, callbacks=[OffloadCallback(off)])

    ``training_step`` runs inside the offloader while ``fit`` lasts; validation does not. With
    manual optimisation the backward passes that it runs are inside too, which changes nothing.

    Parameters
    ----------
    offloader : Offloader
        Stays the caller's: look at ``offloader.report()`` and close it after ``fit``.
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

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Wrap the module that is about to be trained."""
        self.remove()
        self._handles.append(wrap_forward(pl_module, self.offloader, "training_step"))
        if self._attach:
            self._handles.append(self.offloader.attach(pl_module))

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Unwrap it."""
        self.remove()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Unwrap it after a failed ``fit``."""
        self.remove()

    def remove(self) -> None:
        """Unwrap the module now."""
        while self._handles:
            self._handles.pop().remove()
