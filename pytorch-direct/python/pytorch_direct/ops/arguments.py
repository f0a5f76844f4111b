# SPDX-License-Identifier: Apache-2.0
"""The checks that the operators share, for CPU and CUDA alike."""

from __future__ import annotations

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.autograd import forward_ad

from datapath_core.errors import UnsupportedError

__all__ = [
    "bad_id_message",
    "check_ids",
    "check_memory",
    "check_out",
    "check_source",
    "first_outside",
    "note_write",
    "storage_range",
]

ID_DTYPES = (torch.int32, torch.int64)


def check_source(source: object, what: str) -> None:
    """Raise unless `source` is a strided tensor of one dimension or more."""
    if not isinstance(source, torch.Tensor):
        raise TypeError(f"{what} must be a torch.Tensor, not {type(source).__name__}")
    if source.layout is not torch.strided or source.is_quantized or source.is_nested:
        kind = "nested" if source.is_nested else "quantised" if source.is_quantized else None
        raise TypeError(
            f"{what} must be a plain strided tensor, not "
            f"{f'a {kind} one' if kind else f'one with layout {source.layout}'}"
        )
    if source.device.type not in ("cpu", "cuda"):
        raise TypeError(f"{what} must be on the CPU or on a CUDA device, not on {source.device}")
    if source.dim() == 0:
        raise ValueError(f"{what} must have a dimension to take rows of; it has none")


def check_memory(what: str, *operands: object) -> None:
    """Raise unless native code may read the operands' memory, and nothing rides on them unseen.

    Raises
    ------
    TypeError
        An operand has no memory: a tensor of ``FakeTensorMode``, or autograd's zero tensor.
    UnsupportedError
        An operand carries a tangent of forward-mode differentiation, which would be lost.
    """
    for operand in operands:
        if not isinstance(operand, torch.Tensor):
            continue
        if isinstance(operand, FakeTensor):
            raise TypeError(
                f"{what}: a tensor of FakeTensorMode has no memory to read; leave the mode, or use "
                "torch.compile, which knows the operator's shapes"
            )
        if operand._is_zerotensor():
            raise TypeError(f"{what}: autograd's zero tensor has no memory to read; clone() it")
        if forward_ad._current_level >= 0 and _tangent(operand) is not None:
            raise UnsupportedError(
                f"{what} has no forward-mode derivative: use torch.index_select or index_add_ "
                "there, or reverse mode"
            )


def _tangent(operand: torch.Tensor) -> torch.Tensor | None:
    found: torch.Tensor | None = forward_ad.unpack_dual(operand).tangent  # type: ignore[no-untyped-call]
    return found


def check_ids(ids: object) -> None:
    """Raise unless `ids` is a tensor of int32 or int64."""
    if not isinstance(ids, torch.Tensor):
        raise TypeError(f"ids must be a torch.Tensor of int32 or int64, not {type(ids).__name__}")
    if ids.dtype not in ID_DTYPES or ids.layout is not torch.strided:
        raise TypeError(
            f"ids must be a strided tensor of int32 or int64, not {ids.dtype}; use ids.long()"
        )


def check_out(
    out: object,
    shape: tuple[int, ...],
    dtype: torch.dtype,
    device: torch.device,
    operands: tuple[torch.Tensor, ...],
) -> None:
    """Raise unless `out` can take the result: exact shape, dtype, device, and memory of its own."""
    if not isinstance(out, torch.Tensor):
        raise TypeError(f"out must be a torch.Tensor, not {type(out).__name__}")
    if out.dtype != dtype:
        raise TypeError(f"out has dtype {out.dtype}, but the result is {dtype}")
    if tuple(out.shape) != shape:
        raise ValueError(f"out has shape {tuple(out.shape)}, but the result is {shape}")
    if out.device != device:
        raise ValueError(f"out is on {out.device}, but the result is on {device}")
    if torch.is_grad_enabled() and (out.requires_grad or any(t.requires_grad for t in operands)):
        raise RuntimeError("out= does not go with gradients: leave it out or use torch.no_grad()")
    # Host memory that a GPU has mapped may be known to both by one address.
    low, high = storage_range(out)
    for operand in operands:
        begin, end = storage_range(operand)
        if low < end and begin < high:
            raise ValueError("out overlaps the memory of an operand; give it memory of its own")


def note_write(tensor: torch.Tensor) -> None:
    """Tell autograd that a native kernel wrote a tensor; those of inference mode count nothing."""
    if not tensor.is_inference():
        torch.autograd.graph.increment_version(tensor)


def first_outside(ids: torch.Tensor, size: int) -> int | None:
    """Return the position of the first of some CPU ids that is not in ``[0, size)``, if any is."""
    if ids.numel() == 0:
        return None
    low, high = (int(bound) for bound in torch.aminmax(ids))
    if low >= 0 and high < size:
        return None
    return int(((ids < 0) | (ids >= size)).nonzero()[0])


def storage_range(tensor: torch.Tensor) -> tuple[int, int]:
    """Return the addresses of the first byte that the tensor uses and of the one after the last."""
    if tensor.numel() == 0:
        return 0, 0
    last = sum(
        (size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True)
    )
    begin = tensor.data_ptr()
    return begin, begin + (last + 1) * tensor.element_size()


def bad_id_message(what: str, ident: int, position: int, count: int, rows: int, wrap: bool) -> str:
    """Return the text of the `IndexError` for an id out of range."""
    if rows == 0:
        valid = "the table has no rows"
    else:
        valid = f"valid are {-rows if wrap else 0} to {rows - 1}"
    return f"{what}: id {ident} at position {position} of {count} is out of range: {valid}"
