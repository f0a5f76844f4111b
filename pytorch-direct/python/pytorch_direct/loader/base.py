# SPDX-License-Identifier: Apache-2.0
"""What both loaders are: a graph, a sampler, seeds, and epochs of batches."""

from __future__ import annotations

import operator
import pickle
import weakref
from collections.abc import Mapping
from typing import Any, NoReturn

import torch

from datapath_core.errors import UnsupportedError
from pytorch_direct.graph.graph import Graph
from pytorch_direct.loader.columns import Attribute, Column, column_of
from pytorch_direct.loader.lanes import lanes_of
from pytorch_direct.loader.maker import BatchMaker, Task
from pytorch_direct.loader.options import LoaderOptions, read_options
from pytorch_direct.loader.order import Job
from pytorch_direct.loader.pipeline import BatchIterator
from pytorch_direct.loader.placement import batch_device, made_on_host, placed_graph
from pytorch_direct.loader.sources import Source, source_of
from pytorch_direct.sampling.neighbor_sampler import NeighborSampler

__all__ = ["Loader"]


class Loader:
    """An iterable over the batches of an epoch; the two public loaders say of what."""

    _task: Task

    def __init__(
        self,
        data: Any,
        num_neighbors: Any,
        *,
        replace: bool,
        subgraph_type: Any,
        disjoint: bool,
        temporal_strategy: Any,
        time_attr: str | None,
        weight_attr: str | None,
        neighbor_sampler: NeighborSampler | None,
        directed: bool,
        device: torch.device | str | int | None,
        graph_device: torch.device | str | int | None,
        return_edge_ids: bool,
        threads: int | None,
        custom_cls: Any,
        **options: Any,
    ) -> None:
        self.data = data
        self._options: LoaderOptions = read_options(**options)
        self._source: Source = source_of(data, custom_cls)
        with made_on_host():
            if neighbor_sampler is not None:
                sampler = _as_sampler(neighbor_sampler)
                self.device = batch_device(
                    sampler.graph.device
                    if device is None and sampler.graph.device.type == "cuda"
                    else device
                )
                self._kept: object = None
            else:
                own = _own_device(data, self._source) if device is None else device
                self.device = batch_device(own)
                placed = placed_graph(
                    self._source, self.device, graph_device, weight_attr, time_attr
                )
                self._kept = placed
                sampler = NeighborSampler(
                    placed.graph,
                    _fanouts(num_neighbors, placed.graph),
                    replace=replace,
                    subgraph_type=_subgraph_type(subgraph_type, directed),
                    temporal_strategy=temporal_strategy,
                    disjoint=disjoint,
                    return_edge_ids=return_edge_ids,
                    seed=self._options.seed,
                    threads=threads,
                )
        self._sampler = sampler
        self._epoch = 0
        self._columns: dict[Any, Column] = {}
        self._iterators: weakref.WeakSet[BatchIterator] = weakref.WeakSet()

    @property
    def graph(self) -> Graph:
        """The graph that is sampled, where it lies."""
        return self._sampler.graph

    @property
    def neighbor_sampler(self) -> NeighborSampler:
        """The sampler, which another loader over the same graph may be given."""
        return self._sampler

    @property
    def batch_size(self) -> int | None:
        """Seeds of a batch; None with a ``batch_sampler``."""
        return self._options.batch_size

    @property
    def drop_last(self) -> bool:
        """Whether an incomplete last batch is left out."""
        return self._options.drop_last

    @property
    def seed(self) -> int:
        """What, with the number of the epoch, all random numbers are a function of."""
        return self._options.seed

    @property
    def epoch(self) -> int:
        """Number of the epoch that the next ``iter()`` begins."""
        return self._epoch

    @property
    def dataset(self) -> range:
        """The positions of the seeds."""
        return range(self._task.count)

    def set_epoch(self, epoch: int) -> None:
        """Choose the number of the epoch that the next ``iter()`` begins.

        Without it epochs are counted from 0, one more for each ``iter()``.
        """
        epoch = operator.index(epoch)
        if not 0 <= epoch < 2**23:
            raise ValueError(f"epoch must be in [0, 2^23), not {epoch}")
        self._epoch = epoch

    def __len__(self) -> int:
        """Return the number of batches of an epoch, on this rank."""
        return len(self._options.order(self._task.count))

    def __iter__(self) -> BatchIterator:
        epoch, self._epoch = self._epoch, self._epoch + 1
        order = self._options.order(self._task.count)
        with made_on_host():
            iterator = BatchIterator(self._maker(), order.jobs(epoch), self._options.depth)
        self._iterators.add(iterator)
        return iterator

    def __call__(self, index: Any) -> Any:
        """Return the batch of the seeds at some positions, sampled as batch 0 of epoch 0."""
        positions = torch.as_tensor(index, dtype=torch.int64, device="cpu").view(-1)
        bad = (positions < 0) | (positions >= self._task.count)
        if bool(bad.any()):
            raise IndexError(f"position {int(positions[bad][0])} is not in [0, {self._task.count})")
        return next(BatchIterator(self._maker(), iter([Job(0, 0, 0, positions)]), 0))

    def close(self) -> None:
        """Stop the iterators there are; each waits for the batch that it is making."""
        for iterator in list(self._iterators):
            iterator.close()

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise pickle.PicklingError(
            f"a {type(self).__name__} belongs to the process that made it: send the data, whose "
            "unified tensors travel once through shared memory, and make the loader there"
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.graph}, batches={len(self)}, device={self.device})"

    def _maker(self) -> BatchMaker:
        source = self._source.now()
        return BatchMaker(
            source,
            self._sampler,
            self._task,
            self._bound(source),
            lanes_of(self.device),
            self._options.transform,
            self._options.transform_sampler_output,
        )

    def _bound(self, source: Source) -> list[Column]:
        """Return the columns of the attributes; unchanged ones stay registered."""
        known, self._columns = self._columns, {}
        for attribute in source.attributes():
            key = (attribute.kind, attribute.name, *_memory(attribute))
            column = known.get(key)
            if column is None or column.attribute.value is not attribute.value:
                column = column_of(attribute, self.device, self._options.sm_share)
            self._columns[key] = column
        return list(self._columns.values())


