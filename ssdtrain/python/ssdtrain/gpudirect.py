# SPDX-License-Identifier: Apache-2.0
"""Whether bytes of a GPU go to the drive by themselves (GPUDirect Storage), and who moves them."""

from __future__ import annotations

from typing import Any

import torch

from datapath_core import Error, io

__all__ = ["open_engine"]


def open_engine() -> tuple[io.Engine, dict[str, Any]]:
    """Open the engine for a spill volume: cuFile's if it truly bypasses host memory, else the best.

    cuFile in its compatibility mode copies through host memory of its own and is not taken: the
    scheduler's chunks do that with a bound on the memory.

    Returns
    -------
    engine : datapath_core.io.Engine
    account : dict
        ``used`` (bool), and ``reason`` (str), empty where it is used.
    """
    # Looking would start CUDA, after which a process cannot be forked.
    if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return io.Engine(), _not("CUDA was not in use when the offloader was made")
    try:
        engine = io.Engine("cufile")
    except Error as error:
        return io.Engine(), _not(str(error))
    if engine.describe()["detail"].get("gpu_direct"):
        return engine, {"used": True, "reason": ""}
    engine.close()
    return io.Engine(), _not("cuFile would go through host memory: its compatibility mode")


def _not(reason: str) -> dict[str, Any]:
    return {"used": False, "reason": reason}
