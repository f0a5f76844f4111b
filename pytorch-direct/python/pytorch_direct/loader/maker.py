# SPDX-License-Identifier: Apache-2.0
"""Makes one batch: samples, fetches rows, puts names to them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch.profiler import record_function

from pytorch_direct.loader.columns import Column
from pytorch_direct.loader.lanes import Lanes
from pytorch_direct.loader.order import Job
from pytorch_direct.loader.parts import Parts, Sampled, parts_of
from pytorch_direct.loader.placement import made_on_host
from pytorch_direct.loader.sources import Source
from pytorch_direct.sampling.neighbor_sampler import NeighborSampler
from pytorch_direct.sampling.pending import PendingSample

__all__ = ["BatchMaker", "Made", "Task"]


class Task(Protocol):
    """What is sampled around: nodes or links."""

    @property
    def count(self) -> int:
        """Number of seeds."""

    def start(
        self, sampler: NeighborSampler, positions: torch.Tensor, number: int, device: torch.device
    ) -> PendingSample:
        """Begin to sample around the seeds at some positions."""

    def describe(self, batch: Any, metadata: tuple[Any, ...]) -> None:
        """Write what belongs to the seeds into a batch."""


@dataclass
class Made:
    """A batch that nobody has taken."""

    batch: Any
    nodes: dict[Any, torch.Tensor]
    edges: dict[Any, torch.Tensor]
    ready: Any  #: What its taker waits for.


class BatchMaker:
    """Makes the batches of one iterator; see `Maker`."""

    def __init__(
        self,
        source: Source,
        sampler: NeighborSampler,
        task: Task,
        columns: list[Column],
        lanes: Lanes,
        transform: Callable[[Any], Any] | None,
        transform_sampler_output: Callable[[Any], Any] | None,
    ) -> None:
        self._source, self._sampler, self._task = source, sampler, task
        self._early = [column for column in columns if not column.is_late]
        self._late = [column for column in columns if column.is_late]
        self._lanes = lanes
        self._transform, self._transform_output = transform, transform_sampler_output
        self.ahead = lanes.ahead

    @contextmanager
    def running(self) -> Iterator[None]:
        """See `Maker`."""
        with torch.no_grad(), made_on_host():
            yield

    def start(self, job: Job) -> PendingSample:
        """See `Maker`."""
        with record_function("pytorch_direct: sample"), self._lanes.sampling():
            device = self._lanes.device
            return self._task.start(self._sampler, job.positions, job.number, device)

    def finish(self, job: Job, pending: PendingSample) -> Made:
        """See `Maker`."""
        with record_function("pytorch_direct: fetch"):
            with self._lanes.sampling():
                self._lanes.wait(pending)
                out = pending.result()
                if self._transform_output is not None:
                    out = self._transform_output(out)
                parts = parts_of(out)
                found = [
                    _read(column, _of(column, parts.nodes, parts.edges)) for column in self._early
                ]
            return self._fetch(out, parts, found)

    def end(self) -> None:
        """See `Maker`."""
        self._lanes.release()

    def hand_over(self, made: Made) -> Any:
        """See `Maker`."""
        self._lanes.take(made.ready)
        batch = made.batch
        for column in self._late:
            ids = _of(column, made.nodes, made.edges)
            self._put(batch, column, None if ids is None else column.late(ids))
        return batch if self._transform is None else self._transform(batch)

    def _fetch(self, out: Sampled, parts: Parts, found: list[Any]) -> Made:
        own = _Owned(self._lanes.device)
        batch = self._source.blank()
        rows = []
        with self._lanes.owning():
            nodes = {kind: own.of(ids) for kind, ids in parts.nodes.items()}
            edges = {kind: own.of(ids) for kind, ids in parts.edges.items()}
            for column, known in zip(self._early, found, strict=True):
                ids = _of(column, nodes, edges)
                if ids is None:
                    self._put(batch, column, None)
                    continue
                taken = column.empty(ids.numel(), self._lanes.device, known)
                rows.append((column, taken, ids, known))
                self._put(batch, column, column.shown(taken))
            self._name(batch, parts, nodes, edges, own)
            self._task.describe(batch, tuple(own.of(part) for part in out.metadata or ()))
        with self._lanes.fetching():
            own.fill()
            for column, taken, ids, known in rows:
                column.fill(taken, ids, known)
        return Made(batch, nodes, edges, self._lanes.done((out, found)))

    def _name(
        self,
        batch: Any,
        parts: Parts,
        nodes: dict[Any, torch.Tensor],
        edges: dict[Any, torch.Tensor],
        own: _Owned,
    ) -> None:
        """Put the names of the sample into a batch, in place of attributes of the same names."""
        for kind, row in parts.rows.items():
            store = self._source.store(batch, kind)
            store.edge_index = own.pair(row, parts.cols[kind])
            store.num_sampled_edges = parts.edge_counts.get(kind)
        for kind, ids in nodes.items():
            store = self._source.store(batch, kind)
            if "num_nodes" in store:
                store.num_nodes = ids.numel()
            if not self._has(kind, "n_id"):
                store.n_id = ids
            store.batch = own.of(parts.batch.get(kind))
            store.num_sampled_nodes = parts.node_counts.get(kind)
        for kind, ids in edges.items():
            if not self._has(kind, "e_id"):
                self._source.store(batch, kind).e_id = ids

    def _has(self, kind: Any, name: str) -> bool:
        columns = (*self._early, *self._late)
        return any(c.attribute.kind == kind and c.attribute.name == name for c in columns)

    def _put(self, batch: Any, column: Column, rows: Any) -> None:
        self._source.store(batch, column.attribute.kind)[column.attribute.name] = rows


class _Owned:
    """Tensors of a batch's own, which are allocated before anything is written."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._copies: list[tuple[torch.Tensor, torch.Tensor]] = []

    def of(self, value: Any) -> Any:
        """Return memory for a tensor; what is no tensor, or made on the CPU for it, as it is."""
        if isinstance(value, dict):
            return {kind: self.of(part) for kind, part in value.items()}
        if self._device.type == "cpu" or not isinstance(value, torch.Tensor):
            return value
        fresh = torch.empty(value.shape, dtype=value.dtype, device=self._device)
        self._copies.append((fresh, value))
        return fresh

    def pair(self, row: torch.Tensor, col: torch.Tensor) -> torch.Tensor:
        """Return memory for two lists as the rows of one tensor."""
        if self._device.type == "cpu":
            return torch.stack([row, col])
        fresh = torch.empty((2, row.numel()), dtype=row.dtype, device=self._device)
        self._copies += [(fresh[0], row), (fresh[1], col)]
        return fresh

    def fill(self) -> None:
        """Enqueue the copies."""
        for fresh, value in self._copies:
            if value.is_cuda:
                fresh.copy_(value)
            else:
                # A copy from memory that is not pinned would wait for the stream.
                fresh.copy_(value.pin_memory(), non_blocking=True)


def _of(
    column: Column,
    nodes: dict[Any, torch.Tensor],
    edges: dict[Any, torch.Tensor],
) -> torch.Tensor | None:
    attribute = column.attribute
    return (nodes if attribute.of == "node" else edges).get(attribute.kind)


def _read(column: Column, ids: torch.Tensor | None) -> Any:
    return None if ids is None else column.read(ids)
