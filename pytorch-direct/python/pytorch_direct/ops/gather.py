# SPDX-License-Identifier: Apache-2.0
"""``gather``: rows by id, wherever the table lies; decides where, checks, runs no kernel itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from datapath_core.errors import UnsupportedError
from pytorch_direct.ops import gather_cpu, gather_cuda
from pytorch_direct.ops.arguments import (
    ID_DTYPES,
    check_ids,
    check_memory,
    check_out,
    check_source,
    note_write,
)
from pytorch_direct.tensor.outside_graph import outside_graph
from pytorch_direct.tensor.unified_tensor import UnifiedTensor

__all__ = ["gather", "gather_by_index", "is_row_index"]

ORDERS = ("auto", "none", "address")


@dataclass(frozen=True)
class Options:
    """How to gather; what the backends share."""

    dtype: torch.dtype
    order: str = "auto"
    sm_share: float | None = None
    wrap: bool = False


def gather(
    src: torch.Tensor,
    ids: torch.Tensor,
    *,
    out: torch.Tensor | None = None,
    dtype: torch.dtype | None = None,
    order: str = "auto",
    sm_share: float | None = None,
    stream: torch.cuda.Stream | None = None,
) -> torch.Tensor:
    """Copy rows by id: ``out[i] = src[ids[i]]``, equal to ``index_select`` to the last bit.

    Runs where the ids are: CUDA ids gather on their GPU, on its current stream, from a unified
    tensor or from memory of the same GPU, without any wait of the host; CPU ids gather on the CPU,
    on ``torch.get_num_threads()`` threads.

    Parameters
    ----------
    src : torch.Tensor
        Shape ``[rows, ...]``, strided, any dtype, strides and alignment. With CUDA ids: a
        :class:`UnifiedTensor` or a tensor on the same GPU.
    ids : torch.Tensor
        int32 or int64 of any shape, each in ``[0, rows)``. Duplicates are allowed. A tensor without
        dimensions counts as one of length 1.
    out : torch.Tensor, optional
        Where the result goes: exactly its shape, dtype and device, memory of its own.
    dtype : torch.dtype, optional
        Convert on the way: what crosses the link is of the table's dtype. Equal to ``.to(dtype)``.
    order : {"auto", "none", "address"}
        Whether the GPU sorts the batch by address before it reads host memory: ``auto`` does when
        the model in use (:func:`gather_model`) says that it pays. Results do not depend on it; on
        the CPU it changes nothing.
    sm_share : float, optional
        Share of the GPU's multiprocessors to launch blocks for, in (0, 1], so that training can
        overlap; the model's by default.
    stream : torch.cuda.Stream, optional
        Run on this stream, after the work now on the current one. The result belongs to it: make
        other streams wait for it before they read the result.

    Returns
    -------
    torch.Tensor
        Shape ``ids.shape + src.shape[1:]`` on the device of `ids`, contiguous, or `out`. Gradients
        flow to `src`.

    Raises
    ------
    IndexError
        On the CPU: an id is out of range; the text names the first, its position and the valid
        range. On CUDA: an earlier gather on that GPU met one. A gather that meets one reads nothing
        out of range, fills the bad rows with 0xFF bytes and leaves word for the next call (or
        :func:`check`).
    TypeError, ValueError
        An argument does not fit; nothing was done.
    UnsupportedError
        The GPU cannot read `src`; the text says why and what to do.
    """
    if torch.compiler.is_compiling():
        return _gather_compiled(src, ids, out, dtype, order, sm_share, stream)
    with torch._C.DisableTorchFunctionSubclass():
        options = _checked(src, ids, dtype, order, sm_share)
        if stream is not None:
            return _gather_on(stream, src, ids, out, options)
        return _gather(src, ids, out, options)


def _checked(
    src: torch.Tensor,
    ids: torch.Tensor,
    dtype: torch.dtype | None,
    order: str,
    sm_share: float | None,
) -> Options:
    check_source(src, "src")
    check_ids(ids)
    if order not in ORDERS:
        raise ValueError(f"order must be one of {', '.join(map(repr, ORDERS))}, not {order!r}")
    if sm_share is not None and not 0 < sm_share <= 1:
        raise ValueError(f"sm_share must be in (0, 1], not {sm_share}")
    if dtype is not None and not isinstance(dtype, torch.dtype):
        raise TypeError(f"dtype must be a torch.dtype, not {type(dtype).__name__}")
    return Options(src.dtype if dtype is None else dtype, order, sm_share)


def _gather_compiled(
    src: torch.Tensor,
    ids: torch.Tensor,
    out: torch.Tensor | None,
    dtype: torch.dtype | None,
    order: str,
    sm_share: float | None,
    stream: torch.cuda.Stream | None,
) -> torch.Tensor:
    if isinstance(src, UnifiedTensor) or out is not None or stream is not None:
        rows: torch.Tensor = _gather_outside_graph(
            src, ids, out=out, dtype=dtype, order=order, sm_share=sm_share, stream=stream
        )
        return rows
    operator: Callable[..., torch.Tensor] = torch.ops.pytorch_direct.gather
    return operator(src, ids, dtype, order, sm_share)


_gather_outside_graph = outside_graph(
    gather, "unified tensors, out= and stream= are not traced: compile over u.device_view()"
)


def _gather_on(
    stream: torch.cuda.Stream,
    src: torch.Tensor,
    ids: torch.Tensor,
    out: torch.Tensor | None,
    options: Options,
) -> torch.Tensor:
    if ids.device.type != "cuda":
        raise ValueError(f"stream= goes with CUDA ids; these are on {ids.device}")
    if stream.device != ids.device:
        raise ValueError(f"stream is of {stream.device} but ids are on {ids.device}")
    stream.wait_stream(torch.cuda.current_stream(ids.device))
    with torch.cuda.stream(stream):
        result = _gather(src, ids, out, options)
    for operand in (src, ids, out):
        if operand is not None and operand.is_cuda:
            operand.record_stream(stream)
    return result


def is_row_index(index: Any) -> bool:
    """Whether ``table[index]`` is a gather of rows: a tensor of ids, no mask and no CPU scalar."""
    if type(index) is tuple and len(index) == 1:
        index = index[0]
    if not isinstance(index, torch.Tensor) or index.dtype not in ID_DTYPES:
        return False
    return index.dim() > 0 or index.is_cuda


def gather_by_index(table: UnifiedTensor, index: Any, *, wrap: bool = True) -> torch.Tensor:
    """Return ``table[index]`` for an index that `is_row_index` accepts."""
    ids = index[0] if type(index) is tuple else index
    with torch._C.DisableTorchFunctionSubclass():
        rows = _gather(table, ids, None, Options(table.dtype, wrap=wrap))
    return rows[0] if ids.dim() == 0 else rows


def _gather(
    src: torch.Tensor, ids: torch.Tensor, out: torch.Tensor | None, options: Options
) -> torch.Tensor:
    check_memory("gather", src, ids, out)
    if out is None and src.requires_grad and torch.is_grad_enabled():
        rows: torch.Tensor = _Gather.apply(src, ids, options)  # type: ignore[no-untyped-call]
        return rows
    return _gather_rows(src, ids, out, options)


def _gather_rows(
    src: torch.Tensor, ids: torch.Tensor, out: torch.Tensor | None, options: Options
) -> torch.Tensor:
    on_cuda = ids.device.type == "cuda"
    if not on_cuda and ids.device.type != "cpu":
        raise ValueError(f"ids must be on the CPU or on a CUDA device, not on {ids.device}")
    if src.is_cuda and src.device != ids.device:
        raise ValueError(
            f"src is on {src.device} and ids on {ids.device}: they must be together; move the ids "
            f"with ids.to({str(src.device)!r})"
        )
    if on_cuda and not src.is_cuda and not isinstance(src, UnifiedTensor):
        raise UnsupportedError(
            f"gather: src is an ordinary CPU tensor and ids are on {ids.device}, which cannot read "
            "it: make it unified first, table = pytorch_direct.unified(src), or move the ids with "
            "ids.cpu()"
        )
    if src.is_conj() or src.is_neg():
        # The bytes are those of the tensor before conjugation or negation.
        return _gather_lazily_negated(src, ids, out, options)
    shape = (*(ids.shape or (1,)), *src.shape[1:])
    backend = gather_cuda.gather_rows if on_cuda else gather_cpu.gather_rows
    if out is not None:
        check_out(out, shape, options.dtype, ids.device, (src, ids))
        if out.is_contiguous() and not out.is_conj() and not out.is_neg():
            note_write(out)
            backend(src, ids.contiguous(), out, options)
            return out
    fresh = torch.empty(shape, dtype=options.dtype, device=ids.device)
    backend(src, ids.contiguous(), fresh, options)
    return fresh if out is None else out.copy_(fresh)


def _gather_lazily_negated(
    src: torch.Tensor, ids: torch.Tensor, out: torch.Tensor | None, options: Options
) -> torch.Tensor:
    as_stored = Options(src.dtype, options.order, options.sm_share, options.wrap)
    bare = torch.conj(src) if src.is_conj() else torch._neg_view(src)
    if isinstance(src, UnifiedTensor):
        bare = bare.as_subclass(UnifiedTensor)
        bare._registration = src._registration
    rows = _gather_rows(bare, ids, None, as_stored)
    rows = torch.conj_physical(rows) if src.is_conj() else torch.neg(rows)
    rows = rows.to(options.dtype)
    if out is None:
        return rows
    check_out(out, tuple(rows.shape), options.dtype, ids.device, (src, ids))
    return out.copy_(rows)


class _Gather(torch.autograd.Function):
    """Rows out, gradients of rows added up in the order of the ids, on the table's device."""

    @staticmethod
    def forward(ctx: Any, src: torch.Tensor, ids: torch.Tensor, options: Options) -> torch.Tensor:
        ctx.save_for_backward(ids)
        ctx.table = (src.shape, src.dtype, src.device)
        return _gather_rows(src, ids, None, options)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        (ids,) = ctx.saved_tensors
        shape, dtype, device = ctx.table
        return gradient_of_table(gradients[0], ids, shape, dtype, device), None, None


def gradient_of_table(
    gradient: torch.Tensor,
    ids: torch.Tensor,
    shape: torch.Size,
    dtype: torch.dtype,
    device: torch.device,
) -> torch.Tensor:
    """Return the dense gradient of a table of `shape` from that of gathered rows."""
    ids = ids.reshape(-1).to(device=device, dtype=torch.int64)
    ids = torch.where(ids < 0, ids + shape[0], ids)
    rows = gradient.reshape(ids.numel(), *shape[1:]).to(device=device, dtype=dtype)
    return torch.zeros(shape, dtype=dtype, device=device).index_add_(0, ids, rows)
