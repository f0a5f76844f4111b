# SPDX-License-Identifier: Apache-2.0
"""Operators that write to a tensor which they have saved already, and move no version.

A training ``rrelu`` saves its noise while that is uninitialised memory, and fills it afterwards:
what a hook sees are not the bytes that backward means. Nothing at the save tells the tensor from
others, and only an attached recorder sees the write. So the function that calls is asked for its
names; where the name is not to be seen (TorchScript, ``torch.ops``) nothing is noticed.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch

__all__ = ["is_written_after_the_save"]

_NAMES = frozenset({"rrelu", "rrelu_", "rrelu_with_noise", "rrelu_with_noise_"})
# As code objects have it: not resolved.
_FOLDER = str(Path(__file__).parent) + os.sep


def is_written_after_the_save(tensor: torch.Tensor) -> bool:
    """Whether the function that saves a tensor now may write to it afterwards; rather too often.

    Parameters
    ----------
    tensor : torch.Tensor
        Plain, of any dtype.
    """
    if tensor.requires_grad or not tensor.is_floating_point():
        return False
    frame = sys._getframe()
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_FOLDER):
        frame = frame.f_back
    return not _NAMES.isdisjoint(frame.f_code.co_names)
