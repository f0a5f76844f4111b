# SPDX-License-Identifier: Apache-2.0
"""Where an operator with unified operands runs, by the rules of the original PyTorch-Direct.

An operand on a GPU takes the operator there, over the same memory, and its result is an ordinary
CUDA tensor; else unified operands are CPU tensors. Gathers by id have kernels of their own
(`ops.gather`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from datapath_core.errors import UnsupportedError
from pytorch_direct.memory.registration import Registration
from pytorch_direct.ops.arguments import note_write
from pytorch_direct.tensor.backward import run_backward
from pytorch_direct.tensor.operators import Kind, kind_of, written_by
from pytorch_direct.tensor.outside_graph import outside_graph
from pytorch_direct.tensor.unified_tensor import (
    UnifiedTensor,
    cuda_device,
    current_registration,
    view_as_unified,
    wrap,
)

__all__ = ["place"]

_BACKWARD = (torch.autograd.grad, torch.autograd.backward, torch.Tensor.backward)
_DATA: Any = torch.Tensor.data
_SET_DATA = _DATA.__set__
# What a compiled graph asks about its operands.
_QUESTIONS = frozenset(
    [getattr(torch.Tensor, name).__get__ for name in (
        "device", "dtype", "is_cpu", "is_cuda", "is_leaf", "is_nested", "is_quantized", "itemsize",
        "layout", "nbytes", "ndim", "requires_grad", "shape", "_version",
    )]
    + [getattr(torch.Tensor, name) for name in (
        "data_ptr", "dim", "element_size", "is_complex", "is_conj", "is_contiguous",
        "is_floating_point", "is_neg", "is_shared", "numel", "size", "storage_offset", "stride",
        "untyped_storage", "__len__",
    )]
)  # fmt: skip


def place(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run a function with at least one unified operand where the rules say."""
    if func in _QUESTIONS:
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **kwargs)
    if torch.compiler.is_compiling():
        return _place_outside_graph(func, args, kwargs)
    return _place(func, args, kwargs)


def _place(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    kind = kind_of(func, args)
    if kind is Kind.ABOUT:
        if func in _BACKWARD:
            return run_backward(func, args, kwargs)
        if func == _SET_DATA:
            _refuse_move(*args)
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **kwargs)
    operands = list(_tensors((args, kwargs)))
    unified = [tensor for tensor in operands if isinstance(tensor, UnifiedTensor)]
    if kind is Kind.VIEW:
        with torch._C.DisableTorchFunctionSubclass():
            return _keep_views_unified(func(*args, **kwargs), unified, view_as_unified)
    gathered = _gather(func, args, kwargs)
    if gathered is not NotImplemented:
        return gathered
    written = [t for t in _tensors(written_by(func, args, kwargs)) if isinstance(t, UnifiedTensor)]
    _refuse_writes(func, written)
    device = next((tensor.device for tensor in operands if _is_cuda(tensor)), None)
    if device is None or kind is Kind.BOUND:
        return _on_host(func, args, kwargs, unified, written)
    return _on_device(func, args, kwargs, device)


_place_outside_graph = outside_graph(
    _place,
    "a unified tensor is no operand of a compiled graph: compile over u.device_view()",
)


def _refuse_move(tensor: torch.Tensor, data: torch.Tensor) -> None:
    """Raise before a unified tensor becomes a name of other memory than the host's."""
    if isinstance(tensor, UnifiedTensor) and data.device.type != "cpu":
        raise UnsupportedError(
            f"a unified tensor stays in host memory, but its data were to be moved to "
            f"{data.device}: move a module by to() first and give it unified parameters then"
        )


def _refuse_writes(func: Callable[..., Any], written: list[UnifiedTensor]) -> None:
    """Raise before an operator writes to memory that is for reading only."""
    if any(operand._registration.read_only for operand in written):
        raise RuntimeError(
            f"{getattr(func, '__name__', func)} would write to a unified tensor over read-only "
            "memory; clone() it, or open its file for writing"
        )


