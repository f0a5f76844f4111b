# SPDX-License-Identifier: Apache-2.0
"""Which saved tensors may leave, and why the others stay; not where they go."""

from __future__ import annotations

import torch
from torch._C._functorch import is_functorch_wrapped_tensor
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from .storage import ALIGNMENT, byte_range

__all__ = ["Selection"]

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


def _recording_mode() -> str | None:
    names = [type(mode).__name__ for mode in _get_current_dispatch_mode_stack()]
    return next((name for name in names if name in RECORDING_MODES), None)


class Selection:
    """The rules, and the storages that a model told us to leave alone.

    Parameters
    ----------
    min_bytes : int
        Tensors with fewer bytes stay.
    """

    def __init__(self, min_bytes: int) -> None:
        self.min_bytes = min_bytes
        self._device_type: str | None = None

    @property
    def device_type(self) -> str | None:
        """``"cuda"``, ``"cpu"``, or None before the first tensor of a size that matters."""
        return self._device_type

    def reason_to_keep(self, tensor: torch.Tensor) -> str | None:
        """None if the tensor may leave, else the reason for the report."""
        if type(tensor) is not torch.Tensor:
            if isinstance(tensor, torch.nn.Parameter):
                return "parameter"
            return f"subclass {type(tensor).__name__}"
        reason = self.reason_of_surroundings(tensor)
        if reason is not None:
            return reason
        if tensor.layout is not torch.strided or tensor.is_quantized:
            return f"layout {tensor.layout}"
        if tensor.is_nested or tensor._is_zerotensor():
            return "nested tensor" if tensor.is_nested else "zero tensor without memory"
        if tensor.is_conj() or tensor.is_neg():
            return "lazily conjugated or negated view"
        base = tensor if tensor._base is None else tensor._base
        if isinstance(base, torch.nn.Parameter) or (base.is_leaf and base.requires_grad):
            return "parameter"
        if tensor.numel() == 0 or byte_range(tensor).nbytes < self.min_bytes:
            return "smaller than min_bytes"
        if (tensor.data_ptr() - tensor.storage_offset() * tensor.element_size()) % ALIGNMENT:
            return "storage not aligned"  # No copy could be laid out alike.
        return self._reason_of_device(tensor.device.type)

    @staticmethod
    def reason_of_surroundings(tensor: torch.Tensor) -> str | None:
        """None if a tensor may be looked into here, else the reason for the report."""
        if is_functorch_wrapped_tensor(tensor):
            return "inside a functorch transform"
        if torch._C._len_torch_dispatch_stack() > 0 and (mode := _recording_mode()) is not None:
            return f"inside {mode}"
        return None

    def _reason_of_device(self, device_type: str) -> str | None:
        if device_type not in ("cuda", "cpu"):
            return f"device {device_type}"
        # A model on the GPU saves the odd CPU tensor; one on the CPU never saves a GPU tensor.
        if self._device_type is None or device_type == "cuda":
            self._device_type = device_type
        if device_type == "cuda" and torch.cuda.is_current_stream_capturing():
            return "while a CUDA graph is recorded"
        return None if device_type == self._device_type else f"device {device_type}"
