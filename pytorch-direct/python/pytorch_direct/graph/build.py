# SPDX-License-Identifier: Apache-2.0
"""Makes relations: from lists of edges, or from arrays that are compressed already."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch

from pytorch_direct import _native
from pytorch_direct.graph.relation import Relation
from pytorch_direct.ops.arguments import first_outside

__all__ = ["as_array", "as_times", "compress", "take_compressed"]

_INT32_MOST = 2**31 - 1


def as_array(value: Any, what: str) -> torch.Tensor:
    """Return a contiguous tensor over a torch tensor's or a numpy array's memory.

    Raises
    ------
    TypeError
        It is neither.
    """
    if isinstance(value, np.ndarray):
        with warnings.catch_warnings():
            # Of arrays that must not be written; they are only read here.
            warnings.simplefilter("ignore", UserWarning)
            value = torch.from_numpy(np.ascontiguousarray(value))
    if not isinstance(value, torch.Tensor):
        raise TypeError(
            f"{what} must be a torch.Tensor or a numpy array, not {type(value).__name__}"
        )
    if value.layout is not torch.strided:
        raise TypeError(f"{what} must be a strided tensor, not one with layout {value.layout}")
    return value.detach().contiguous()


def as_ids(value: Any, what: str) -> torch.Tensor:
    """Return an array of int32 or int64."""
    array = as_array(value, what)
    if array.dtype not in (torch.int32, torch.int64):
        raise TypeError(f"{what} must have dtype int32 or int64, not {array.dtype}")
    return array


def as_times(value: Any, what: str, count: int) -> torch.Tensor:
    """Return times as int64: exact, so whole numbers only."""
    array = as_array(value, what)
    if array.dtype.is_floating_point or array.dtype.is_complex or array.dtype == torch.bool:
        raise TypeError(
            f"{what} must hold whole numbers, not {array.dtype}: scale it, for instance to "
            "nanoseconds as int64, so that no comparison is rounded"
        )
    _check_length(array, what, count)
    return array.to(torch.int64)


def _check_length(array: torch.Tensor, what: str, count: int) -> None:
    if array.dim() != 1 or array.shape[0] != count:
        raise ValueError(f"{what} must have shape [{count}], not {list(array.shape)}")


def _check_range(array: torch.Tensor, what: str, nodes: int) -> None:
    position = first_outside(array, nodes)
    if position is not None:
        bad = int(array[position])
        raise ValueError(f"{what}: node {bad} at position {position} is not in [0, {nodes})")


def compress(
    edge_index: Any,
    num_src: int,
    num_dst: int,
    *,
    what: str,
    edge_weight: Any = None,
    edge_time: Any = None,
    node_time: torch.Tensor | None = None,
) -> Relation:
    """Sort edges by destination, and within a neighbourhood by time where there is one.

    Raises
    ------
    TypeError, ValueError
        An array has another dtype or shape than it must have, or an id is out of range.
    """
    edges = as_ids(edge_index, f"{what}: edge_index")
    if edges.dim() != 2 or edges.shape[0] != 2:
        raise ValueError(f"{what}: edge_index must have shape [2, edges], not {list(edges.shape)}")
    edges = edges.cpu()
    _check_range(edges[0], f"{what}: edge_index[0]", num_src)
    _check_range(edges[1], f"{what}: edge_index[1]", num_dst)
    count = int(edges.shape[1])
    times = None if edge_time is None else as_times(edge_time, f"{what}: edge_time", count).cpu()
    order = None
    if times is not None or node_time is not None:
        by = times if times is not None else node_time.cpu()[edges[0].long()]  # type: ignore[union-attr]
        order = torch.argsort(by, stable=True)
        edges = edges[:, order].contiguous()
    indptr = torch.empty(num_dst + 1, dtype=torch.int64)
    indices = torch.empty(count, dtype=torch.int32 if num_src <= _INT32_MOST else torch.int64)
    edge_ids = torch.empty(count, dtype=torch.int64)
    _native.csc_build(
        edges[0].data_ptr(),
        edges[1].data_ptr(),
        edges.dtype == torch.int64,
        count,
        num_dst,
        indptr.data_ptr(),
        indices.data_ptr(),
        indices.dtype == torch.int64,
        edge_ids.data_ptr(),
        torch.get_num_threads(),
    )
    if order is not None:
        edge_ids = order[edge_ids]
    sums, drawable = None, None
    if edge_weight is not None:
        weights = _weights(edge_weight, f"{what}: edge_weight", count)
        sums, drawable = _weight_sums(indptr, weights[edge_ids])
    return Relation(
        indptr,
        indices,
        num_src,
        num_dst,
        edge_ids,
        sums,
        drawable,
        None if times is None else times[edge_ids],
    )


def take_compressed(
    indptr: Any,
    indices: Any,
    num_src: int,
    *,
    what: str,
    edge_ids: Any = None,
    edge_weight: Any = None,
    edge_time: Any = None,
    node_time: torch.Tensor | None = None,
    check: bool = True,
) -> Relation:
    """Take arrays as they are, without a copy; with `check`, read them all once.

    Raises
    ------
    TypeError, ValueError
        An array has another dtype or shape than it must have; with `check` also: offsets fall, ids
        are out of range, or times fall within a neighbourhood.
    """
    offsets = as_array(indptr, f"{what}: indptr")
    if offsets.dtype != torch.int64:
        raise TypeError(
            f"{what}: indptr must have dtype int64, so that more than 2^31 edges fit; it has "
            f"{offsets.dtype}: use indptr.long()"
        )
    if offsets.dim() != 1 or offsets.shape[0] < 1:
        raise ValueError(f"{what}: indptr must have shape [nodes + 1], not {list(offsets.shape)}")
    sources = as_ids(indices, f"{what}: indices")
    if sources.dim() != 1:
        raise ValueError(f"{what}: indices must have one dimension, not {sources.dim()}")
    count, num_dst = int(sources.shape[0]), int(offsets.shape[0]) - 1
    names = None
    if edge_ids is not None:
        names = as_ids(edge_ids, f"{what}: edge_ids").to(torch.int64)
        _check_length(names, f"{what}: edge_ids", count)
    times = None if edge_time is None else as_times(edge_time, f"{what}: edge_time", count)
    arrays = {"indices": sources, "edge_ids": names, "edge_time": times}
    for name, array in arrays.items():
        if array is not None and array.device != offsets.device:
            raise ValueError(
                f"{what}: {name} is on {array.device}, but indptr on {offsets.device}; make the "
                "graph on one device and move it with to()"
            )
    if check:
        _check_compressed(offsets, sources, num_src, what)
        if times is not None or node_time is not None:
            by = times if times is not None else node_time.to(sources.device)[sources.long()]  # type: ignore[union-attr]
            _check_order(offsets, by, what)
    sums, drawable = None, None
    if edge_weight is not None:
        weights = _weights(edge_weight, f"{what}: edge_weight", count)
        sums, drawable = _weight_sums(offsets.cpu(), weights)
        sums, drawable = sums.to(offsets.device), drawable.to(offsets.device)
    return Relation(offsets, sources, num_src, num_dst, names, sums, drawable, times)


def _check_compressed(
    offsets: torch.Tensor, sources: torch.Tensor, num_src: int, what: str
) -> None:
    host = offsets.cpu()
    count, nodes = int(sources.shape[0]), int(host.shape[0]) - 1
    bad = _native.first_bad_offset(host.data_ptr(), nodes, count)
    if bad >= 0:
        raise ValueError(
            f"{what}: indptr must begin with 0, not fall, and end with the number of edges "
            f"({count}); indptr[{bad}] is {int(host[bad])}"
        )
    _check_range(sources, f"{what}: indices", num_src)


def _check_order(offsets: torch.Tensor, times: torch.Tensor, what: str) -> None:
    if times.numel() < 2:
        return
    falls = times[1:] < times[:-1]
    # The first edge of a neighbourhood may be earlier than the last of the one before.
    begins = offsets[1:-1]
    begins = begins[(begins > 0) & (begins < times.numel())]
    falls[begins - 1] = False
    if bool(falls.any()):
        position = int(falls.nonzero()[0]) + 1
        raise ValueError(
            f"{what}: times must not fall within a neighbourhood, but edge {position} is earlier "
            "than the edge before it; sort by (destination, time), or use from_edge_index, which "
            "does"
        )


def _weights(value: Any, what: str, count: int) -> torch.Tensor:
    array = as_array(value, what)
    if array.dtype.is_complex:
        raise TypeError(f"{what} must hold real numbers, not {array.dtype}")
    _check_length(array, what, count)
    weights = array.cpu().to(torch.float64)
    bad = ~(torch.isfinite(weights) & (weights >= 0))
    if bool(bad.any()):
        position = int(bad.nonzero()[0])
        raise ValueError(
            f"{what}: weights must be finite and not negative; weight {position} is "
            f"{float(weights[position])}"
        )
    return weights


def _weight_sums(offsets: torch.Tensor, weights: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    weights = weights.contiguous()
    sums = torch.empty(weights.shape[0], dtype=torch.int64)
    drawable = torch.empty(offsets.shape[0] - 1, dtype=torch.int64)
    _native.weight_sums(
        offsets.data_ptr(),
        drawable.shape[0],
        weights.data_ptr(),
        sums.data_ptr(),
        drawable.data_ptr(),
        torch.get_num_threads(),
    )
    return sums, drawable
