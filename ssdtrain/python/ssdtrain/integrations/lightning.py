# SPDX-License-Identifier: Apache-2.0
"""Offloading in a Lightning ``Trainer``."""

from __future__ import annotations

from typing import Any

from .wrapping import Wrapping

try:
    from lightning.pytorch import Callback
except ImportError:
    try:
        from pytorch_lightning import Callback
    except ImportError as error:
        raise ImportError(f"{__name__} needs Lightning: pip install 'lightning>=2.5'") from error

__all__ = ["OffloadCallback"]


class OffloadCallback(Wrapping, Callback):
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

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Wrap the module that is about to be trained."""
        self.wrap(pl_module, "training_step")

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Unwrap it."""
        self.remove()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Unwrap it after a failed ``fit``."""
        self.remove()
