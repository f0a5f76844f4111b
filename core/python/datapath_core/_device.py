# SPDX-License-Identifier: Apache-2.0
"""The ways in which a device may be named."""

from __future__ import annotations

from typing import Any, TypeAlias

from datapath_core import _core

__all__ = ["DeviceLike", "open_device"]

#: "cuda", "cuda:1", "cpu" or "null", an ordinal, a torch.device or an open device.
DeviceLike: TypeAlias = "str | int | _core.Device | Any"


def open_device(device: DeviceLike) -> _core.Device:
    """Open a device; "cpu" is the null device, whose lanes are worker threads.

    Raises
    ------
    ValueError
        For a name that is none.
    UnsupportedError
        If a CUDA device is named and there is none.
    """
    if isinstance(device, _core.Device):
        return device
    name = f"cuda:{device}" if isinstance(device, int) else str(device)
    return _core.Device("null" if name in ("cpu", "cpu:0") else name)
