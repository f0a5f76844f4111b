# SPDX-License-Identifier: Apache-2.0
"""The nodes around which a loader samples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from pytorch_direct.graph.build import as_times
from pytorch_direct.graph.graph import NODE, Graph
from pytorch_direct.ops.arguments import first_outside
from pytorch_direct.sampling.neighbor_sampler import NeighborSampler
from pytorch_direct.sampling.pending import PendingSample

__all__ = ["NodeSeeds", "node_seeds", "on_host"]


@dataclass(frozen=True)
class NodeSeeds:
    """Seeds of one node type; all on the CPU."""

    kind: str
    is_hetero: bool
    ids: torch.Tensor
    time: torch.Tensor | None
    input_id: torch.Tensor | None

    @property
    def count(self) -> int:
        """Number of seeds."""
        return self.ids.numel()

    def start(
        self, sampler: NeighborSampler, positions: torch.Tensor, number: int, device: torch.device
    ) -> PendingSample:
        """Begin to sample around the seeds at some positions."""
        ids: Any = self.ids[positions]
        time: Any = None if self.time is None else self.time[positions]
        if self.is_hetero:
            ids, time = {self.kind: ids}, None if time is None else {self.kind: time}
        return sampler.start(
            ids,
            batch=number,
            seed_time=time,
            device=device,
            input_id=positions if self.input_id is None else self.input_id[positions],
        )

    def describe(self, batch: Any, metadata: tuple[Any, ...]) -> None:
        """Write what belongs to the seeds into a batch."""
        store = batch[self.kind] if self.is_hetero else batch
        time = metadata[1]
        store.input_id = metadata[0]
        store.seed_time = time[self.kind] if isinstance(time, dict) else time
        store.batch_size = int(metadata[0].shape[0])


def node_seeds(
    graph: Graph, input_nodes: Any, input_time: Any = None, input_id: Any = None
) -> NodeSeeds:
    """Check the seeds of a loader.

    Raises
    ------
    IndexError, TypeError, ValueError
        They are no ids or mask of nodes of the graph.
    """
    kind = NODE
    if graph.is_hetero:
        if isinstance(input_nodes, str):
            input_nodes = (input_nodes, None)
        if not (
            isinstance(input_nodes, (tuple, list))
            and len(input_nodes) == 2
            and isinstance(input_nodes[0], str)
        ):
            raise TypeError(
                "input_nodes of a heterogeneous graph is a node type or a pair (node type, ids or "
                f"mask), not {type(input_nodes).__name__}"
            )
        kind, input_nodes = input_nodes
        if kind not in graph.node_types:
            raise ValueError(
                f"input_nodes: there is no node type {kind!r}; there are {list(graph.node_types)}"
            )
    nodes = graph.num_nodes[kind]
    ids, from_mask = _ids(input_nodes, nodes)
    if input_id is not None:
        input_id = on_host(input_id, "input_id")
        if tuple(input_id.shape) != tuple(ids.shape):
            raise ValueError(f"input_id has shape {list(input_id.shape)} for {ids.numel()} seeds")
    elif from_mask:
        input_id = ids
    if input_time is not None:
        input_time = as_times(on_host(input_time, "input_time"), "input_time", ids.numel())
    return NodeSeeds(kind, graph.is_hetero, ids, input_time, input_id)


def on_host(value: Any, what: str) -> torch.Tensor:
    """Return a tensor, an array or a list of numbers as an ordinary tensor on the CPU."""
    if isinstance(value, torch.Tensor):
        with torch._C.DisableTorchFunctionSubclass():
            return value.detach().as_subclass(torch.Tensor).cpu()
    try:
        return torch.as_tensor(np.asarray(value), device="cpu")
    except (TypeError, ValueError) as error:
        raise TypeError(f"{what} must be a tensor, an array or a list of numbers") from error


def _ids(given: Any, nodes: int) -> tuple[torch.Tensor, bool]:
    if given is None:
        return torch.arange(nodes, device="cpu"), False
    ids = on_host(given, "input_nodes")
    if ids.numel() == 0 and ids.dtype != torch.bool:
        ids = ids.to(torch.int64)
    if ids.dim() != 1:
        raise ValueError(f"input_nodes must have one dimension, not shape {list(ids.shape)}")
    if ids.dtype == torch.bool:
        if ids.numel() != nodes:
            raise ValueError(f"input_nodes is a mask of {ids.numel()} for {nodes} nodes")
        return ids.nonzero().view(-1), True
    if ids.dtype.is_floating_point or ids.dtype.is_complex:
        raise TypeError(f"input_nodes must hold ids or be a mask, not {ids.dtype}")
    ids = ids.to(torch.int64)
    position = first_outside(ids, nodes)
    if position is not None:
        raise IndexError(
            f"input_nodes: node {int(ids[position])} at position {position} is not in [0, {nodes})"
        )
    # The caller may change its tensor between epochs.
    return ids.clone(), False
