# SPDX-License-Identifier: Apache-2.0
"""Which emitter serves which device."""

from __future__ import annotations

import os

import torch

from hector._errors import unsupported
from hector.emit import Emitter
from hector.emit.torch import TorchEmitter
from hector.emit.triton import TritonEmitter, available

__all__ = ["EMITTERS", "choose"]

EMITTERS = ("auto", "triton", "torch")
"""What ``hector.compile(emitter=...)`` takes."""


def choose(name: str, device: torch.device) -> Emitter:
    """The emitter for programs on a device.

    Parameters
    ----------
    name : str
        One of ``EMITTERS``; "auto" takes Triton on CUDA where it is installed, PyTorch elsewhere.
    device : torch.device

    Returns
    -------
    Emitter

    Raises
    ------
    UnsupportedError
        If Triton is asked for and not installed, or cannot run on the device.
    """
    if name == "auto" and (device.type != "cuda" or not available()):
        name = "torch"
    if name == "torch":
        return TorchEmitter()
    if not available():
        raise unsupported(
            "hector.compile(emitter='triton'): Triton is not installed; it comes with PyTorch for "
            "CUDA. emitter='torch' does without."
        )
    if device.type != "cuda" and os.environ.get("TRITON_INTERPRET") != "1":
        raise unsupported(
            f"hector.compile(emitter='triton'): Triton does not run on {device}; move the graph to "
            f"CUDA, or set TRITON_INTERPRET=1 before Python starts to interpret kernels (slow)."
        )
    return TritonEmitter(device)
