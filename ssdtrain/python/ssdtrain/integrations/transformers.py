# SPDX-License-Identifier: Apache-2.0
"""Offloading in a Transformers ``Trainer``, and in those built on it (TRL, PEFT)."""

from __future__ import annotations

from typing import Any

from .wrapping import Wrapping

try:
    from transformers import TrainerCallback
except ImportError as error:
    raise ImportError(
        f"{__name__} needs Transformers: pip install 'transformers>=4.57' 'accelerate>=1'"
    ) from error

__all__ = ["OffloadCallback"]


class OffloadCallback(Wrapping, TrainerCallback):
    """Offloads what a ``Trainer``'s model saves for backward.

    The one line::

        trainer = Trainer(model, args, train_dataset=data, callbacks=[OffloadCallback(off)])

    The model's forward pass, with the loss that it computes, runs inside the offloader from
    ``on_train_begin`` to ``on_train_end``; evaluation and generation do not.

    Parameters
    ----------
    offloader : Offloader
        Stays the caller's: look at ``offloader.report()`` and close it after ``train()``.
    attach : bool, default True
        Also ``offloader.attach(model)``.

    Raises
    ------
    TypeError
        If ``offloader`` is no offloader.
    """

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Wrap the model that is about to be trained."""
        self.wrap(kwargs["model"])

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Unwrap it."""
        self.remove()
