# SPDX-License-Identifier: Apache-2.0
"""What may be called inside a compiled function, and what to write instead of what may not.

The handlers see whole-tensor shapes, as PyTorch does, and state which spaces must agree; axes
become feature axes in lowering, when every space is known.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional

from hector import functional as semantic
from hector.frontend.edges import EDGES
from hector.frontend.einsum import einsum
from hector.frontend.elementwise import ELEMENTWISE
from hector.frontend.layout import LAYOUT
from hector.frontend.products import PRODUCTS
from hector.frontend.reductions import REDUCTIONS

__all__ = ["FUNCTIONS", "HANDLERS", "remedy"]

_SUPPORTED = (
    "write it with indexing by g.src, g.dst, g.rel or a node type, hector.linear, einsum, @, "
    "+ - * / **, elementwise functions and activations, reductions over features, reshape, cat, "
    "split, hector.dropout, hector.edge_softmax and hector.aggregate (the guide has the list), or "
    "do it outside the compiled function"
)
_CONDITION = (
    "conditions on values are not traced: use relu, leaky_relu, clamp, maximum or minimum, or pass "
    "a mask as a tensor of the inputs' dtype and multiply by it"
)
_IN_PLACE = "nothing is changed in place: write x = x + y"
_ROWS = "use hector.aggregate(message, g, reduce=..) to reduce edges to nodes"
_MADE = "tensors are arguments: pass it, or write x * 0 + value"
_REMEDIES = {
    **dict.fromkeys("__lt__ __le__ __gt__ __ge__ __eq__ __ne__ lt le gt ge".split(), _CONDITION),
    **dict.fromkeys("where masked_fill __and__ __or__ __xor__ __invert__".split(), _CONDITION),
    **dict.fromkeys("__iadd__ __isub__ __imul__ __itruediv__".split(), _IN_PLACE),
    **dict.fromkeys("scatter scatter_add scatter_reduce index_add segment_reduce".split(), _ROWS),
    **dict.fromkeys("hstack vstack column_stack row_stack".split(), "use torch.cat(.., dim)"),
    **dict.fromkeys("zeros_like ones_like full_like empty_like".split(), _MADE),
    **dict.fromkeys("new_zeros new_ones new_full new_empty new_tensor".split(), _MADE),
    "max": "use amax(dim), which gives values only, or hector.aggregate(.., reduce='max')",
    "min": "use amin(dim), which gives values only",
    "log1p": "use torch.log(1 + x)",
    "expm1": "use torch.exp(x) - 1",
    "relu6": "use x.clamp(0, 6)",
    "hardtanh": "use x.clamp(low, high)",
    "norm": "use (x * x).sum(-1).sqrt(), with an epsilon where rows may be zero",
    "normalize": "use x * torch.rsqrt((x * x).sum(-1, keepdim=True) + eps)",
    "var": "use ((x - x.mean(-1, keepdim=True)) ** 2).mean(-1)",
    "std": "use ((x - x.mean(-1, keepdim=True)) ** 2).mean(-1).sqrt()",
    "batch_norm": "normalise rows outside the compiled function, or use layer_norm",
    "repeat": "use expand, or torch.cat of the tensor with itself",
    "item": "the program must not depend on the data",
    "__floordiv__": "use / and round outside the compiled function",
    "__mod__": "compute it outside the compiled function",
}


def remedy(name: str) -> str:
    """What to write instead of an operator that is not supported."""
    in_place = name.endswith("_") and not name.endswith("__")
    return _REMEDIES.get(name, _IN_PLACE if in_place else _SUPPORTED)


HANDLERS: dict[str, Callable[..., Any]] = {
    **ELEMENTWISE, **REDUCTIONS, **PRODUCTS, **LAYOUT, **EDGES, "einsum": einsum,
}  # fmt: skip
"""Recording handler by operator name."""


def _functions() -> dict[Callable[..., Any], str]:
    """Which torch callables mean which handler."""
    table: dict[Callable[..., Any], str] = {
        semantic.linear: "linear",
        semantic.edge_softmax: "edge_softmax",
        semantic.aggregate: "aggregate",
        semantic.dropout: "hector_dropout",
        functional.linear: "nn_linear",
        functional.dropout: "dropout",
        torch.dropout: "dropout",
        torch.Tensor.__getitem__: "getitem",
        torch.concat: "cat",
        torch.concatenate: "cat",
        torch.linalg.vecdot: "vecdot",
        torch.Tensor.__matmul__: "matmul",
        torch.multiply: "mul",
        torch.subtract: "sub",
        torch.divide: "div",
    }
    for name in HANDLERS:
        for owner in (torch, torch.Tensor, functional):
            function = getattr(owner, name, None)
            if function is not None and name not in ("linear", "nn_linear"):
                table.setdefault(function, name)
    return table


FUNCTIONS = _functions()
"""Handler name by torch callable."""
