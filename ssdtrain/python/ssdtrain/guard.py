# SPDX-License-Identifier: Apache-2.0
"""The engine's lock: one thread at a time, never the same one twice, and never a dead parent's."""

from __future__ import annotations

import os
import threading
import weakref
from typing import NoReturn

__all__ = ["Guard"]


class Guard:
    """A lock that knows its owner.

    Signal handlers and finalisers run inside whatever the thread was doing: one that calls the
    offloader while the offloader's own code holds the lock would wait for itself for ever.

    A forked child gets a fresh lock: the thread that held the old one exists in the parent only.

    Attributes
    ----------
    lock : RLock
        For ``with``, after a look that :meth:`free` does as well.
    is_forked : bool
        Whether this process was forked from the one that made the lock.
    """

    def __init__(self) -> None:
        # Entered by ``with`` alone: between a call of acquire() and what follows it an interrupt
        # could leave the lock taken for ever.
        self.lock = threading.RLock()
        self.is_forked = False
        _guards.add(self)

    def free(self) -> threading.RLock:
        """The lock, for ``with``; raises ``RuntimeError`` if this thread is inside already."""
        lock = self.lock
        if lock._is_owned():  # type: ignore[attr-defined]
            self.refuse()
        return lock

    @staticmethod
    def refuse() -> NoReturn:
        """Raise what :meth:`free` raises."""
        raise RuntimeError(
            "ssdtrain: a signal handler, finaliser or other code that interrupted the offloader"
            " called the same offloader; call it from the training code instead"
        )

    def if_free(self) -> threading.RLock | None:
        """The lock, for ``with``; None if this thread is inside already."""
        lock = self.lock
        return None if lock._is_owned() else lock  # type: ignore[attr-defined]

    def _after_fork(self) -> None:
        self.lock = threading.RLock()
        self.is_forked = True


_guards: weakref.WeakSet[Guard] = weakref.WeakSet()


def _after_fork() -> None:
    for guard in list(_guards):
        guard._after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