def _gather(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Serve the spellings of a gather of rows; ``NotImplemented`` for everything else."""
    from pytorch_direct.ops.gather import gather, gather_by_index

    if func is torch.index_select or func is torch.Tensor.index_select:
        source, dim, ids = _bind(("input", "dim", "index"), args, kwargs)
        if isinstance(source, UnifiedTensor) and dim in (0, -source.dim()) and _are_ids(ids):
            out = kwargs.get("out")
            # What gather refuses, torch may do: resize `out`, explain a wrong shape of ids.
            if ids.dim() <= 1 and (out is None or out.shape == (ids.numel(), *source.shape[1:])):
                return gather(source, ids, out=out)
    elif func is functional.embedding:
        ids, table = _bind(("input", "weight"), args, kwargs)
        options = _bind(
            ("padding_idx", "max_norm", "norm_type", "scale_grad_by_freq", "sparse"),
            args[2:],
            kwargs,
        )
        is_gather = isinstance(table, UnifiedTensor) and table.dim() == 2 and _are_ids(ids)
        # What is left of the options shapes the gradient only.
        if is_gather and options[1] is None and not (table.requires_grad and any(options)):
            return gather_by_index(table, ids, wrap=False)
    return NotImplemented


def _bind(names: tuple[str, ...], args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    return [args[i] if i < len(args) else kwargs.get(name) for i, name in enumerate(names)]


def _are_ids(ids: Any) -> bool:
    return isinstance(ids, torch.Tensor) and ids.dtype in (torch.int32, torch.int64)


def _on_host(
    func: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    operands: list[UnifiedTensor],
    written: list[UnifiedTensor],
) -> Any:
    for operand in operands:
        operand._registration.settle(to_write=any(operand is one for one in written))
    with torch._C.DisableTorchFunctionSubclass():
        result = func(*args, **kwargs)
        if isinstance(result, torch.Tensor) and result.is_cuda:
            # A copy to the GPU may still be reading when the host goes on.
            _record(operands, result.device)
    if isinstance(result, np.ndarray) and any(one._registration.read_only for one in operands):
        result.flags.writeable = False
    return _keep_views_unified(result, operands)


def _keep_views_unified(
    result: Any,
    operands: list[UnifiedTensor],
    make: Callable[[torch.Tensor, Registration], UnifiedTensor] = wrap,
) -> Any:
    if isinstance(result, (list, tuple)):
        views = [_keep_views_unified(item, operands, make) for item in result]
        if all(new is old for new, old in zip(views, result, strict=True)):
            return result
        return type(result)(views) if type(result) in (list, tuple) else type(result)(*views)
    if type(result) is not torch.Tensor or result.device.type != "cpu" or result.dim() == 0:
        return result
    if result.layout is not torch.strided:
        return result
    with torch._C.DisableTorchFunctionSubclass():
        storage = result.untyped_storage()._cdata
        for operand in operands:
            if operand.untyped_storage()._cdata == storage:
                return make(result, operand._registration)
    return result


def _on_device(
    func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], device: torch.device
) -> Any:
    views: dict[int, tuple[UnifiedTensor, torch.Tensor, int]] = {}

    def replaced(value: Any) -> Any:
        if isinstance(value, UnifiedTensor):
            if id(value) not in views:
                view = value.device_view(device)
                views[id(value)] = (value, view, view._version)
            return views[id(value)][1]
        if isinstance(value, dict):
            return {key: replaced(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            items = [replaced(item) for item in value]
            return type(value)(items) if type(value) in (list, tuple) else type(value)(*items)
        return value

    new_args, new_kwargs = replaced(args), replaced(kwargs)
    with torch._C.DisableTorchFunctionSubclass():
        result = func(*new_args, **new_kwargs)
    _record([tensor for tensor, _, _ in views.values()], device)
    for tensor, view, version in views.values():
        if view._version != version:
            note_write(tensor)
            # The CPU may read the memory as soon as this returns. What a graph records is not
            # there until the graph runs, of which its owner knows.
            if not torch.cuda.is_current_stream_capturing():
                torch.cuda.current_stream(device).synchronize()
        if result is view:
            return tensor
    return result


def _record(operands: list[UnifiedTensor], device: torch.device) -> None:
    where = cuda_device(device)
    stream = torch.cuda.current_stream(where)
    if torch.cuda.is_current_stream_capturing():
        return  # The graph's owner keeps its operands, as with any tensor.
    for operand in operands:
        current_registration(operand).record_use(where.index, stream.cuda_stream)


def _is_cuda(tensor: torch.Tensor) -> bool:
    return not isinstance(tensor, UnifiedTensor) and tensor.is_cuda


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _tensors(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _tensors(item)
