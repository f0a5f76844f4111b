# SPDX-License-Identifier: Apache-2.0
"""Checks seeds and their times, and says which device samples."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from datapath_core.errors import UnsupportedError
from pytorch_direct.graph.device import as_device, sent
from pytorch_direct.graph.graph import NODE, Graph
from pytorch_direct.ops.arguments import first_outside

__all__ = ["Seeds", "by_type", "check_keys", "device_for", "ids_of", "times_of"]

Seeds = torch.Tensor | Mapping[str, torch.Tensor]


def by_type(graph: Graph, value: Seeds, what: str) -> dict[str, torch.Tensor]:
    """Return seeds, or what goes with them, by node type in the graph's order.

    Raises
    ------
    TypeError, ValueError
        It is no dict where one is needed or the other way round, or names an unknown type.
    """
    if isinstance(value, Mapping) != graph.is_hetero:
        raise TypeError(
            f"{what} of a {'heterogeneous' if graph.is_hetero else 'homogeneous'} graph "
            f"must be {'a dict by node type' if graph.is_hetero else 'a tensor'}, not "
            f"{type(value).__name__}"
        )
    if not isinstance(value, Mapping):
        return {NODE: value}
    for kind in value:
        if kind not in graph.node_types:
            raise ValueError(
                f"{what}: there is no node type {kind!r}; there are {list(graph.node_types)}"
            )
    # By the graph's order, which numbers disjoint subgraphs.
    return {kind: value[kind] for kind in graph.node_types if kind in value}


def device_for(
    graph: Graph, device: torch.device | str | int | None, given: dict[str, torch.Tensor]
) -> torch.device:
    """Return where to sample: where the graph is, or for a unified one where the seeds are.

    Raises
    ------
    UnsupportedError
        The graph cannot be read from the device that is asked for.
    """
    if graph.device.type == "cuda":
        where = graph.device
        if device is not None and as_device(device) != where:
            raise UnsupportedError(
                f"the graph is on {where}, so it is sampled there, not on {device}; move it "
                "with to() or make it unified()"
            )
        return where
    if device is None:
        for ids in given.values():
            if isinstance(ids, torch.Tensor) and ids.is_cuda:
                device = ids.device
    where = torch.device("cpu") if device is None else as_device(device)
    if where.type == "cuda" and not graph.is_unified:
        raise UnsupportedError(
            f"the graph is in host memory that {where} cannot read: use graph.unified() or "
            f"graph.to({str(where)!r})"
        )
    if where.type not in ("cpu", "cuda"):
        raise UnsupportedError(f"sampling runs on the CPU or on CUDA devices, not on {where}")
    return where


def ids_of(graph: Graph, kind: str, ids: torch.Tensor | None, where: torch.device) -> torch.Tensor:
    """Return seeds of one type as int64 on the device that samples; those on the CPU are checked.

    Raises
    ------
    IndexError, TypeError, ValueError
        A seed is out of range, or they are no list of ids.
    """
    if ids is None:
        return torch.empty(0, dtype=torch.int64, device=where)
    if not isinstance(ids, torch.Tensor):
        raise TypeError(f"seeds must be a torch.Tensor of ids, not {type(ids).__name__}")
    if ids.dtype not in (torch.int32, torch.int64):
        raise TypeError(
            f"seeds must have dtype int32 or int64, not {ids.dtype}; of a mask take "
            "mask.nonzero().view(-1)"
        )
    if ids.dim() != 1:
        raise ValueError(f"seeds must have one dimension, not shape {list(ids.shape)}")
    nodes = graph.num_nodes[kind]
    if ids.device.type == "cpu" and ids.numel():
        position = first_outside(ids, nodes)
        if position is not None:
            raise IndexError(
                f"seeds: node {int(ids[position])} at position {position} of {ids.numel()} is not "
                f"in [0, {nodes})"
            )
    elif where.type == "cpu" and ids.numel():
        return ids_of(graph, kind, ids.cpu(), where)
    return sent(ids.long().contiguous(), where)


def times_of(
    graph: Graph, ids: list[torch.Tensor], seed_time: Seeds | None, where: torch.device
) -> torch.Tensor:
    """Return the times of all seeds, type after type: as given, else their own.

    Raises
    ------
    TypeError, ValueError
        Times are missing, or have another dtype or shape than they must have.
    """
    given = {} if seed_time is None else by_type(graph, seed_time, "seed_time")
    parts = []
    for kind, part in zip(graph.node_types, ids, strict=True):
        time = given.get(kind)
        if time is None:
            own = graph.node_time.get(kind)
            if own is None and part.numel():
                raise ValueError(
                    f"seeds of type {kind!r} have no times of their own: give seed_time"
                )
            if own is not None:
                # A bad seed on a GPU is reported with the result; its time must not be read.
                safe = part.clamp(0, max(own.shape[0] - 1, 0)) if own.shape[0] else part[:0]
                parts.append(own[safe])
            continue
        if not isinstance(time, torch.Tensor) or time.dtype.is_floating_point:
            raise TypeError("seed_time must be a tensor of integers, like the graph's times")
        if tuple(time.shape) != tuple(part.shape):
            raise ValueError(
                f"seed_time has shape {list(time.shape)}, but there are {part.numel()} seeds"
            )
        parts.append(sent(time.long(), where))
    return torch.cat(parts) if parts else torch.empty(0, dtype=torch.int64, device=where)


def check_keys(graph: Graph, seeds: int) -> None:
    """Raise unless (seed, node) fits 63 bits."""
    most = max(graph.num_nodes.values(), default=0)
    if seeds * most >= 2**63:
        raise ValueError(
            f"{seeds} disjoint subgraphs of up to {most} nodes are more than 2^63 nodes: use "
            "smaller batches"
        )
