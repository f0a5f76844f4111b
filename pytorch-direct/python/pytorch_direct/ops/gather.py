# SPDX-License-Identifier: Apache-2.0
"""``gather``: rows by id, wherever the table lies; decides where, checks, runs no kernel itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from datapath_core.errors import UnsupportedError
from pytorch_direct.ops import bad_ids, gather_cpu, gather_cuda
from pytorch_direct.ops.arguments import ID_DTYPES, check_memory, check_out, note_write
from pytorch_direct.ops.gather_gradient import gather_with_gradient
from pytorch_direct.ops.gather_options import CHECKS, Options, checked_options, converted
from pytorch_direct.tensor.outside_graph import outside_graph
from pytorch_direct.tensor.unified_tensor import UnifiedTensor, current_registration

__all__ = ["gather", "gather_by_index", "is_row_index"]


def gather(
    src: torch.Tensor,
    ids: torch.Tensor,
    *,
    out: torch.Tensor | None = None,
    dtype: torch.dtype | None = None,
    scale: float | torch.Tensor | None = None,
    order: str = "auto",
    duplicates: str = "auto",
    sm_share: float | None = None,
    stream: torch.cuda.Stream | None = None,
    check: str = "later",
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
    scale : float or torch.Tensor, optional
        Multiply on the way, by one factor or by one for each row of the table (float32, shape
        ``[rows]``, on the device of the ids or unified): ``(src[ids].float() *
        scale[ids]).to(dtype)``, in float64 where the result is. Without `dtype` the result is of
        the table's if that is float16, bfloat16, float32 or float64, else float32. No gradient
        flows to it.
    order : {"auto", "none", "address"}
        Whether the GPU sorts the batch by address before it reads host memory: ``auto`` does when
        the model in use (:func:`gather_model`) says that it pays. Results do not depend on it; on
        the CPU it changes nothing.
    duplicates : {"auto", "keep", "merge"}
        Whether the GPU reads a row that several ids name only once over the link: ``merge`` sorts
        the batch by id for that, ``auto`` does when the model says that it pays even if the ids
        were drawn uniformly. Results do not depend on it.
    sm_share : float, optional
        Share of the GPU's multiprocessors to launch blocks for, in (0, 1], so that training can
        overlap; the model's by default.
    stream : torch.cuda.Stream, optional
        Run on this stream, after the work now on the current one. The result belongs to it: make
        other streams wait for it before they read the result.
    check : {"later", "now"}
        With CUDA ids: ``now`` waits for the gather and raises for its own bad ids, for debugging.

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
        return _gather_compiled(
            src, ids, out, dtype, scale, order, duplicates, sm_share, stream, check
        )
    with torch._C.DisableTorchFunctionSubclass():
        options = checked_options(src, ids, dtype, scale, order, duplicates, sm_share)
        if check not in CHECKS:
            raise ValueError(f"check must be 'later' or 'now', not {check!r}")
        if stream is not None:
            rows = _gather_on(stream, src, ids, out, options)
        else:
            rows = _gather(src, ids, out, options)
        if check == "now" and ids.is_cuda:
            bad_ids.check_now(ids.device, stream)
        return rows


def _gather_compiled(
    src: torch.Tensor,
    ids: torch.Tensor,
    out: torch.Tensor | None,
    dtype: torch.dtype | None,
    scale: float | torch.Tensor | None,
    order: str,
    duplicates: str,
    sm_share: float | None,
    stream: torch.cuda.Stream | None,
    check: str,
) -> torch.Tensor:
    unified = isinstance(src, UnifiedTensor) or isinstance(scale, UnifiedTensor)
    if unified or out is not None or stream is not None or check != "later":
        rows: torch.Tensor = _gather_outside_graph(
            src, ids, out=out, dtype=dtype, scale=scale, order=order, duplicates=duplicates,
            sm_share=sm_share, stream=stream, check=check,
        )  # fmt: skip
        return rows
    operator: Callable[..., torch.Tensor] = torch.ops.pytorch_direct.gather
    factor, row_factor = (None, scale) if isinstance(scale, torch.Tensor) else (scale, None)
    return operator(src, ids, dtype, order, sm_share, factor, row_factor, duplicates)


_gather_outside_graph = outside_graph(
    gather,
    "unified tensors, out=, stream= and check= are not traced: compile over u.device_view()",
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
    if isinstance(out, UnifiedTensor):
        registration = current_registration(out)
        if registration.read_only:
            raise UnsupportedError("gather: out is over memory for reading only")
        registration.settle(to_write=True)
    if out is None and src.requires_grad and torch.is_grad_enabled():
        return gather_with_gradient(src, ids, options, gather_rows)
    return gather_rows(src, ids, out, options)


def gather_rows(
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
    if not on_cuda and isinstance(src, UnifiedTensor):
        current_registration(src).settle()
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
    as_stored = replace(options, dtype=src.dtype, scale=None)
    bare = torch.conj(src) if src.is_conj() else torch._neg_view(src)
    if isinstance(src, UnifiedTensor):
        bare = bare.as_subclass(UnifiedTensor)
        bare._registration = src._registration
    rows = gather_rows(bare, ids, None, as_stored)
    rows = torch.conj_physical(rows) if src.is_conj() else torch.neg(rows)
    rows = converted(rows, ids, src.shape[0], options).to(options.dtype)
    if out is None:
        return rows
    check_out(out, tuple(rows.shape), options.dtype, ids.device, (src, ids))
    return out.copy_(rows)
