# SPDX-License-Identifier: Apache-2.0
"""Faults of transfers: the errors that backward raises, and the log of those that cost no step."""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING

from datapath_core import Error, IoError

if TYPE_CHECKING:
    from .group import Group

__all__ = ["FaultLog", "lost", "resized"]

_log = logging.getLogger("ssdtrain")


class FaultLog:
    """The latest faults, for the report; the first one is logged as a warning.

    Attributes
    ----------
    unlogged : str or None
        It waits for :meth:`flush`.
    """

    def __init__(self) -> None:
        self._texts: deque[str] = deque(maxlen=32)
        self.unlogged: str | None = None
        self._is_logged = False

    def note(self, text: str) -> None:
        """Add a fault. Safe inside the engine's lock: nothing is logged yet."""
        if not self._is_logged:
            self._is_logged = True
            self.unlogged = text
        self._texts.append(text)

    def flush(self) -> None:
        """Log what waits. Handlers are foreign code that may call the offloader: no lock here."""
        if self.unlogged is None:
            return
        text, self.unlogged = self.unlogged, None
        if text is not None:
            _log.warning("%s (further faults are in the report)", text)

    def texts(self) -> list[str]:
        """Oldest first."""
        return list(self._texts)


def lost(error: Exception, what: str, group: Group) -> Exception:
    """The error to raise for bytes that could not be read back."""
    tier = "?" if group.stored is None else group.stored.tier
    text = (
        f"ssdtrain: saved tensor {what} could not be read back from {tier} ({group.nbytes} bytes):"
        f" {error}; this backward pass cannot go on, run the step again"
    )
    if isinstance(error, IoError):
        return IoError(error.errno or 0, text, error.filename, error.offset)
    return Error(text)


def resized(what: str, group: Group, nbytes: int) -> RuntimeError:
    """The error to raise for a tensor whose memory was taken away after the save."""
    return RuntimeError(
        f"ssdtrain: saved tensor {what} has no bytes any more: its storage was resized to {nbytes}"
        f" bytes after the save, bytes {group.span.start} to {group.span.stop} of it are needed;"
        " resize and fill it again before backward, or resize it only once it is stored"
    )
