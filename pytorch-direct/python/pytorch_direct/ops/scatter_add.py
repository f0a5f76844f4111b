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

__all__ = ["scatter_add_"]

_NATIVE = {
    torch.float32: "float32",
    torch.float64: "float64",
    torch.int32: "int32",
    torch.int64: "int64",
}


def scatter_add_(dst: torch.Tensor, ids: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """Add row i of `rows` to row ``ids[i]`` of `dst`, in place and in the order of the ids.

    Parameters
    ----------
    dst : torch.Tensor
        Shape ``[n, ...]``, on the CPU, unified or not.
    ids : torch.Tensor
        Shape ``[m]``, int32 or int64 in ``[0, n)``, on the CPU. Duplicates add up.
    rows : torch.Tensor
        Shape ``[m, ...]`` with the dtype of `dst`, on the CPU.

    Returns
    -------
    torch.Tensor
        `dst`. Equal to ``dst.index_add_(0, ids, rows)`` but for the order of additions, which here
        is that of the ids.

    Raises
    ------
    IndexError
        An id is out of range; `dst` is unchanged.
    TypeError, ValueError
        An argument does not fit; `dst` is unchanged.
    UnsupportedError
        An operand is on a GPU: there is no kernel for that yet.
    """
    check_source(dst, "dst")
    check_ids(ids)
    check_source(rows, "rows")
    if any(operand.is_cuda for operand in (dst, ids, rows)):
        raise UnsupportedError(
            "scatter_add_ runs on the CPU only: move its operands with .cpu(), or use "
            "dst.index_add_() for a table in GPU memory"
        )
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
        return _scatter_add(dst, ids.contiguous(), rows)


def _scatter_add(dst: torch.Tensor, ids: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    wants_grad = torch.is_grad_enabled() and (dst.requires_grad or rows.requires_grad)
    number = _NATIVE.get(dst.dtype)
    as_stored = not any(operand.is_conj() or operand.is_neg() for operand in (dst, rows))
    if number is None or wants_grad or not (as_stored and dst.is_contiguous()):
        wrong = ((ids < 0) | (ids >= dst.shape[0])).nonzero()
        if wrong.numel():
            raise _error(dst, ids, int(wrong[0]))
        return dst.index_add_(0, ids, rows)
    packed = rows.contiguous()
    position = _native.scatter_add_cpu(
        dst.data_ptr(),
        dst.shape[0],
        packed[:1].numel(),
        ids.data_ptr(),
        ids.dtype == torch.int64,
        ids.numel(),
        packed.data_ptr(),
        number,
        torch.get_num_threads(),
    )
    if position >= 0:
        raise _error(dst, ids, position)
    note_write(dst)
    return dst


def _error(dst: torch.Tensor, ids: torch.Tensor, position: int) -> IndexError:
    ident = int(ids[position])
    text = bad_id_message("scatter_add_", ident, position, ids.numel(), dst.shape[0], wrap=False)
    return IndexError(text)
