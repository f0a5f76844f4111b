# SPDX-License-Identifier: Apache-2.0
"""The GPU's gather: hands addresses and a stream to the native kernels; never waits for them."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import torch

from datapath_core.errors import UnsupportedError
from pytorch_direct import _native
from pytorch_direct.memory.registration import Registration, registration_of_view
from pytorch_direct.ops.bad_ids import late_error
from pytorch_direct.ops.gather_model import gather_model, way_of
from pytorch_direct.ops.gather_options import converted
from pytorch_direct.tensor.unified_tensor import UnifiedTensor, current_registration

if TYPE_CHECKING:
    from pytorch_direct.ops.gather_options import Options

__all__ = ["gather_rows", "launch_blocks", "require_kernels"]

_MOST = 2**32 - 1
# Measured on an H200: unaligned rows need 24 blocks for the rate that others reach with 8.
_MORE_BLOCKS = 3
_CAST_FROM = (
    "float64",
    "float32",
    "float16",
    "bfloat16",
    "float8_e4m3fn",
    "float8_e5m2",
    "int8",
    "uint8",
)
_CAST_TO = ("float32", "float16", "bfloat16")


def gather_rows(src: torch.Tensor, ids: torch.Tensor, out: torch.Tensor, options: Options) -> None:
    """Fill `out` (contiguous, on the ids' GPU) with rows of `src`, on that GPU's current stream.

    Raises
    ------
    IndexError
        An earlier gather on this GPU met a bad id; nothing was launched.
    UnsupportedError
        This build has no CUDA kernels, or the GPU cannot read `src`.
    """
    require_kernels()
    if src.dtype == out.dtype and options.scale is None:
        _launch(src, ids, out, options, None)
        return
    cast = _fused_cast(src, out.dtype)
    if cast is not None:
        _launch(src, ids, out, options, cast)
        return
    staged = torch.empty(out.shape, dtype=src.dtype, device=out.device)
    _launch(src, ids, staged, options, None)
    out.copy_(converted(staged, ids, src.shape[0], options))
    # A converted 0xFF may look like a number.
    rows = src.shape[0]
    good = (ids >= (-rows if options.wrap else 0)) & (ids < rows)
    if out.numel():
        flat = torch.as_strided(out, (out.numel(),), (1,)).view(torch.uint8)
        flat.view(ids.numel(), -1).masked_fill_(~good.view(-1, 1), 255)


def require_kernels() -> None:
    """Raise `UnsupportedError` where this build has no CUDA kernels."""
    if not _native.has_cuda:
        raise UnsupportedError(
            "this build of pytorch_direct has no CUDA kernels (pytorch_direct.cuda_architectures "
            "is empty), since no nvcc was found when it was built: put nvcc on PATH or set CUDACXX "
            "to its path and install it again; or move the ids with ids.cpu()"
        )


def launch_blocks(device: int, on_host: bool, share: float | None = None) -> tuple[int, int, int]:
    """Return how many blocks keep a kernel busy that reads host memory or the GPU's.

    The second number is for kernels with more work between one load and the next: unaligned rows,
    conversions, changes of rows. The third is how many the share leaves room for: where those are
    fewer, the blocks of plain gathers are wider.
    """
    model = gather_model()
    share = model.sm_share if share is None else share
    processors = max(1, int(share * _multiprocessors(device)))
    if on_host:
        # The GPU spreads blocks, so that each takes a multiprocessor of its own.
        return model.host_blocks, _MORE_BLOCKS * model.host_blocks, processors
    every = processors * model.blocks_per_multiprocessor
    return every, every, every


def _launch(
    src: torch.Tensor,
    ids: torch.Tensor,
    out: torch.Tensor,
    options: Options,
    cast: tuple[str, str] | None,
) -> None:
    count = ids.numel()
    device: int = out.device.index
    if count == 0:
        _raise_if(device, _native.take_bad_ids(device))
        return
    element_bytes = src.element_size()
    rows = src.shape[0]
    stride = src.stride(0) * element_bytes
    sizes = src.shape[1:]
    registration: Registration | None
    if isinstance(src, UnifiedTensor):
        registration = current_registration(src)
        address = registration.device_address(device) + int(src.storage_offset()) * element_bytes
    else:
        registration = registration_of_view(src)
        address = src.data_ptr()
    stream = torch.cuda.current_stream(device).cuda_stream
    model = gather_model()
    region_bytes, workspace, workspace_bytes = 0, None, 0
    row_bytes = out.numel() // count * element_bytes
    way = _way(options, registration is not None, rows, stride, row_bytes, count)
    if way != "as given":
        region_bytes = model.region_bytes
        workspace_bytes = _native.order_workspace_bytes(device, count)
        workspace = torch.empty(workspace_bytes, dtype=torch.uint8, device=out.device)
    row_factor, factor = _factors(options.scale, device)
    report = _native.gather_cuda(
        device,
        stream,
        address,
        rows,
        stride,
        sizes,
        [step * element_bytes for step in src.stride()[1:]],
        element_bytes,
        ids.data_ptr(),
        ids.dtype == torch.int64,
        count,
        options.wrap,
        out.data_ptr(),
        out.element_size(),
        "" if cast is None else cast[0],
        "" if cast is None else cast[1],
        factor,
        0 if row_factor is None else row_factor.data_ptr(),
        region_bytes,
        way == "merged",
        0 if workspace is None else workspace.data_ptr(),
        workspace_bytes,
        *launch_blocks(device, registration is not None, options.sm_share),
    )
    _raise_if(device, report)
    if registration is not None and not torch.cuda.is_current_stream_capturing():
        registration.record_use(device, stream)


def _raise_if(device: int, report: tuple[int, int, int, int, bool, bool] | None) -> None:
    if report is not None:
        raise late_error(device, report)


def _factors(
    scale: float | torch.Tensor | None, device: int
) -> tuple[torch.Tensor | None, float | None]:
    if not isinstance(scale, torch.Tensor):
        return None, scale
    if isinstance(scale, UnifiedTensor):
        if not torch.cuda.is_current_stream_capturing():
            current_registration(scale).record_use(
                device, torch.cuda.current_stream(device).cuda_stream
            )
        return scale.device_view(device), None
    return scale, None


def _way(
    options: Options, on_host: bool, rows: int, stride: int, row_bytes: int, count: int
) -> str:
    """Return how to read: "as given", "ordered" by region, or "merged", each row once."""
    if options.order == "none":
        return "as given"
    asked = "merged" if options.duplicates == "merge" else "ordered"
    fits = rows <= _MOST and count <= _MOST
    if options.order == "address" or options.duplicates == "merge":
        if not fits:
            raise UnsupportedError(
                f"order='address' and duplicates='merge' take at most {_MOST} rows and ids, not "
                f"{rows} and {count}; leave them out or use smaller batches"
            )
        return asked
    if not (on_host and fits):
        return "as given"
    way = way_of(rows, stride, row_bytes, count)
    return "ordered" if way == "merged" and options.duplicates == "keep" else way


def _fused_cast(src: torch.Tensor, to: torch.dtype) -> tuple[str, str] | None:
    source, target = str(src.dtype).removeprefix("torch."), str(to).removeprefix("torch.")
    if source not in _CAST_FROM or target not in _CAST_TO or not src[:1].is_contiguous():
        return None
    return source, target


@functools.cache
def _multiprocessors(device: int) -> int:
    return int(_native.multiprocessors(device))
