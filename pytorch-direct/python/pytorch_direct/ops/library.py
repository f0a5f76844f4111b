# SPDX-License-Identifier: Apache-2.0
"""``torch.ops.pytorch_direct``: what torch.compile traces in place of the operators."""

from __future__ import annotations

from typing import Any

import torch

from pytorch_direct.ops import gather as eager
from pytorch_direct.ops import scatter_add as eager_scatter
from pytorch_direct.ops.gather_gradient import gradient_of_table
from pytorch_direct.ops.gather_options import Options, checked_options, converted, result_dtype

__all__ = ["gather_op", "scatter_add_op"]


@torch.library.custom_op("pytorch_direct::gather", mutates_args=())
def gather_op(
    src: torch.Tensor,
    ids: torch.Tensor,
    dtype: torch.dtype | None = None,
    order: str = "auto",
    sm_share: float | None = None,
    factor: float | None = None,
    row_factor: torch.Tensor | None = None,
    duplicates: str = "auto",
) -> torch.Tensor:
    """Gather rows of `src`; the arguments of :func:`pytorch_direct.gather`."""
    scale = factor if row_factor is None else row_factor
    options = checked_options(src, ids, dtype, scale, order, duplicates, sm_share)
    with torch.no_grad(), torch._C.DisableTorchFunctionSubclass():
        return eager._gather(src, ids, None, options)


@gather_op.register_fake
def _fake(
    src: torch.Tensor,
    ids: torch.Tensor,
    dtype: torch.dtype | None = None,
    order: str = "auto",
    sm_share: float | None = None,
    factor: float | None = None,
    row_factor: torch.Tensor | None = None,
    duplicates: str = "auto",
) -> torch.Tensor:
    shape = (*(ids.shape or (1,)), *src.shape[1:])
    scaled = factor is not None or row_factor is not None
    return torch.empty(shape, dtype=result_dtype(src.dtype, dtype, scaled), device=ids.device)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    src, ids = inputs[:2]
    factor, row_factor = inputs[5:7]
    ctx.save_for_backward(ids, row_factor)
    ctx.factor = factor
    ctx.table = (src.shape, src.dtype, src.device)


def _backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    ids, row_factor = ctx.saved_tensors
    scale = ctx.factor if row_factor is None else row_factor
    options = Options(gradient.dtype, scale=scale)
    rows = converted(gradient, ids, ctx.table[0][0], options)
    return (gradient_of_table(rows, ids, *ctx.table), *(None,) * 7)


gather_op.register_autograd(_backward, setup_context=_setup)


@torch.library.custom_op("pytorch_direct::scatter_add_", mutates_args=("dst",))
def scatter_add_op(dst: torch.Tensor, ids: torch.Tensor, rows: torch.Tensor) -> None:
    """Add rows into `dst`; the arguments of :func:`pytorch_direct.scatter_add_`."""
    with torch.no_grad():
        eager_scatter.scatter_add_(dst, ids, rows)


@scatter_add_op.register_fake
def _fake_scatter(dst: torch.Tensor, ids: torch.Tensor, rows: torch.Tensor) -> None:
    """Nothing comes out but what `dst` is."""
