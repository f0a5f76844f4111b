# SPDX-License-Identifier: Apache-2.0
"""Surroundings under which an operator gives the bits that it gave before."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch

__all__ = ["CpuState", "RandomState", "bare_kernels"]


class RandomState:
    """A generator, and the state it had before an operator drew from it."""

    __slots__ = ("_device", "_generator", "_state")

    def __init__(self, device: torch.device, generator: torch.Generator | None = None) -> None:
        self._device = device
        self._generator = _default_generator(device) if generator is None else generator
        self._state = self._generator.get_state()

    @property
    def nbytes(self) -> int:
        """Bytes of the state in host memory: 16 for CUDA, 5056 for the CPU."""
        return self._state.numel()

    def private(self) -> torch.Generator:
        """Another generator in this state."""
        generator = torch.Generator(self._device)
        generator.set_state(self._state)
        return generator

    @contextmanager
    def replay(self) -> Iterator[None]:
        """The generator is in this state within, and in its present one again afterwards.

        Of two threads that draw from one generator, the other's draws meanwhile are lost. Only
        operators that take no generator need this.
        """
        present = self._generator.get_state()
        self._generator.set_state(self._state)
        try:
            yield
        finally:
            self._generator.set_state(present)


@dataclass(frozen=True, slots=True)
class CpuState:
    """Settings on which the last bit of a vectorised CPU kernel depends."""

    threads: int
    flushes_denormals: bool
    uses_onednn: bool

    @classmethod
    def now(cls) -> CpuState:
        """Those of this thread."""
        return cls(torch.get_num_threads(), _DENORMAL * _ONE == 0.0, torch._C._get_mkldnn_enabled())

    @contextmanager
    def applied(self) -> Iterator[None]:
        """These settings within, the thread's own afterwards."""
        present = CpuState.now()
        self._set(present)
        try:
            yield
        finally:
            present._set(self)

    def _set(self, present: CpuState) -> None:
        if self.threads != present.threads:
            torch.set_num_threads(self.threads)
        if self.flushes_denormals != present.flushes_denormals:
            torch.set_flush_denormal(self.flushes_denormals)
        if self.uses_onednn != present.uses_onednn:  # Has kernels of its own, for GELU.
            torch._C._set_mkldnn_enabled(self.uses_onednn)


# Operands of a multiplication that no compiler folds.
_DENORMAL, _ONE = 5e-324, 1.0


@contextmanager
def bare_kernels() -> Iterator[None]:
    """Operators go to their kernels: no autograd, no autocast, no modes of any kind."""
    with (
        torch._C.DisableTorchFunction(),
        torch._C._DisableTorchDispatch(),
        torch._C._DisableAutocast(),
        torch._C._AutoDispatchBelowAutograd(),
    ):
        yield


def _default_generator(device: torch.device) -> torch.Generator:
    if device.type == "cpu":
        return torch.default_generator
    index = torch.cuda.current_device() if device.index is None else device.index
    return torch.cuda.default_generators[index]
