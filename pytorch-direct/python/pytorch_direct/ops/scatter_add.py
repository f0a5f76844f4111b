# SPDX-License-Identifier: Apache-2.0
"""``scatter_add_``: rows added into a table by id, the same result on any number of threads."""

from __future__ import annotations

import torch

from datapath_core.errors import UnsupportedError
from pytorch_direct import _native
from pytorch_direct.ops.arguments import (
    bad_id_message,
    check_ids,
    check_memory,
    check_source,
    note_write,
    storage_range,
)
from pytorch_direct.ops.bad_ids import raise_pending
from pytorch_direct.ops.gather_cuda import require_kernels
from pytorch_direct.ops.update import NUMBERS, State, change_rows
from pytorch_direct.tensor.unified_tensor import UnifiedTensor, current_registration, wrap

__all__ = ["scatter_add_"]

# Types whose sums need no order by id on the CPU: adding one row after another rounds nothing away
# that adding them first would keep.
_ADDED_AS_THEY_STAND = (torch.float32, torch.float64, torch.int32, torch.int64)


def scatter_add_(dst: torch.Tensor, ids: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """Add row i of `rows` to row ``ids[i]`` of `dst`, in place and in the order of the ids.

    Runs where the ids are, on a GPU without any wait of the host: each row of `dst` is read and
    written once, by one owner, without atomic operations, so that host memory can be added to over
    the link and the result has the same bits on CPU and GPU.

    Parameters
    ----------
    dst : torch.Tensor
        Shape ``[n, ...]``. With CUDA ids: a :class:`UnifiedTensor` or a tensor on the same GPU,
        each row of it contiguous.
    ids : torch.Tensor
        Shape ``[m]``, int32 or int64 in ``[0, n)``. Duplicates add up.
    rows : torch.Tensor
        Shape ``[m, ...]`` with the dtype of `dst`, where the ids are.

    Returns
    -------
    torch.Tensor
        `dst`. Equal to ``dst.index_add_(0, ids, rows)`` but for the order of additions, which here
        is that of the ids; float16 and bfloat16 are added up in float32 and rounded once.

    Raises
    ------
    IndexError
        On the CPU: an id is out of range; `dst` is unchanged. On CUDA: an earlier call on that GPU
        met one; rows of bad ids are left out there, and word is left for the next call or
        :func:`check`, as :func:`gather` does.
    TypeError, ValueError
        An argument does not fit; `dst` is unchanged.
    UnsupportedError
        There is no kernel for the dtype, the strides or gradients on a GPU; the text says which.
    """
    if torch.compiler.is_compiling() and not isinstance(dst, UnifiedTensor):
        torch.ops.pytorch_direct.scatter_add_(dst, ids, rows)
        return dst
    check_source(dst, "dst")
    check_ids(ids)
    check_source(rows, "rows")
    _check_devices(dst, ids, rows)
    if ids.dim() != 1:
        raise ValueError(f"ids must have one dimension, not {ids.dim()}")
    if rows.dtype != dst.dtype:
        raise TypeError(
            f"rows are {rows.dtype} but dst is {dst.dtype}; convert with rows.to(dst.dtype)"
        )
    if tuple(rows.shape) != (ids.numel(), *dst.shape[1:]):
        raise ValueError(
            f"rows must have shape {(ids.numel(), *dst.shape[1:])} for these ids, "
            f"not {tuple(rows.shape)}"
        )
    check_memory("scatter_add_", dst, ids, rows)
    low, high = storage_range(dst)
    for name, operand in (("ids", ids), ("rows", rows)):
        begin, end = storage_range(operand)
        if low < end and begin < high:
            raise ValueError(f"dst overlaps the memory of {name}; give it memory of its own")
    with torch._C.DisableTorchFunctionSubclass():
        run = _scatter_add_cuda if ids.is_cuda else _scatter_add
        return run(dst, ids.contiguous(), rows)


def _check_devices(dst: torch.Tensor, ids: torch.Tensor, rows: torch.Tensor) -> None:
    if rows.device != ids.device:
        raise ValueError(f"rows are on {rows.device} and ids on {ids.device}: they go together")
    if dst.device != ids.device and not isinstance(dst, UnifiedTensor):
        raise UnsupportedError(
            f"scatter_add_: dst is on {dst.device} and ids are on {ids.device}, which cannot "
            "write it: make dst unified first, or move the others"
        )


def _scatter_add_cuda(dst: torch.Tensor, ids: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    require_kernels()
    raise_pending(ids.device.index)
    wants_grad = torch.is_grad_enabled() and (dst.requires_grad or rows.requires_grad)
    lazy = any(operand.is_conj() or operand.is_neg() for operand in (dst, rows))
    if dst.is_cuda and (wants_grad or lazy):
        return dst.index_add_(0, ids, rows)
    if wants_grad or lazy:
        raise UnsupportedError(
            "scatter_add_ on a GPU into host memory takes no gradients and no lazily conjugated "
            "operands: use torch.no_grad(), or resolve_conj() first"
        )
    number = dst
    if dst.is_complex():
        number, rows = torch.view_as_real(dst), torch.view_as_real(rows)
        if isinstance(dst, UnifiedTensor):
            number = wrap(number, dst._registration)
    if number.dtype not in NUMBERS or not _has_whole_rows(number):
        raise UnsupportedError(
            f"scatter_add_ on a GPU has no kernel for {dst.dtype} with strides {dst.stride()}: "
            "rows must be contiguous and their numbers not be bool, float8 or unsigned but uint8"
        )
    change_rows(number, ids, rows.contiguous(), State("add"), report=True)
    return dst


def _scatter_add(dst: torch.Tensor, ids: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    wants_grad = torch.is_grad_enabled() and (dst.requires_grad or rows.requires_grad)
    as_stored = not any(operand.is_conj() or operand.is_neg() for operand in (dst, rows))
    if isinstance(dst, UnifiedTensor):
        current_registration(dst).settle(to_write=True)
        if dst._registration.read_only:
            raise UnsupportedError("scatter_add_: dst is over memory for reading only")
    if isinstance(rows, UnifiedTensor):
        current_registration(rows).settle()
    in_order = dst.dtype in _ADDED_AS_THEY_STAND and dst.is_contiguous()
    if wants_grad or not as_stored or not in_order:
        wrong = ((ids < 0) | (ids >= dst.shape[0])).nonzero()
        if wrong.numel():
            raise _error(dst, ids, int(wrong[0]))
        if wants_grad or not as_stored or dst.dtype not in NUMBERS or not _has_whole_rows(dst):
            return dst.index_add_(0, ids, rows)
        change_rows(dst, ids, rows.contiguous(), State("add"))
        return dst
    packed = rows.contiguous()
    position = _native.scatter_add_cpu(
        dst.data_ptr(),
        dst.shape[0],
        packed[:1].numel(),
        ids.data_ptr(),
        ids.dtype == torch.int64,
        ids.numel(),
        packed.data_ptr(),
        NUMBERS[dst.dtype],
        torch.get_num_threads(),
    )
    if position >= 0:
        raise _error(dst, ids, position)
    note_write(dst)
    return dst


def _has_whole_rows(dst: torch.Tensor) -> bool:
    """Whether each row is contiguous and has memory of its own."""
    return dst[:1].is_contiguous() and (dst.shape[0] <= 1 or dst.stride(0) >= dst[:1].numel())


def _error(dst: torch.Tensor, ids: torch.Tensor, position: int) -> IndexError:
    ident = int(ids[position])
    text = bad_id_message("scatter_add_", ident, position, ids.numel(), dst.shape[0], wrap=False)
    return IndexError(text)