def _fanouts(given: Any, graph: Graph) -> Any:
    """Return numbers of neighbours of which PyG's class, or its words for edge types, are gone."""
    if hasattr(given, "get_values"):
        return given.get_values(list(graph.edge_types) if graph.is_hetero else None)
    if isinstance(given, Mapping):
        return {tuple(k.split("__")) if isinstance(k, str) else k: n for k, n in given.items()}
    return given


def _memory(attribute: Attribute) -> tuple[Any, ...]:
    """Return what a column stands for, beside the object: memory and shape may be exchanged."""
    value = attribute.value
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
        return (attribute.dim, id(value))
    where = (value.data_ptr(), tuple(value.shape), value.stride(), value.dtype, value.device)
    return (attribute.dim, *where, value.requires_grad)


def _as_sampler(given: Any) -> NeighborSampler:
    if not isinstance(given, NeighborSampler):
        raise UnsupportedError(
            f"neighbor_sampler= takes a pytorch_direct.NeighborSampler, not a "
            f"{type(given).__module__}.{type(given).__name__}: leave it out, and loaders over the "
            "same data share their graph"
        )
    return given


def _own_device(data: Any, source: Source) -> torch.device | None:
    """Return the GPU that a graph is on already, or the first attribute that is on one."""
    graph = data[1] if isinstance(data, (tuple, list)) and len(data) == 2 else data
    if isinstance(graph, Graph) and graph.device.type == "cuda":
        return graph.device
    for attribute in source.attributes():
        if isinstance(attribute.value, torch.Tensor) and attribute.value.is_cuda:
            return attribute.value.device
    return None


def _subgraph_type(given: Any, directed: bool) -> Any:
    return "induced" if not directed else getattr(given, "value", given)
