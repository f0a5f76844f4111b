# SPDX-License-Identifier: Apache-2.0
"""Launches of kernels whose arguments are known but for the tensors of a call.

``kernel[grid](...)`` looks at every argument each time. Of a program on one graph only pointers
change, so the compiled kernel is kept and its launcher called with them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

__all__ = ["Launch", "precision", "precision_on", "room"]

_ALIGNED = 16
"""Bytes; kernels are compiled for pointers that are multiples of it, or are not."""

_FIRST = 13
"""Arguments of the launcher before the kernel's own."""

_STREAM = 3
"""Place of the stream among them."""

_kept: dict[int, dict[object, Any]] = {}
"""Compiled kernels by kernel, which lives as long as the process, and kind of arguments."""


def precision() -> str:
    """How products of fp32 matrices round their operands, as PyTorch is told to."""
    return "ieee" if torch.get_float32_matmul_precision() == "highest" else "tf32"


def precision_on(device: torch.device) -> Callable[[], str] | str:
    """``precision`` where matrix units take tf32; elsewhere products are those of fp32 anyway."""
    rounds = device.type == "cuda" and torch.cuda.get_device_capability(device) >= (8, 0)
    return precision if rounds else "ieee"


def room(rows: int, width: int, device: torch.device) -> Callable[[], Tensor]:
    """What makes room for partial results, fp32, at each call; the same crumb where none is needed.

    Parameters
    ----------
    rows, width : int
    device : torch.device
    """
    if rows:
        return functools.partial(torch.empty, (rows, width), dtype=torch.float32, device=device)
    crumb = torch.empty((1, 1), dtype=torch.float32, device=device)
    return lambda: crumb


def _launcher(compiled: object) -> tuple[Callable[..., None], list[object]] | None:
    """What starts a compiled kernel, with the arguments before the kernel's own.

    None where Triton is not as it was read: then kernels are launched as everyone does.
    """
    import triton

    run: Any = getattr(compiled, "run", None)
    known = type(run).__name__ == "CudaLauncher" and triton.__version__.startswith("3.6.")
    if not known or run.global_scratch_size or run.profile_scratch_size:
        return None
    assert isinstance(compiled, triton.compiler.CompiledKernel)
    head = [
        0, 0, 0, 0, compiled.function, run.launch_cooperative_grid, run.launch_pdl, None, None,
        compiled.packed_metadata, None, None, None,
    ]  # fmt: skip
    return run.launch, head


def _kind(arg: object, sized: bool) -> object:
    """What of an argument a kernel is compiled for."""
    if isinstance(arg, Tensor):
        return arg.dtype, arg.data_ptr() % _ALIGNED == 0
    return isinstance(arg, int) and arg < 1 << 31 if sized else arg


class Launch:
    """A kernel with its grid and what is passed to it on one graph.

    Parameters
    ----------
    kernel : JITFunction
        Or what stands for one.
    grid : tuple of int
        Nothing is launched where one of them is 0.
    args : sequence
        Tensors, numbers and None; ``...`` for a tensor of each call, and ``precision`` itself for
        what it gives at each call.
    num_warps : int
    """

    def __init__(
        self, kernel: Any, grid: tuple[int, ...], args: Sequence[Any], *, num_warps: int
    ) -> None:
        self._kernel, self._grid, self._warps = kernel, grid, num_warps
        self._args = list(args)
        self._holes = [i for i, arg in enumerate(args) if arg is ...]
        late = [i for i, arg in enumerate(args) if arg is precision]
        self._late = late[0] if late else None
        self._empty = 0 in grid
        self._direct: dict[str, tuple[Callable[..., None], list[object]]] = {}
        self._device = 0
        self._stream: Callable[[int], int] | None = None
        self._hooks: Any = None

    def __call__(self, *tensors: Tensor) -> None:
        """Launch on the current stream of the current device, which must be the tensors'."""
        if self._empty:
            return
        mode = "" if self._late is None else precision()
        direct = self._direct.get(mode)
        if direct is None:
            self._first(mode, tensors)
            return
        run, template = direct
        values = template.copy()
        together = 0
        for place, tensor in zip(self._holes, tensors, strict=True):
            at = tensor.data_ptr()
            values[_FIRST + place] = at
            together |= at
        hooks = self._hooks
        if together % _ALIGNED or hooks.launch_enter_hook.calls or hooks.launch_exit_hook.calls:
            self._plain(mode, tensors)
            return
        assert self._stream is not None
        values[_STREAM] = self._stream(self._device)
        try:
            run(*values)
        except TypeError:  # a launcher of other arguments, which has launched nothing
            _kept.setdefault(id(self._kernel), {}).clear()
            self._direct.clear()
            self._plain(mode, tensors)

    def _plain(self, mode: str, tensors: Sequence[Tensor]) -> object:
        """Launch as everyone does, and give the compiled kernel."""
        args = self._args.copy()
        for place, tensor in zip(self._holes, tensors, strict=True):
            args[place] = tensor
        if self._late is not None:
            args[self._late] = mode
        return self._kernel[self._grid](*args, num_warps=self._warps)

    def _first(self, mode: str, tensors: Sequence[Tensor]) -> None:
        """Launch for the first time: with what was compiled for arguments of the same kind."""
        aligned = all(tensor.data_ptr() % _ALIGNED == 0 for tensor in tensors)
        if not (tensors and tensors[0].is_cuda and aligned and hasattr(self._kernel, "params")):
            self._plain(mode, tensors)
            return
        self._device = tensors[0].get_device()
        sized = (p.do_not_specialize and not p.is_constexpr for p in self._kernel.params)
        kinds = (_kind(arg, size) for arg, size in zip(self._args, sized, strict=True))
        key = (self._device, self._warps, mode, *(t.dtype for t in tensors), *kinds)
        kept = _kept.setdefault(id(self._kernel), {})
        known = key in kept
        if not known:
            kept[key] = _launcher(self._plain(mode, tensors))
        if kept[key] is not None:
            self._keep(mode, *kept[key])
        if known:
            self(*tensors) if mode in self._direct else self._plain(mode, tensors)

    def _keep(self, mode: str, run: Callable[..., None], head: Sequence[object]) -> None:
        from triton import knobs
        from triton.runtime import driver

        self._stream, self._hooks = driver.active.get_current_stream, knobs.runtime
        fixed = [arg.data_ptr() if isinstance(arg, Tensor) else arg for arg in self._args]
        if self._late is not None:
            fixed[self._late] = mode
        self._direct[mode] = run, [*[*self._grid, 1, 1][:_STREAM], *head[_STREAM:], *fixed]
