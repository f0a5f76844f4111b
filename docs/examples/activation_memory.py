# SPDX-License-Identifier: Apache-2.0
"""Measures the peak of tensor memory over a piece of code; not a profiler.

On CUDA the caching allocator counts (``torch.cuda.max_memory_allocated``). On the CPU PyTorch keeps
no such counter, so every operator's results are watched: a storage counts from the operator that
returned it until it is really freed, whoever held it and on whatever thread it goes. What an
operator allocates and frees inside itself is not seen on the CPU.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

__all__ = ["METHOD", "LiveBytes", "peak_bytes"]

METHOD = {
    "cpu": "live bytes of the storages that operators returned (a dispatch mode and weak "
    "references), highest sum during one training step less what was there before it",
    "cuda": "torch.cuda.max_memory_allocated during one training step less what was allocated "
    "before it",
}


class LiveBytes(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the bytes of CPU storages made while it is active.

    Attributes
    ----------
    live, peak : int
        Bytes now, and the most so far.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.live = 0
        self.peak = 0
        self._watched: dict[int, int] = {}
        self._lock = threading.RLock()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run the operator and watch what it returns."""
        inputs = {
            leaf.untyped_storage()._cdata
            for leaf in tree_leaves((args, kwargs))
            if isinstance(leaf, torch.Tensor)
        }
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, torch.Tensor) and leaf.device.type == "cpu":
                storage = leaf.untyped_storage()
                if storage._cdata not in inputs:
                    self._watch(storage)
        return result

    def _watch(self, storage: torch.UntypedStorage) -> None:
        key = storage._cdata
        with self._lock:
            if key in self._watched:
                return
            self._watched[key] = storage.nbytes()
            self.live += storage.nbytes()
            self.peak = max(self.peak, self.live)
        weakref.finalize(storage, self._freed, key)

    def _freed(self, key: int) -> None:
        with self._lock:
            self.live -= self._watched.pop(key, 0)


def peak_bytes(step: Callable[[], object], device: torch.device) -> int:
    """Return the peak of tensor bytes during ``step()`` above what was there before it.

    Raises
    ------
    ValueError
        The device is neither the CPU nor CUDA.
    """
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        step()
        torch.cuda.synchronize(device)
        peak: int = torch.cuda.max_memory_allocated(device)
        return peak - before
    if device.type != "cpu":
        raise ValueError(f"device is {device}; a CPU or a CUDA device wanted")
    counter = LiveBytes()
    with counter:
        step()
    return counter.peak
