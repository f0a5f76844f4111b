# SPDX-License-Identifier: Apache-2.0
"""The highest sum of tensor bytes that a piece of code holds at a time; not a profiler."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

__all__ = ["DevicePeak", "LiveBytes", "peak_over_resident"]


class LiveBytes(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts CPU storages that operators return, from then until they are freed.

    PyTorch keeps no such count on the CPU. What an operator allocates and frees inside itself is
    not seen.

    Attributes
    ----------
    live, peak : int
        Bytes now, and at most so far.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.live = 0
        self.peak = 0
        self._sizes: dict[int, int] = {}
        self._lock = threading.RLock()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run the operator, then count what is new among its results."""
        given = {_address(leaf) for leaf in tree_leaves((args, kwargs)) if _counts(leaf)}
        results = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(results):
            if _counts(leaf) and _address(leaf) not in given:
                self._count(leaf.untyped_storage())
        return results

    def _count(self, storage: torch.UntypedStorage) -> None:
        key = storage._cdata
        with self._lock:
            if key in self._sizes:
                return
            self._sizes[key] = storage.nbytes()
            self.live += storage.nbytes()
            self.peak = max(self.peak, self.live)
        weakref.finalize(storage, self._forget, key)

    def _forget(self, key: int) -> None:
        with self._lock:
            self.live -= self._sizes.pop(key, 0)


class DevicePeak:
    """The highest allocated bytes of a CUDA device from entering on.

    The allocator's own maximum is started anew by a step that is profiled, which tells so by
    :meth:`starts_anew`.

    Parameters
    ----------
    device : torch.device
    """

    _watching: ClassVar[list[DevicePeak]] = []

    def __init__(self, device: torch.device) -> None:
        if device == torch.device(device.type):  # Without an index.
            device = torch.device(device.type, torch.cuda.current_device())
        self._device = device
        self._highest = 0

    def __enter__(self) -> DevicePeak:
        torch.cuda.reset_peak_memory_stats(self._device)
        DevicePeak._watching.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        DevicePeak._watching.remove(self)

    def nbytes(self) -> int:
        """So far."""
        return max(self._highest, int(torch.cuda.max_memory_allocated(self._device)))

    @classmethod
    def starts_anew(cls, device: torch.device, peak: int) -> None:
        """The allocator's maximum, until now so many bytes, is started anew."""
        for watching in cls._watching:
            if watching._device == device:
                watching._highest = max(watching._highest, peak)


def peak_over_resident(step: Callable[[], object], device: torch.device) -> int:
    """Run a step and return its peak of tensor bytes over those that were there before.

    Parameters
    ----------
    step : callable
    device : torch.device
        CUDA: the caching allocator's count of allocated bytes. CPU: :class:`LiveBytes`.

    Raises
    ------
    ValueError
        For a device of another type.
    """
    if device.type == "cpu":
        with LiveBytes() as counter:
            step()
        return int(counter.peak)
    if device.type != "cuda":
        raise ValueError(f"bytes are counted on CUDA and the CPU, not on {device}")
    torch.cuda.synchronize(device)
    resident = torch.cuda.memory_allocated(device)
    with DevicePeak(device) as peak:
        step()
        torch.cuda.synchronize(device)
        return peak.nbytes() - resident


def _counts(leaf: object) -> bool:
    return (
        isinstance(leaf, torch.Tensor)
        and leaf.device.type == "cpu"
        and leaf.layout is torch.strided
    )


def _address(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)
