# SPDX-License-Identifier: Apache-2.0
"""Backward passes that are asked for by a unified tensor: unified tensors go on working in them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from pytorch_direct.tensor.unified_tensor import UnifiedTensor

__all__ = ["place_in_graph", "run_backward"]


def run_backward(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run ``torch.autograd.grad`` or ``backward``, or ``Tensor.backward``.

    The pass runs code of the user, in hooks and recomputations of checkpoints, under the settings
    of this call. So unified tensors are named by their places in the graph instead of switching
    the treatment of unified tensors off, as torch has it for other functions.
    """
    if not _can_be_named(func, args, kwargs):
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **kwargs)
    if func is torch.autograd.grad:
        outputs, inputs, *rest = args
        return func(_aliases(outputs), _edges(inputs), *rest, **kwargs)
    first, *rest = args
    if kwargs.get("inputs") is not None:
        kwargs = {**kwargs, "inputs": _edges(kwargs["inputs"])}
    return func(_aliases(first), *rest, **kwargs)


def _can_be_named(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    if func is torch.autograd.grad:
        # What is not in the graph gets zeros like itself, of which a place in it knows nothing.
        inputs = _as_tuple(args[1]) if len(args) > 1 else ()
        known = len(args) > 1 and not kwargs.get("materialize_grads")
    else:
        # Only leaves keep a gradient that is asked for by a place.
        inputs = _as_tuple(kwargs.get("inputs"))
        known = func in (torch.autograd.backward, torch.Tensor.backward) and all(
            one.is_leaf for one in inputs if isinstance(one, UnifiedTensor)
        )
    return known and all(one.requires_grad for one in inputs if isinstance(one, UnifiedTensor))


def _as_tuple(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, (list, tuple)) else () if value is None else (value,)


def _aliases(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return tuple(_aliases(one) for one in value)
    if not isinstance(value, UnifiedTensor):
        return value
    with torch._C.DisableTorchFunctionSubclass():
        return value.as_subclass(torch.Tensor)


def place_in_graph(tensor: UnifiedTensor) -> Any:
    """Return where autograd has a tensor: a gradient edge."""
    # torch finds the node of a leaf behind a view of it.
    with torch._C.DisableTorchFunctionSubclass():
        return torch.autograd.graph.get_gradient_edge(tensor)


def _edges(inputs: Any) -> tuple[Any, ...]:
    return tuple(
        place_in_graph(one) if isinstance(one, UnifiedTensor) else one for one in _as_tuple(inputs)
    )
