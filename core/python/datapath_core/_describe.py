# SPDX-License-Identifier: Apache-2.0
"""What the machine and the library are: one dictionary for people and for bug reports."""

from __future__ import annotations

from typing import Any

from datapath_core import _core, _json

__all__ = ["describe"]


def describe(probe_devices: bool = False) -> dict[str, Any]:
    """Describe the machine, the library and every backend with its state and reason.

    Parameters
    ----------
    probe_devices : bool
        Also open the CUDA devices, which initialises the driver in this process.

    Returns
    -------
    dict
        JSON-like. ``version``, ``abi``, ``machine``, ``limits``, a section for each part of the
        library (its backends, devices, memory), and ``settings``.
    """
    return _json.described(_core.describe_json(probe_devices))
