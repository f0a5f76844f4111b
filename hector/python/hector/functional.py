# SPDX-License-Identifier: Apache-2.0
"""The semantic functions in plain PyTorch: what a model means when it is not compiled.

Inside ``hector.compile`` the same calls are recorded instead; this file is the reference that the
compiler is tested against, and it is not written for speed.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.overrides import handle_torch_function, has_torch_function

from hector.graph import Graph
from hector.masks import keep_scales

__all__ = ["AGGREGATIONS", "SOFTMAX_GROUPS", "aggregate", "dropout", "edge_softmax", "linear"]

AGGREGATIONS = ("sum", "mean", "mean_rel", "max")
SOFTMAX_GROUPS = ("dst", "dst_rel")


def linear(x: Tensor, weight: Tensor) -> Tensor:
    """Row i of ``x`` times matrix i of ``weight``.

    Parameters
    ----------
    x : Tensor, shape (rows, k), or (rows, m, k) with matrices (rows, k, n), or (rows, heads, k)
        with matrices (rows, heads, k, n): each head times its own
    weight : Tensor, shape (rows, k, n) or (rows, heads, k, n), or (k, n) shared by all rows
        Write ``W[g.rel]`` or ``W[g.node_type]``; compiled code never builds that tensor.

    Returns
    -------
    Tensor, shape (rows, n), (rows, heads, n) or (rows, m, n)

    Raises
    ------
    ValueError
        If the shapes do not fit.
    """
    if has_torch_function((x, weight)):
        result: Tensor = handle_torch_function(linear, (x, weight), x, weight)
        return result
    if weight.dim() == 2 and x.dim() >= 2:
        return x @ weight
    if x.dim() not in (2, 3) or weight.dim() not in (3, 4):
        raise ValueError(
            f"linear: x {tuple(x.shape)} and weight {tuple(weight.shape)} are not (rows, k) and "
            f"(rows, k, n), (rows, heads, k, n) or (k, n)"
        )
    lead = x.dim() - 1 if weight.dim() == 4 else 1
    if x.shape[:lead] != weight.shape[:lead] or x.shape[-1] != weight.shape[-2]:
        raise ValueError(f"linear: {tuple(x.shape)} does not fit {tuple(weight.shape)}")
    if x.dim() == 3:
        if weight.dim() == 4:
            return torch.matmul(x.unsqueeze(-2), weight).squeeze(-2)
        return torch.bmm(x, weight)
    rows = x.reshape(x.shape[0], *(1,) * (weight.dim() - 3), 1, x.shape[-1])
    return torch.matmul(rows, weight).squeeze(-2)


def _pairs(g: Graph) -> tuple[Tensor, int]:
    keys = g.rel.long() * max(g.num_nodes, 1) + g.dst.long()
    unique, inverse = torch.unique(keys, return_inverse=True)
    return inverse, int(unique.shape[0])


def _check_edges(name: str, value: Tensor, g: Graph) -> None:
    if value.dim() < 1 or value.shape[0] != g.num_edges:
        raise ValueError(f"{name}: {tuple(value.shape)} must have {g.num_edges} rows, one an edge")


def _segment_sum(value: Tensor, index: Tensor, rows: int) -> Tensor:
    return value.new_zeros((rows, *value.shape[1:])).index_add(0, index, value)


def _segment_max(value: Tensor, index: Tensor, rows: int) -> Tensor:
    expanded = index.reshape(-1, *(1,) * (value.dim() - 1)).expand_as(value)
    lowest = value.new_full((rows, *value.shape[1:]), -torch.inf)
    high = lowest.scatter_reduce(0, expanded, value, "amax")
    empty = torch.bincount(index, minlength=rows) == 0
    return high.masked_fill(empty.reshape(-1, *(1,) * (value.dim() - 1)), 0)


def _inverse_count(value: Tensor, index: Tensor, rows: int) -> Tensor:
    counts = torch.bincount(index, minlength=rows).clamp(min=1).to(value.dtype)
    return (1 / counts).reshape(-1, *(1,) * (value.dim() - 1))


def edge_softmax(score: Tensor, g: Graph, by: str = "dst") -> Tensor:
    """Softmax over the edges that share a destination (and a relation).

    Parameters
    ----------
    score : Tensor, shape (E,) or (E, heads)
    g : Graph
    by : {"dst", "dst_rel"}
        Whether all in-edges of a node compete, or those of one relation.

    Returns
    -------
    Tensor
        Shape of ``score``; sums to 1 over each group. Computed with the group's maximum
        subtracted, so large scores do not overflow.

    Raises
    ------
    ValueError
        If ``by`` is unknown or ``score`` does not have one row an edge.
    """
    if has_torch_function((score,)):
        result: Tensor = handle_torch_function(edge_softmax, (score,), score, g, by=by)
        return result
    if by not in SOFTMAX_GROUPS:
        raise ValueError(f"edge_softmax: by={by!r} is none of {', '.join(SOFTMAX_GROUPS)}")
    _check_edges("edge_softmax", score, g)
    index, rows = (g.dst.long(), g.num_nodes) if by == "dst" else _pairs(g)
    high = _segment_max(score.detach(), index, rows)
    raised = (score - high[index]).exp()
    return raised / _segment_sum(raised, index, rows)[index]


def aggregate(message: Tensor, g: Graph, reduce: str = "sum") -> Tensor:
    """Reduce edge values to their destination nodes.

    Parameters
    ----------
    message : Tensor, shape (E, ...)
    g : Graph
    reduce : {"sum", "mean", "mean_rel", "max"}
        ``mean_rel`` is the mean over each relation's in-edges, summed over the relations.

    Returns
    -------
    Tensor, shape (num_nodes, ...)
        0 for a node without in-edges, also for ``max``.

    Raises
    ------
    ValueError
        If ``reduce`` is unknown or ``message`` does not have one row an edge.
    """
    if has_torch_function((message,)):
        result: Tensor = handle_torch_function(aggregate, (message,), message, g, reduce=reduce)
        return result
    if reduce not in AGGREGATIONS:
        raise ValueError(f"aggregate: reduce={reduce!r} is none of {', '.join(AGGREGATIONS)}")
    _check_edges("aggregate", message, g)
    dst = g.dst.long()
    if reduce == "max":
        return _segment_max(message, dst, g.num_nodes)
    if reduce == "mean_rel":
        pair, pairs = _pairs(g)
        message = message * _inverse_count(message, pair, pairs)[pair]
    total = _segment_sum(message, dst, g.num_nodes)
    return total * _inverse_count(message, dst, g.num_nodes) if reduce == "mean" else total


def dropout(x: Tensor, p: float, seed: int | Tensor) -> Tensor:
    """Zero elements with probability ``p`` and scale the others by ``1 / (1 - p)``.

    Parameters
    ----------
    x : Tensor, shape (rows, ...)
    p : float
        In [0, 1).
    seed : int, or Tensor of int64 and no dimension
        The same seed and shape drop the same elements, on every device, compiled or not. A new
        seed does not make a compiled function trace again; a tensor may change under a CUDA graph.

    Returns
    -------
    Tensor, shape of ``x``

    Raises
    ------
    ValueError
        If ``p`` is out of range.
    TypeError
        If ``seed`` is neither an int nor an int64 tensor of no dimension.
    """
    if has_torch_function((x,)):
        result: Any = handle_torch_function(dropout, (x,), x, p, seed)
        return result  # type: ignore[no-any-return]
    if not 0 <= p < 1:
        raise ValueError(f"dropout: p={p} must be in [0, 1)")
    if isinstance(seed, Tensor):
        if seed.dtype is not torch.int64 or seed.dim():
            raise TypeError("dropout: seed must be an int or an int64 tensor of no dimension")
    elif isinstance(seed, bool) or not isinstance(seed, int):
        raise TypeError(f"dropout: seed must be an int, not {type(seed).__name__}")
    if p == 0:
        return x
    rows = torch.arange(x.shape[0], device=x.device)
    kept = keep_scales(rows, x[:1].numel() if x.shape[0] else 0, p, seed, x.dtype)
    return x * kept.reshape(x.shape)
