# SPDX-License-Identifier: Apache-2.0
"""What torch's functions do with a tensor: ask about it, view it, keep it, or compute with it.

Only what computes with numbers may be given another tensor over the same memory; the rest is about
the tensor itself.
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Callable
from typing import Any

import torch

__all__ = ["Kind", "kind_of", "written_by"]


class Kind(enum.Enum):
    """What a function does with its unified operands."""

    ABOUT = "it uses the tensor as an object and reads none of its numbers"
    VIEW = "it gives another tensor over the same memory and reads none of its numbers"
    BOUND = "it reads or moves the numbers, of this tensor where it lies"
    COMPUTES = "it computes with the numbers, wherever they are read from"


# Where torch keeps its operators. What stands elsewhere is about tensors as objects (autograd) or
# of a library of its own (torch.distributed). The names below are those of methods and of functions
# of ``torch``.
_NAMED = ("torch", "torch.functional", "torch._tensor", "torch._C._VariableFunctions")
_OPERATORS = (
    *_NAMED, "torch.nn.functional", "torch._C._nn", "torch._C._special", "torch._C._linalg",
    "torch._C._fft", "torch._C._sparse", "torch._C._nested", "torch._lowrank", "torch._lobpcg",
)  # fmt: skip
_ABOUT_OBJECTS = ("torch.autograd", "torch.amp", "torch.utils")

_VIEW_ATTRIBUTES = frozenset({"H", "T", "data", "imag", "mH", "mT", "real"})

_ABOUT = frozenset(
    {
        # Autograd and hooks.
        "backward", "register_hook", "register_post_accumulate_grad_hook", "requires_grad_",
        "retain_grad",
        # Memory as such.
        "_clear_non_serializable_cached_data", "_typed_storage", "const_data_ptr", "data_ptr",
        "is_pinned", "is_set_to", "is_shared", "record_stream", "storage", "storage_type",
        "untyped_storage", "__dlpack_device__",
        # Shape and type.
        "__len__", "_dimI", "_dimV", "_is_view", "_is_zerotensor", "_nested_tensor_size",
        "_nested_tensor_storage_offsets", "_nested_tensor_strides", "_nnz", "can_cast",
        "dense_dim", "dim", "dim_order", "element_size", "get_device", "has_names",
        "is_coalesced", "is_complex", "is_conj", "is_contiguous", "is_distributed",
        "is_floating_point", "is_inference", "is_neg", "is_same_size", "is_signed", "ndimension",
        "nelement", "numel", "q_per_channel_axis", "q_per_channel_scales",
        "q_per_channel_zero_points", "q_scale", "q_zero_point", "qscheme", "rename_",
        "result_type", "size", "sparse_dim", "storage_offset", "stride",
        # New tensors of a shape.
        "empty_like", "full_like", "new_empty", "new_empty_strided", "new_full", "new_ones",
        "new_zeros", "ones_like", "rand_like", "randint_like", "randn_like", "zeros_like",
    }
)  # fmt: skip

_VIEWS = frozenset(
    {
        "_conj", "_neg_view", "adjoint", "alias", "align_as", "align_to", "as_strided",
        "as_strided_", "as_subclass", "broadcast_to", "chunk", "conj", "detach", "detach_",
        "diagonal", "dsplit", "expand", "expand_as", "hsplit", "imag", "moveaxis", "movedim",
        "narrow", "permute", "positive", "real", "refine_names", "rename", "select",
        "slice_inverse", "split", "split_with_sizes", "squeeze", "squeeze_", "swapaxes",
        "swapaxes_", "swapdims", "swapdims_", "t", "t_", "tensor_split", "transpose", "transpose_",
        "unbind", "unflatten", "unfold", "unsqueeze", "unsqueeze_", "view", "view_as",
        "view_as_complex", "view_as_real", "vsplit",
    }
)  # fmt: skip

# Conversions, exports and changes of the object itself.
_BOUND = frozenset(
    {
        "__array__", "__array_wrap__", "__deepcopy__", "__dlpack__", "__format__", "__reduce_ex__",
        "__repr__", "__setstate__", "cpu", "cuda", "ipu", "module_load", "mtia", "new",
        "new_tensor", "numpy", "pin_memory", "resize", "resize_", "resize_as", "resize_as_",
        "resize_as_sparse_", "set_", "share_memory_", "sparse_resize_",
        "sparse_resize_and_clear_", "to", "tolist", "type", "type_as", "xpu",
    }
)  # fmt: skip


def kind_of(func: Callable[..., Any], args: tuple[Any, ...] = ()) -> Kind:
    """Return what a function that torch hands to ``__torch_function__`` does.

    Parameters
    ----------
    func : callable
        As torch gives it: a function, a method, a getter or setter, an operator of ``torch.ops``.
    args : tuple
        Its positional arguments: ``tensor[index]`` is a view for some of them.
    """
    if func is torch.Tensor.__getitem__ and len(args) > 1 and _is_basic(args[1]):
        return Kind.VIEW
    return _kind_by_name(func)


@functools.lru_cache(4096)
def _kind_by_name(func: Callable[..., Any]) -> Kind:
    name = getattr(func, "__name__", "")
    if name in ("__get__", "__set__", "__delete__"):
        attribute = getattr(getattr(func, "__self__", None), "__name__", "")
        return Kind.VIEW if name == "__get__" and attribute in _VIEW_ATTRIBUTES else Kind.ABOUT
    if isinstance(func, torch._ops.OperatorBase | torch._ops.OpOverloadPacket):
        return Kind.COMPUTES
    # Methods written in C have no module.
    module = getattr(func, "__module__", None) or "torch"
    if module not in _OPERATORS:
        return Kind.ABOUT if module.startswith(_ABOUT_OBJECTS) else Kind.BOUND
    if module in _NAMED:
        for kind, names in ((Kind.ABOUT, _ABOUT), (Kind.VIEW, _VIEWS), (Kind.BOUND, _BOUND)):
            if name in names:
                return kind
    return Kind.COMPUTES


# What writes its first operand though its name does not end in an underscore.
_WRITES = frozenset(
    {"__setitem__"} | {f"__i{name}__" for name in (
        "add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and", "or", "xor", "lshift",
        "rshift",
    )}
)  # fmt: skip
# What ends in an underscore and leaves the numbers alone.
_NOT_WRITES = frozenset(
    {"requires_grad_", "share_memory_", "detach_", "squeeze_", "unsqueeze_", "t_", "transpose_",
     "swapaxes_", "swapdims_", "rename_", "as_strided_"}
)  # fmt: skip


def written_by(
    func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> list[Any]:
    """Return those arguments of a function that it writes numbers to.

    Operators of ``torch.ops`` declare it. By torch's rule the names of others that do end in an
    underscore, and it is their first operand.
    """
    if isinstance(func, torch._ops.OpOverload):
        declared = enumerate(func._schema.arguments)
        return [
            args[i] if i < len(args) and not one.kwarg_only else kwargs.get(one.name)
            for i, one in declared
            if one.alias_info is not None and one.alias_info.is_write
        ]
    name = getattr(func, "__name__", "")
    written = [kwargs.get("out")]
    in_place = name.endswith("_") and not name.endswith("__") and name not in _NOT_WRITES
    if in_place or name in _WRITES or kwargs.get("inplace"):
        written += args[:1]
    if name in ("embedding", "embedding_bag") and kwargs.get("max_norm") is not None:
        written += args[1:2]
    return written


def _is_basic(index: Any) -> bool:
    """Whether an index takes a view: no list and no tensor in it."""
    parts = index if isinstance(index, tuple) else (index,)
    return all(
        part is None
        or part is Ellipsis
        or (isinstance(part, (int, slice)) and not isinstance(part, bool))
        for part in parts
    )
