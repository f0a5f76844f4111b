# SPDX-License-Identifier: Apache-2.0
"""Gradients of gathers: dense for ordinary tables, rows by id for unified tables that are trained.

A unified table may exceed the GPU, and its dense gradient would be as large. So a gather of a
unified leaf gives the gradient of the rows it read and no more: with CPU ids as a sparse tensor in
``table.grad``; with CUDA ids as rows that stay on that GPU, where
:class:`pytorch_direct.optim.SparseSGD` and its kin take them from.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from pytorch_direct.ops.gather_options import Options, converted
from pytorch_direct.ops.row_gradients import RowGradient, reduce_rows
from pytorch_direct.tensor.backward import place_in_graph
from pytorch_direct.tensor.unified_tensor import UnifiedTensor

__all__ = ["gather_with_gradient", "gradient_of_table"]

Gather = Callable[[torch.Tensor, torch.Tensor, torch.Tensor | None, Options], torch.Tensor]


def gather_with_gradient(
    src: torch.Tensor, ids: torch.Tensor, options: Options, run: Gather
) -> torch.Tensor:
    """Gather such that autograd knows how the rows came about."""
    rows: torch.Tensor = _Gather.apply(src, ids, options, run)  # type: ignore[no-untyped-call]
    return rows


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


class _Gather(torch.autograd.Function):
    """Rows out, gradients of rows added up in the order of the ids."""

    @staticmethod
    def forward(
        ctx: Any, src: torch.Tensor, ids: torch.Tensor, options: Options, run: Gather
    ) -> torch.Tensor:
        ctx.save_for_backward(ids)
        ctx.options = options
        ctx.shape, ctx.dtype, ctx.device = src.shape, src.dtype, src.device
        # An alias of a leaf hands its gradient on to an ordinary tensor, which takes a dense one.
        ctx.leaf = src if isinstance(src, UnifiedTensor) and src.is_leaf else None
        return run(src, ids, None, options)

    @staticmethod
    def backward(
        ctx: Any, *gradients: torch.Tensor
    ) -> tuple[torch.Tensor | None, None, None, None]:
        (ids,) = ctx.saved_tensors
        rows = converted(gradients[0], ids, ctx.shape[0], ctx.options)
        if ctx.leaf is None or torch.is_grad_enabled():
            # With create_graph=True the gradient is differentiated, which sparse ones cannot be.
            dense = gradient_of_table(rows, ids, ctx.shape, ctx.dtype, ctx.device)
            return dense, None, None, None
        flat = ids.reshape(-1).to(torch.int64)
        flat = torch.where(flat < 0, flat + ctx.shape[0], flat)
        found = RowGradient(flat, rows.reshape(flat.numel(), *ctx.shape[1:]).to(ctx.dtype))
        if not flat.is_cuda:
            return found.as_sparse(ctx.shape), None, None, None
        if _is_accumulated(ctx.leaf):
            ctx.leaf._add_row_gradient(found)
            return None, None, None, None
        # Someone wants to see it: torch.autograd.grad, or a hook.
        return reduce_rows(found, ctx.shape).as_sparse(ctx.shape).cpu(), None, None, None


def _is_accumulated(leaf: UnifiedTensor) -> bool:
    """Whether this backward pass adds gradients to ``leaf.grad`` unseen by anybody."""
    if leaf._backward_hooks or leaf._post_accumulate_grad_hooks:
        return False
    try:
        return bool(torch._C._will_engine_execute_node(place_in_graph(leaf).node))
    except RuntimeError:
        # torch's answer for the inputs of torch.autograd.grad.
        return False
