# SPDX-License-Identifier: Apache-2.0
"""The CPU's gather: hands addresses to the native twin."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from pytorch_direct import _native
from pytorch_direct.ops.arguments import bad_id_message
from pytorch_direct.ops.gather_options import converted

if TYPE_CHECKING:
    from pytorch_direct.ops.gather_options import Options

__all__ = ["gather_rows"]

# Rows that are converted are gathered in parts that stay in the second-level cache.
_PART_BYTES = 256 << 10


def gather_rows(src: torch.Tensor, ids: torch.Tensor, out: torch.Tensor, options: Options) -> None:
    """Fill `out` (contiguous) with rows of `src`, converted where its dtype differs.

    Raises
    ------
    IndexError
        An id is out of range; `out` is unspecified then.
    """
    if src.dtype == out.dtype and options.scale is None:
        _gather(src, ids, 0, ids.numel(), out, options.wrap)
        return
    count = ids.numel()
    row_bytes = src[:1].numel() * src.element_size()
    part = max(1, _PART_BYTES // max(1, row_bytes)) * torch.get_num_threads()
    staged = torch.empty((min(part, count), *src.shape[1:]), dtype=src.dtype)
    rows = out.view(count, *src.shape[1:])
    flat = ids.view(-1)
    # At least one turn, so that nothing but the number of ids decides what is checked.
    for begin in range(0, count, part):
        end = min(count, begin + part)
        _gather(src, ids, begin, end, staged, options.wrap)
        part_rows = converted(staged[: end - begin], flat[begin:end], src.shape[0], options)
        rows[begin:end].copy_(part_rows)


def _gather(
    src: torch.Tensor, ids: torch.Tensor, begin: int, end: int, out: torch.Tensor, wrap: bool
) -> None:
    element_bytes = src.element_size()
    position = _native.gather_cpu(
        src.data_ptr(),
        src.shape[0],
        src.stride(0) * element_bytes,
        src.shape[1:],
        [stride * element_bytes for stride in src.stride()[1:]],
        element_bytes,
        ids.data_ptr() + begin * ids.element_size(),
        ids.dtype == torch.int64,
        end - begin,
        wrap,
        out.data_ptr(),
        torch.get_num_threads(),
    )
    if position >= 0:
        position += begin
        ident = int(ids.view(-1)[position])
        rows = src.shape[0]
        raise IndexError(bad_id_message("gather", ident, position, ids.numel(), rows, wrap))
