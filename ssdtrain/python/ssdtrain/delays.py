# SPDX-License-Identifier: Apache-2.0
"""Random pauses between the states of groups (``checks=True``), to bring out wrong orders.

They come from the environment: ``SSDTRAIN_DELAYS="SEED:MILLISECONDS"``. On a GPU the stream that
computes pauses as well, so that copies and computation meet in other orders than usual.
"""

from __future__ import annotations

import os
import random
import time

import torch

__all__ = ["VARIABLE", "Delays"]

VARIABLE = "SSDTRAIN_DELAYS"
_CYCLES_PER_MS = 1_000_000  # about: clocks are somewhat over 1 GHz


class Delays:
    """Pauses of up to a number of milliseconds, one in four times.

    Parameters
    ----------
    seed : int
    milliseconds : float
    """

    def __init__(self, seed: int, milliseconds: float) -> None:
        self._random = random.Random(seed)
        self._most = milliseconds
        self.count = 0

    @classmethod
    def from_environment(cls) -> Delays | None:
        """What the environment wants; None for no pauses.

        Raises
        ------
        ValueError
            If the variable is not ``SEED:MILLISECONDS``.
        """
        text = os.environ.get(VARIABLE)
        if not text:
            return None
        seed, _, most = text.partition(":")
        try:
            made = cls(int(seed), float(most))
        except ValueError:
            made = cls(0, -1.0)
        if not 0 <= made._most < 60_000:
            raise ValueError(f"{VARIABLE}={text!r} is not SEED:MILLISECONDS, such as 7:2.5")
        return made

    def pause(self, device: torch.device) -> None:
        """Pause, or not."""
        if self._random.random() >= 0.25:
            return
        self.count += 1
        milliseconds = self._random.random() * self._most
        if device.type == "cuda" and self._random.random() < 0.5:
            torch.cuda._sleep(int(milliseconds * _CYCLES_PER_MS))  # type: ignore[no-untyped-call]
        else:
            time.sleep(milliseconds / 1e3)
