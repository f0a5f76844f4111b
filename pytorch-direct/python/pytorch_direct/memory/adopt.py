# SPDX-License-Identifier: Apache-2.0
"""What others keep in host memory, as torch tensors over the same bytes where that can be."""

from __future__ import annotations

import mmap
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

__all__ = ["Adopted", "adopt"]


@dataclass(frozen=True)
class Adopted:
    """A tensor over memory that something else made.

    Parameters
    ----------
    tensor : torch.Tensor
        It keeps the memory alive.
    copied : str
        Why its memory is a copy; empty if it is the original.
    read_only : bool
        Writing is forbidden, and ends the process where the memory is mapped so.
    is_mapped : bool
        The bytes are those of a file, which not every driver can pin.
    """

    tensor: torch.Tensor
    copied: str = ""
    read_only: bool = False
    is_mapped: bool = False


def adopt(source: Any) -> Adopted:
    """Return a tensor over a tensor, an array, a memory map or a slice of a safetensors file.

    Raises
    ------
    TypeError
        It is none of these, or of a dtype that torch lacks.
    """
    if isinstance(source, torch.Tensor):
        return Adopted(source, is_mapped=_is_mapped_storage(source))
    if isinstance(source, np.ndarray):
        return _adopt_array(source)
    if isinstance(source, mmap.mmap):
        return _adopt_array(np.frombuffer(source, dtype=np.uint8))
    if hasattr(source, "get_shape") and hasattr(source, "get_dtype"):
        # A slice of an open safetensors file: read whole, it is a view of the mapped file.
        whole = adopt(source[:])
        return Adopted(whole.tensor, whole.copied, whole.read_only, is_mapped=True)
    raise TypeError(
        "unified() takes a torch.Tensor, a numpy array, a memory map or a slice of a safetensors "
        f"file, not {type(source).__name__}"
    )


def _adopt_array(array: np.ndarray[Any, Any]) -> Adopted:
    if array.dtype.kind not in "biufc":
        raise TypeError(f"unified() takes an array of numbers, not of dtype {array.dtype}")
    if isinstance(array, np.ma.MaskedArray):
        raise TypeError(
            "unified() takes an array without a mask, which torch does not have: give it "
            "array.filled(value), or array.data if masked numbers may be read"
        )
    copied = ""
    if not array.dtype.isnative:
        copied, array = "its bytes are in the other order", array.astype(array.dtype.newbyteorder())
    elif any(step < 0 for step in array.strides):
        copied, array = "it has negative strides", array.copy()
    elif any(step % array.itemsize for step in array.strides):
        copied, array = "its strides are no multiples of its elements", array.copy()
    with warnings.catch_warnings():
        # torch warns of read-only arrays; writes are refused where unified tensors are used.
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        tensor = torch.from_numpy(array)
    return Adopted(tensor, copied, not array.flags.writeable, _is_mapped_array(array))


def _is_mapped_array(array: np.ndarray[Any, Any]) -> bool:
    base: Any = array
    while base is not None:
        if isinstance(base, (mmap.mmap, np.memmap)):
            return True
        base = base.obj if isinstance(base, memoryview) else getattr(base, "base", None)
    return False


def _is_mapped_storage(tensor: torch.Tensor) -> bool:
    if tensor.layout is not torch.strided or tensor.device.type != "cpu":
        return False
    return getattr(tensor.untyped_storage(), "filename", None) is not None
