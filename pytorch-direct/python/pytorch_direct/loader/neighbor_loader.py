# SPDX-License-Identifier: Apache-2.0
"""``NeighborLoader``: batches of nodes with what was sampled around them."""

from __future__ import annotations

from typing import Any, Literal

import torch

from pytorch_direct.loader.base import Loader
from pytorch_direct.loader.placement import made_on_host
from pytorch_direct.loader.seeds import node_seeds
from pytorch_direct.sampling.neighbor_sampler import NeighborSampler, SubgraphType

__all__ = ["NeighborLoader"]


class NeighborLoader(Loader):
    """PyG's ``NeighborLoader``, whose batches are sampled and fetched by the GPU.

    Parameters
    ----------
    data : Data, HeteroData, (FeatureStore, GraphStore), Graph or (dict, Graph)
        PyG's objects, or without PyG a graph and features by name: ``({"x": x}, graph)``; of a
        heterogeneous graph by type and name. Attributes in host memory are registered where they
        lie (:func:`pytorch_direct.unified`).
    num_neighbors : list of int, or dict by edge type of such lists
        Neighbours of each node, hop by hop; -1 takes all.
    input_nodes : ids, mask, node type or (node type, ids or mask); optional
        The seeds. None: all nodes.
    input_time : array of integers, optional
        Times of the seeds, instead of their own.
    replace, subgraph_type, disjoint, temporal_strategy
        See :class:`pytorch_direct.NeighborSampler`.
    time_attr, weight_attr : str, optional
        Attributes of PyG's objects with times and edge weights. A ``Graph`` has its own.
    transform : callable, optional
        Changes a batch, in the caller's thread.
    transform_sampler_output : callable, optional
        Changes a :class:`pytorch_direct.SamplerOutput` before rows are fetched, in the loader's
        thread.
    is_sorted, filter_per_worker : optional
        Without effect.
    neighbor_sampler : NeighborSampler, optional
        Used instead of a new one, with what it was made with.
    directed : bool
        PyG's older word: False means ``subgraph_type="induced"``.
    device : torch.device, str or int, optional
        Where batches arrive. None: the GPU that the graph or an attribute is on, else the current
        GPU, else the CPU.
    graph_device : torch.device, str or int, optional
        Where the structure lies: ``"cpu"`` (registered host memory) or the GPU. None: there if it
        takes an eighth of the free memory or less.
    return_edge_ids : bool
        Without ``e_id`` and attributes of edges a GPU reads less.
    threads : int, optional
        That sample on the CPU; None: as torch has.
    custom_cls : type, optional
        Class of the batches that are made from stores.
    **options
        ``batch_size`` (1), ``shuffle`` (False), ``drop_last`` (False), ``sampler``,
        ``batch_sampler``, ``generator``: as of torch's ``DataLoader``.

        ``seed`` (int): what random numbers are a function of, with the number of the epoch. None:
        drawn from `generator`, else from torch's own; 0 on several ranks.

        ``rank``, ``world_size``: of ``torch.distributed`` if that is initialised. Each rank takes
        each world_size-th seed of one order, filled up from its front, so that all have as many
        batches; with `drop_last` cut instead. ``world_size=1`` where seeds are split already; with
        `sampler` or `batch_sampler` it is 1 unless it is given.

        ``depth`` (2): batches made ahead; 0 makes each when it is asked for, without a thread.

        ``sm_share``: see :func:`pytorch_direct.gather`. Fewer multiprocessors fetch more slowly and
        leave more to the training beside.

        ``num_workers``, ``pin_memory``, ``persistent_workers``, ``prefetch_factor`` and their kin:
        without effect, said once.

    Raises
    ------
    IndexError, TypeError, ValueError
        An argument is out of its domain.
    UnsupportedError
        Something cannot be done; the text says what to do instead.

    Notes
    -----
    The same data, seed and number of epoch give the same batches, whatever `depth`, `device`,
    `graph_device` and `threads` are. Batches have PyG's names: ``x``, ``y`` and every other
    attribute, ``edge_index``, ``n_id``, ``e_id``, ``input_id``, ``batch_size``,
    ``num_sampled_nodes``, ``num_sampled_edges``, ``seed_time``, ``batch`` where disjoint. Rows are
    read ahead of their use, those that require gradients when the batch is taken; with ``depth=0``
    all are read when the batch is asked for.

    On a GPU the caller never waits for its stream, and batches are ordinary tensors: what uses one
    on another stream than the one that took it calls ``record_stream``, as with any tensor. Capture
    CUDA graphs with ``capture_error_mode="thread_local"`` while an iterator is alive, whose thread
    may allocate.

    Examples
    --------
    >>> graph = Graph.from_edge_index(torch.tensor([[0, 1, 2], [1, 2, 0]]))
    >>> loader = NeighborLoader(({"x": torch.eye(3)}, graph), [-1], batch_size=2)
    >>> [batch.x.shape[0] for batch in loader]
    [3, 2]
    """

    def __init__(
        self,
        data: Any,
        num_neighbors: Any,
        input_nodes: Any = None,
        input_time: Any = None,
        replace: bool = False,
        subgraph_type: SubgraphType = "directional",
        disjoint: bool = False,
        temporal_strategy: Literal["uniform", "last"] = "uniform",
        time_attr: str | None = None,
        weight_attr: str | None = None,
        transform: Any = None,
        transform_sampler_output: Any = None,
        is_sorted: bool = False,
        filter_per_worker: bool | None = None,
        neighbor_sampler: NeighborSampler | None = None,
        directed: bool = True,
        *,
        device: torch.device | str | int | None = None,
        graph_device: torch.device | str | int | None = None,
        return_edge_ids: bool = True,
        threads: int | None = None,
        custom_cls: Any = None,
        input_id: Any = None,
        **options: Any,
    ) -> None:
        del is_sorted
        super().__init__(
            data,
            num_neighbors,
            replace=replace,
            subgraph_type=subgraph_type,
            disjoint=disjoint,
            temporal_strategy=temporal_strategy,
            time_attr=time_attr,
            weight_attr=weight_attr,
            neighbor_sampler=neighbor_sampler,
            directed=directed,
            device=device,
            graph_device=graph_device,
            return_edge_ids=return_edge_ids,
            threads=threads,
            custom_cls=custom_cls,
            transform=transform,
            transform_sampler_output=transform_sampler_output,
            filter_per_worker=filter_per_worker,
            **options,
        )
        if input_time is not None and not self._sampler.is_temporal:
            raise ValueError(
                "input_time is given, but the graph has no times: name them with time_attr"
            )
        with made_on_host():
            self._task = node_seeds(self.graph, input_nodes, input_time, input_id)
