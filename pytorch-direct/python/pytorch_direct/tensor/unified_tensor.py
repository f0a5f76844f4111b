# SPDX-License-Identifier: Apache-2.0
"""``UnifiedTensor``, a CPU tensor that CUDA kernels read in place, and ``unified`` to make one."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from datapath_core.errors import UnsupportedError
from pytorch_direct.memory.adopt import adopt
from pytorch_direct.memory.registration import (
    Registration,
    can_use_cuda,
    registration_of,
    require_cuda,
)

if TYPE_CHECKING:
    from pytorch_direct.ops.row_gradients import RowGradient

__all__ = ["UnifiedTensor", "unified", "view_as_unified", "wrap"]


_logger = logging.getLogger("pytorch_direct")
# What torch itself keeps in ``grad``.
_AUTOGRADS: Any = torch.Tensor.grad


def unified(source: Any) -> UnifiedTensor:
    """Let the GPU read host memory where it lies.

    The memory of the whole storage is registered in place (pinned and mapped); nothing is copied,
    and the result and `source` are two names of the same numbers. Without a GPU the result works
    the same on ordinary memory.

    Parameters
    ----------
    source : torch.Tensor, numpy.ndarray, numpy.memmap, mmap.mmap or safetensors slice
        A strided CPU tensor of one dimension or more, contiguous or not, of any dtype; or an array
        or a map (bytes), or what ``get_slice`` or ``get_tensor`` of an open safetensors file gives.
        It is kept alive by the result. What torch cannot address (negative strides, bytes in the
        other order) and a file that the driver cannot pin where it is mapped are copied, which
        ``result.copied`` says, and the log why. Writing to read-only memory raises.

    Returns
    -------
    UnifiedTensor
        `source` itself if it is unified already; registered anew if its memory was replaced.

    Raises
    ------
    TypeError
        It is nothing of the kind, or a tensor without a single strided storage on the CPU.
    ValueError
        It has no dimension.
    """
    if isinstance(source, UnifiedTensor):
        if not _is_current(source):
            # As its data were replaced, for instance by module.double().
            source._registration = registration_of(plain(source))
            source._registration.tensors[id(source)] = source
        return source
    found = adopt(source)
    tensor = found.tensor
    if tensor.layout is not torch.strided or tensor.is_quantized or tensor.is_nested:
        raise TypeError(
            f"unified() takes a plain strided tensor, not one with layout {tensor.layout}"
            f"{' and quantised' if tensor.is_quantized else ''}; convert it with to_dense() first"
        )
    if tensor.device.type != "cpu":
        raise TypeError(
            f"unified() takes a tensor in host memory, but this one is on {tensor.device}; a GPU "
            "can read that already"
        )
    if tensor.dim() == 0:
        raise ValueError("unified() takes a tensor of one dimension or more; this one has none")
    registration = registration_of(tensor)
    copied, read_only = found.copied, found.read_only
    if found.is_mapped and not registration.is_registered and can_use_cuda():
        copied = f"the GPU cannot read the mapped file: {registration.reason}"
        tensor = tensor.clone()
        registration, read_only = registration_of(tensor), False
    if copied:
        registration.copied = True
        _logger.warning("unified() copied %d bytes: %s", registration.nbytes, copied)
    # Another name of the memory does not make it writable.
    registration.read_only |= read_only
    return wrap(tensor, registration)


def wrap(tensor: torch.Tensor, registration: Registration) -> UnifiedTensor:
    """Return a tensor over registered memory as a `UnifiedTensor`, an alias also to autograd."""
    with torch._C.DisableTorchFunctionSubclass():
        if tensor.requires_grad:
            alias = tensor.as_subclass(UnifiedTensor)
        else:
            # No view to autograd, so that whoever asks for a view's base does not find one here.
            alias = torch.Tensor._make_subclass(UnifiedTensor, tensor)
    return _named(alias, registration)


def view_as_unified(view: torch.Tensor, registration: Registration) -> UnifiedTensor:
    """Return a view that torch has just made: with gradients no step more in the graph."""
    if not view.requires_grad:
        return wrap(view, registration)
    view.__class__ = UnifiedTensor
    return _named(view, registration)  # type: ignore[arg-type]


def _named(tensor: UnifiedTensor, registration: Registration) -> UnifiedTensor:
    tensor._registration = registration
    registration.tensors[id(tensor)] = tensor
    return tensor


class UnifiedTensor(torch.Tensor):
    """A tensor in host memory that both the CPU and CUDA kernels use; made by :func:`unified`.

    To torch it is a CPU tensor: ``u.device`` is ``cpu``, and an operator whose other operands are
    on the CPU gives an ordinary CPU tensor. Where an operand is on a GPU the operator runs there,
    over the same memory, and gives an ordinary CUDA tensor; a GPU write into a unified tensor is
    waited for, so that the CPU sees it. Views (slices, ``view``, ``t()``, ``detach()``) stay
    unified.

    ``u[ids]`` with a CUDA tensor of ids gathers on that GPU, on its current stream, without waiting
    for it; with CPU ids, on the CPU. Negative ids count from the end. :func:`pytorch_direct.gather`
    has options.

    ``torch.save`` and ``pickle`` write an ordinary tensor, which loads anywhere; ``copy.deepcopy``
    and sending to another process give a unified one.

    Notes
    -----
    The idea is PyTorch-Direct's (S. W. Min et al., arXiv 2101.07956), without a device type of its
    own.
    """

    _registration: Registration
    _row_gradients: list[RowGradient]

    @property
    def is_registered(self) -> bool:
        """Whether the memory is really pinned (False without a GPU)."""
        return self._registration.is_registered

    @property
    def copied(self) -> bool:
        """Whether :func:`unified` had to copy, so that it and its source are two memories."""
        return self._registration.copied

    def device_view(self, device: torch.device | str | int | None = None) -> torch.Tensor:
        """Return a CUDA tensor over the same memory, for custom kernels, Inductor and graphs.

        Parameters
        ----------
        device : torch.device, str, int or None
            The GPU; None is the current one.

        Returns
        -------
        torch.Tensor
            Same shape, strides and dtype, on the GPU; nothing is copied. It keeps the memory alive.
            Kernels that use it on a stream other than that current now must have ended before it is
            dropped. Gradients flow back to the unified tensor.

        Raises
        ------
        UnsupportedError
            There is no CUDA, or the GPU cannot read the memory; the text says why.
        IndexError
            An earlier gather on this GPU met an id out of range.
        """
        from pytorch_direct.ops.bad_ids import raise_pending

        where = cuda_device(device)
        raise_pending(where.index)
        if torch.is_grad_enabled() and self.requires_grad:
            return _DeviceView.apply(self, where)  # type: ignore[no-any-return, no-untyped-call]
        return device_view_of(self, where)

    @property
    def grad(self) -> torch.Tensor | None:
        """The gradient, on the CPU: sparse where only gathers made it; setting None clears it.

        Gathers with CUDA ids leave their gradients in GPU memory (:meth:`row_gradients`). Reading
        this property copies them here, once, which waits for the GPU.
        """
        pending = self.__dict__.pop("_row_gradients", None)
        with torch._C.DisableTorchFunctionSubclass():
            known: torch.Tensor | None = _AUTOGRADS.__get__(self)
            is_list = known is not None and known.layout is torch.sparse_coo
            if pending or (is_list and not known.is_coalesced()):  # type: ignore[union-attr]
                from pytorch_direct.ops.row_gradients import added_up

                known = added_up(known, pending or [], self.shape)
                _AUTOGRADS.__set__(self, known)
            return known

    @grad.setter
    def grad(self, value: torch.Tensor | None) -> None:
        self.__dict__.pop("_row_gradients", None)
        with torch._C.DisableTorchFunctionSubclass():
            _AUTOGRADS.__set__(self, value)

    def row_gradients(self) -> RowGradient | None:
        """Return and forget the gradients that gathers with CUDA ids left on the GPU.

        Returns
        -------
        RowGradient or None
            ``ids`` (int64) and ``rows`` as the backward passes gave them since the gradient was
            cleared or this was called, not yet added up; None if there are none.
        """
        found = self._known_row_gradients()
        self.__dict__.pop("_row_gradients", None)
        return found

    def _known_row_gradients(self) -> RowGradient | None:
        """Return what `row_gradients` does, and keep it."""
        from pytorch_direct.ops.row_gradients import joined

        pending = self.__dict__.get("_row_gradients")
        if not pending:
            return None
        pending[:] = [joined(pending)]
        return pending[0]  # type: ignore[no-any-return]

    def _autograds_gradient(self) -> torch.Tensor | None:
        """Return what autograd keeps: dense, or sparse with rows of an id not yet added up."""
        with torch._C.DisableTorchFunctionSubclass():
            known: torch.Tensor | None = _AUTOGRADS.__get__(self)
            return known

    def _add_row_gradient(self, gradient: RowGradient) -> None:
        self.__dict__.setdefault("_row_gradients", []).append(gradient)

    def share_memory_(self) -> UnifiedTensor:
        """Move the memory into shared memory, once, and register that; logs that it does.

        Unified views of the same memory move along. Ordinary tensors over it, such as the argument
        of
        :func:`unified`, keep the old memory, which lives until they and running kernels are done
        with it.
        """
        from pytorch_direct.tensor.sharing import move_to_shared_memory

        move_to_shared_memory(self)
        return self

    def __getitem__(self, index: Any) -> torch.Tensor:
        from pytorch_direct.ops.gather import gather_by_index, is_row_index

        if is_row_index(index):
            return gather_by_index(self, index)
        return super().__getitem__(index)

    def __deepcopy__(self, memo: dict[int, Any]) -> UnifiedTensor:
        if id(self) in memo:
            return memo[id(self)]  # type: ignore[no-any-return]
        # A leaf's copy is a leaf, which an alias of one is not.
        twin = unified(copy.deepcopy(plain(self), memo).detach())
        twin.requires_grad_(self.requires_grad)
        gradient = self.grad
        if gradient is not None:
            twin.grad = copy.deepcopy(gradient, memo)
        if getattr(self, "_is_param", False):
            twin._is_param = True
        memo[id(self)] = twin
        return twin

    def __reduce_ex__(self, protocol: Any) -> Any:
        ordinary = plain(self)
        if getattr(self, "_is_param", False):
            ordinary = torch.nn.Parameter(ordinary, requires_grad=self.requires_grad)
        return ordinary.__reduce_ex__(protocol)  # type: ignore[no-untyped-call]

    @classmethod
    def __torch_function__(
        cls,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        from pytorch_direct.tensor.placement import place

        return place(func, args, kwargs or {})


def plain(tensor: torch.Tensor) -> torch.Tensor:
    """Return an ordinary tensor over the same memory, a leaf exactly if `tensor` is one."""
    with torch._C.DisableTorchFunctionSubclass():
        if tensor.requires_grad and not tensor.is_leaf:
            return tensor.as_subclass(torch.Tensor)
        return tensor.detach().as_subclass(torch.Tensor).requires_grad_(tensor.requires_grad)


def cuda_device(device: torch.device | str | int | None) -> torch.device:
    """Return a CUDA device with its index; `UnsupportedError` where there is none."""
    require_cuda()
    where = (
        torch.device("cuda", device) if isinstance(device, int) else torch.device(device or "cuda")
    )
    if where.type != "cuda":
        raise ValueError(f"a device view is on a CUDA device, not on {where}")
    return where if where.index is not None else torch.device("cuda", torch.cuda.current_device())


def current_registration(tensor: UnifiedTensor) -> Registration:
    """Return the registration that covers the tensor's memory as it is now.

    Raises
    ------
    UnsupportedError
        Something moved the tensor to other memory since.
    """
    if not _is_current(tensor):
        raise UnsupportedError(
            "the unified tensor's storage was replaced, resized or moved since it was registered "
            "(by resize_, set_, or sharing an ordinary tensor over it): call unified() on it "
            "again, and share it by its own share_memory_()"
        )
    return tensor._registration


def _is_current(tensor: UnifiedTensor) -> bool:
    registration = tensor._registration
    with torch._C.DisableTorchFunctionSubclass():
        storage = tensor.untyped_storage()
        return (
            storage.data_ptr() == registration.address and storage.nbytes() == registration.nbytes
        )


def device_view_of(tensor: UnifiedTensor, device: torch.device) -> torch.Tensor:
    """Return the view without autograd and without a look at earlier errors."""
    memory = current_registration(tensor).device_bytes(device.index)
    with torch._C.DisableTorchFunctionSubclass(), torch.inference_mode(False), torch.no_grad():
        view = torch.empty(0, dtype=tensor.dtype, device=device)
        view.set_(memory.untyped_storage(), tensor.storage_offset(), tensor.size(), tensor.stride())
        if tensor.is_conj():
            view = torch.conj(view)
        return torch._neg_view(view) if tensor.is_neg() else view


class _DeviceView(torch.autograd.Function):
    """A view to the GPU, a copy of the gradient back to the host."""

    @staticmethod
    def forward(ctx: Any, tensor: UnifiedTensor, device: torch.device) -> torch.Tensor:
        return device_view_of(tensor, device)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None]:
        return gradients[0].cpu(), None
