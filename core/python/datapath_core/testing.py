# SPDX-License-Identifier: Apache-2.0
"""Helpers for tests of packages that build on this one: faults on purpose, and the null device."""

from __future__ import annotations

from contextlib import AbstractContextManager

from datapath_core import _core, settings

__all__ = ["faults", "null_device"]


def faults(plan: str) -> AbstractContextManager[None]:
    """Let engines that are made inside a ``with`` block fail as planned.

    Parameters
    ----------
    plan : str
        Operation, fault and when, for example ``"write:enospc@after=10"``: ten writes pass, later
        ones fail with ENOSPC. All faults are in the documentation, "Faults on purpose".

    Examples
    --------
    >>> with faults("read:eio"):
    ...     engine = io.Engine()
    """
    return settings.override("io.faults", plan)


def null_device() -> _core.Device:
    """Open the null device: host memory and worker threads that behave as a CUDA device does.

    ``null_device().allocate(nbytes)`` is its memory, which a transfer treats as a device's and
    which has the buffer protocol besides. ``create_stream``, ``null_capture`` and
    ``null_set_copy_delay`` let a test order, capture and slow down its work.
    """
    return _core.Device("null")
