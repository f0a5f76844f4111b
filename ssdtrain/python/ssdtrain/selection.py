# SPDX-License-Identifier: Apache-2.0
"""Which saved tensors may leave, and why the others stay; not where they go."""

from __future__ import annotations

import torch
from torch._C._functorch import is_functorch_wrapped_tensor
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from .late_writes import is_written_after_the_save
from .storage import ALIGNMENT, ByteRange, byte_range
from .subclasses import is_parameter

__all__ = ["Selection", "is_capturing"]

# They record operations to run or return them later, and would take the offloader's for those
# of the model: selective checkpointing, tracing. Modes that only look, like counters, may see.
RECORDING_MODES = frozenset(
    {
        "_CachingTorchDispatchMode",
        "_CachedTorchDispatchMode",
        "ProxyTorchDispatchMode",
        "FunctionalTensorMode",
        "FakeTensorMode",
    }
)


# Sizes remembered.
_MOST_SIZES = 1 << 12

_EMPTY = ByteRange(0, 0)

_Tensor = torch.Tensor
is_capturing = torch.cuda.is_current_stream_capturing
_count_modes = torch._C._len_torch_dispatch_stack
_dispatch_keys = torch._C._dispatch_keys


def _recording_mode() -> str | None:
    names = [type(mode).__name__ for mode in _get_current_dispatch_mode_stack()]
    return next((name for name in names if name in RECORDING_MODES), None)


class Selection:
    """The rules, and the storages that a model told us to leave alone.

    Parameters
    ----------
    min_bytes : int
        Tensors with fewer bytes stay.

    Attributes
    ----------
    device_type : str or None
        ``"cuda"``, ``"cpu"``, or None before the first tensor of a size that matters.
    usual_keys : set of int
        Dispatch keys of tensors that may leave: among them those of a device.
    whole : dict of int to ByteRange
        By their bytes, the ranges that have been seen to begin where their storage does.
    """

    def __init__(self, min_bytes: int) -> None:
        self.min_bytes = min_bytes
        self.device_type: str | None = None
        self._plain_keys: set[int] = set()
        self.usual_keys: set[int] = set()
        self.whole: dict[int, ByteRange] = {}

    def examine(self, tensor: torch.Tensor) -> ByteRange | str:
        """The bytes to store if the tensor may leave, else the reason for the report.

        :meth:`reason_of_surroundings` is asked first where a dispatch mode is active.
        """
        if type(tensor) is not _Tensor:
            return "parameter" if is_parameter(tensor) else f"subclass {type(tensor).__name__}"
        # All that these rules ask for is in a tensor's dispatch keys: one look for what was seen.
        keys = _dispatch_keys(tensor).raw_repr()
        if keys not in self._plain_keys:
            reason = self._reason_of_kind(tensor)
            if reason is not None:
                return reason
            self._plain_keys.add(keys)
        base = tensor._base
        if tensor.requires_grad and tensor.is_leaf if base is None else is_parameter(tensor):
            return "parameter"
        nbytes, first = tensor.nbytes, tensor.storage_offset()
        if first or not tensor.is_contiguous():
            first *= tensor.element_size()
            start, stop = span = byte_range(tensor) if nbytes else _EMPTY
            nbytes = stop - start
        else:
            span = ByteRange(0, nbytes)
        if nbytes < self.min_bytes or nbytes == 0:
            return "smaller than min_bytes"
        if (tensor.data_ptr() - first) % ALIGNMENT:
            return "storage not aligned"  # No copy could be laid out alike.
        if is_written_after_the_save(tensor):
            return "filled after the save"
        reason = self._reason_of_device(tensor)
        if reason is not None:
            return reason
        self.usual_keys.add(keys)
        return self._remember(span) if span.start == 0 else span

    def _remember(self, span: ByteRange) -> ByteRange:
        if len(self.whole) >= _MOST_SIZES:  # Shapes that are new in each step.
            self.whole.clear()
        return self.whole.setdefault(span.nbytes, span)

    @staticmethod
    def _reason_of_kind(tensor: torch.Tensor) -> str | None:
        if is_functorch_wrapped_tensor(tensor):
            return "inside a functorch transform"
        if tensor.layout is not torch.strided or tensor.is_quantized:
            return f"layout {tensor.layout}"
        if tensor.is_nested or tensor._is_zerotensor():
            return "nested tensor" if tensor.is_nested else "zero tensor without memory"
        if tensor.is_conj() or tensor.is_neg():
            return "lazily conjugated or negated view"
        return None

    @staticmethod
    def reason_of_surroundings(tensor: torch.Tensor) -> str | None:
        """None if a tensor may be looked into here, else the reason for the report."""
        if is_functorch_wrapped_tensor(tensor):
            return "inside a functorch transform"
        if torch._C._len_torch_dispatch_stack() > 0 and (mode := _recording_mode()) is not None:
            return f"inside {mode}"
        return None

    def _reason_of_device(self, tensor: torch.Tensor) -> str | None:
        if tensor.is_cuda:
            # A model on the GPU saves the odd CPU tensor; one on the CPU never saves a GPU tensor.
            self.device_type = "cuda"
            if is_capturing():
                return "while a CUDA graph is recorded"
            return None
        if not tensor.is_cpu:
            return f"device {tensor.device.type}"
        if self.device_type is None:
            self.device_type = "cpu"
        return None if self.device_type == "cpu" else "device cpu"
