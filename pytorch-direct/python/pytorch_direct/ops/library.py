# SPDX-License-Identifier: Apache-2.0
"""``torch.ops.pytorch_direct.gather``: what torch.compile traces in place of ``gather``."""

from __future__ import annotations

from typing import Any

import torch

from pytorch_direct.ops import gather as eager

__all__ = ["gather_op"]


@torch.library.custom_op("pytorch_direct::gather", mutates_args=())
def gather_op(
    src: torch.Tensor,
    ids: torch.Tensor,
    dtype: torch.dtype | None = None,
    order: str = "auto",
    sm_share: float | None = None,
) -> torch.Tensor:
    """Gather rows of `src`; the arguments of :func:`pytorch_direct.gather`."""
    options = eager.Options(src.dtype if dtype is None else dtype, order, sm_share)
    with torch.no_grad(), torch._C.DisableTorchFunctionSubclass():
        return eager._gather(src, ids, None, options)


@gather_op.register_fake
def _fake(
    src: torch.Tensor,
    ids: torch.Tensor,
    dtype: torch.dtype | None = None,
    order: str = "auto",
    sm_share: float | None = None,
) -> torch.Tensor:
    shape = (*(ids.shape or (1,)), *src.shape[1:])
    return torch.empty(shape, dtype=src.dtype if dtype is None else dtype, device=ids.device)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    src, ids = inputs[:2]
    ctx.save_for_backward(ids)
    ctx.table = (src.shape, src.dtype, src.device)


def _backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None, None, None]:
    (ids,) = ctx.saved_tensors
    return eager.gradient_of_table(gradient, ids, *ctx.table), None, None, None, None


gather_op.register_autograd(_backward, setup_context=_setup)
