# SPDX-License-Identifier: Apache-2.0
"""The options of a gather, checked, and what they mean for its numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Real

import torch

from pytorch_direct.ops.arguments import check_ids, check_source

__all__ = ["CHECKS", "Options", "checked_options", "converted", "result_dtype"]

CHECKS = ("later", "now")
DUPLICATES = ("auto", "keep", "merge")
ORDERS = ("auto", "none", "address")
_FLOATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)


@dataclass(frozen=True)
class Options:
    """How to gather; what the backends share."""

    dtype: torch.dtype
    order: str = "auto"
    sm_share: float | None = None
    wrap: bool = False
    scale: float | torch.Tensor | None = None
    duplicates: str = "auto"


def checked_options(
    src: torch.Tensor,
    ids: torch.Tensor,
    dtype: torch.dtype | None = None,
    scale: float | torch.Tensor | None = None,
    order: str = "auto",
    duplicates: str = "auto",
    sm_share: float | None = None,
) -> Options:
    """Return the options of a gather of `src` by `ids`, or raise for what does not fit."""
    check_source(src, "src")
    check_ids(ids)
    for name, value, known in (("order", order, ORDERS), ("duplicates", duplicates, DUPLICATES)):
        if value not in known:
            raise ValueError(f"{name} must be one of {', '.join(map(repr, known))}, not {value!r}")
    if order == "none" and duplicates == "merge":
        raise ValueError("duplicates='merge' orders the batch by id: leave order at 'auto'")
    given: object = sm_share
    if given is not None and (isinstance(given, bool) or not isinstance(given, Real)):
        raise TypeError(f"sm_share must be a number, not {type(given).__name__}")
    if sm_share is not None and not 0 < sm_share <= 1:
        raise ValueError(f"sm_share must be in (0, 1], not {sm_share}")
    if dtype is not None and not isinstance(dtype, torch.dtype):
        raise TypeError(f"dtype must be a torch.dtype, not {type(dtype).__name__}")
    if scale is not None:
        _check_scale(src, ids, dtype, scale)
    result = result_dtype(src.dtype, dtype, scale is not None)
    return Options(result, order, sm_share, scale=scale, duplicates=duplicates)


def result_dtype(table: torch.dtype, dtype: torch.dtype | None, scaled: bool) -> torch.dtype:
    """Return the dtype of the gathered rows."""
    if dtype is not None:
        return dtype
    return table if not scaled or table in _FLOATS else torch.float32


def _check_scale(
    src: torch.Tensor, ids: torch.Tensor, dtype: torch.dtype | None, scale: object
) -> None:
    if src.is_complex() or (dtype is not None and dtype not in _FLOATS):
        raise TypeError(
            f"scale= goes with real numbers and a result of a floating-point dtype, not with "
            f"{src.dtype} to {dtype or src.dtype}"
        )
    if isinstance(scale, torch.Tensor):
        from pytorch_direct.tensor.unified_tensor import UnifiedTensor

        if scale.dtype != torch.float32 or tuple(scale.shape) != (src.shape[0],):
            raise TypeError(
                f"scale must have one float32 factor a row, shape ({src.shape[0]},), not "
                f"{scale.dtype} of shape {tuple(scale.shape)}"
            )
        if not scale.is_contiguous():
            raise ValueError("scale must be contiguous; use scale.contiguous()")
        if scale.device != ids.device and not isinstance(scale, UnifiedTensor):
            raise ValueError(
                f"scale is on {scale.device} and ids on {ids.device}: move it, or make it unified"
            )
        if scale.requires_grad and torch.is_grad_enabled():
            raise RuntimeError("no gradient flows to scale: pass scale.detach()")
    elif isinstance(scale, bool) or not isinstance(scale, (int, float)):
        raise TypeError(f"scale must be a number or a torch.Tensor, not {type(scale).__name__}")
    elif not math.isfinite(scale):
        raise ValueError(f"scale must be finite, not {scale}")


def converted(
    rows: torch.Tensor, ids: torch.Tensor, table_rows: int, options: Options
) -> torch.Tensor:
    """Return gathered rows as scaled, of the type they are computed in; as they are if not."""
    scale = options.scale
    if scale is None:
        return rows
    wide = torch.float64 if options.dtype == torch.float64 else torch.float32
    if not isinstance(scale, torch.Tensor):
        return rows.to(wide) * scale
    from pytorch_direct.tensor.unified_tensor import UnifiedTensor

    if isinstance(scale, UnifiedTensor) and ids.is_cuda:
        scale = scale.device_view(ids.device)
    known = ids.to(torch.int64)
    if options.wrap:
        known = torch.where(known < 0, known + table_rows, known)
    factor = scale.index_select(0, known.clamp(0, max(0, table_rows - 1)).reshape(-1))
    count = rows.dim() - max(1, ids.dim())
    return rows.to(wide) * factor.to(wide).view(*(ids.shape or (1,)), *([1] * count))
