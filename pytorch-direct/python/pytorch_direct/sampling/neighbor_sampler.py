# SPDX-License-Identifier: Apache-2.0
"""``NeighborSampler``: subgraphs around seeds, hop by hop, on the CPU or on a GPU."""

from __future__ import annotations

import operator
from typing import Any, Literal

import torch

from datapath_core.errors import UnsupportedError
from pytorch_direct.graph.device import sent
from pytorch_direct.graph.graph import EdgeType, Graph
from pytorch_direct.sampling.cpu import sample_on_cpu
from pytorch_direct.sampling.cuda import CudaKernels
from pytorch_direct.sampling.device import DeviceBatch
from pytorch_direct.sampling.fanouts import NumNeighbors, fanouts_of
from pytorch_direct.sampling.links import Links, links_as_seeds
from pytorch_direct.sampling.negative import NegativeSampling
from pytorch_direct.sampling.output import HeteroSamplerOutput, SamplerOutput
from pytorch_direct.sampling.pending import PendingSample, Running
from pytorch_direct.sampling.plan import Plan
from pytorch_direct.sampling.seeds import (
    Seeds,
    by_type,
    check_keys,
    device_for,
    ids_of,
    times_of,
)

__all__ = ["NeighborSampler", "PendingSample"]

SubgraphType = Literal["directional", "bidirectional", "induced"]


class NeighborSampler:
    """Draws subgraphs around seeds: some neighbours of the seeds, some of theirs, and so on.

    The same arguments, seed and batch number give the same result on the CPU and on every GPU,
    whatever the number of threads. A sampler has no state, so one may serve several threads.

    Parameters
    ----------
    graph : Graph
        Where its arrays are says what may sample: the CPU (host memory), a GPU (its memory), or
        both (``graph.unified()``).
    num_neighbors : list of int, or dict by edge type of such lists
        In-edges to take of each node, for each hop; -1 takes all, 0 leaves an edge type out.
    replace : bool
        Draw with replacement. -1 takes each in-edge once all the same.
    subgraph_type : {"directional", "bidirectional", "induced"}
        The sampled edges; they and their reverses; or all edges between the sampled nodes.
    weighted : bool, optional
        Draw in proportion to the graph's weights; edges of weight 0 come with -1 only. None: if it
        has any. Edge types without weights are drawn uniformly.
    temporal : bool, optional
        Never take an edge (or a node) later than the time of the seed it is reached from. None: if
        the graph has times. Subgraphs are disjoint then. Types without times are always seen.
    temporal_strategy : {"uniform", "last"}
        Any of the past, or the latest of it.
    disjoint : bool
        A subgraph of its own for each seed.
    return_edge_ids : bool
        Without ids of edges a GPU reads less over the link.
    seed : int
        In [0, 2^64).
    threads : int, optional
        Of the CPU; None: as torch has.

    Raises
    ------
    TypeError, ValueError
        An argument is out of its domain.
    UnsupportedError
        Weights and times together, or induced subgraphs that are disjoint.

    Notes
    -----
    W. Hamilton, R. Ying, J. Leskovec, "Inductive Representation Learning on Large Graphs", NeurIPS
    2017, section 3.1. Order of nodes, duplicates among seeds and the treatment of time are PyG's.
    """

    def __init__(
        self,
        graph: Graph,
        num_neighbors: NumNeighbors,
        *,
        replace: bool = False,
        subgraph_type: SubgraphType = "directional",
        weighted: bool | None = None,
        temporal: bool | None = None,
        temporal_strategy: Literal["uniform", "last"] = "uniform",
        disjoint: bool = False,
        return_edge_ids: bool = True,
        seed: int = 0,
        threads: int | None = None,
    ) -> None:
        if not isinstance(graph, Graph):
            raise TypeError(f"graph must be a pytorch_direct.Graph, not {type(graph).__name__}")
        _one_of("subgraph_type", subgraph_type, ("directional", "bidirectional", "induced"))
        _one_of("temporal_strategy", temporal_strategy, ("uniform", "last"))
        weighted = _as_graph_has(weighted, graph.has_weights, "weighted", "weights")
        temporal = _as_graph_has(temporal, graph.has_times, "temporal", "times")
        if weighted and temporal:
            raise UnsupportedError(
                "weights and times together are not supported: give weighted=False or "
                "temporal=False"
            )
        disjoint = bool(disjoint) or temporal
        if disjoint and subgraph_type == "induced":
            raise UnsupportedError("induced subgraphs cannot be disjoint: use 'directional'")
        seed = operator.index(seed)
        if not 0 <= seed < 2**64:
            raise ValueError(f"seed must be in [0, 2^64), not {seed}")
        if threads is not None and operator.index(threads) < 1:
            raise ValueError(f"threads must be at least 1, not {threads}")
        self.graph = graph
        self._threads = threads
        self._plan = Plan(
            graph,
            fanouts_of(num_neighbors, graph.edge_types),
            bool(replace),
            temporal and temporal_strategy == "last",
            disjoint,
            weighted,
            temporal,
            subgraph_type,
            bool(return_edge_ids),
            seed,
        )

    @property
    def is_disjoint(self) -> bool:
        """Whether each seed has a subgraph of its own."""
        return self._plan.disjoint

    @property
    def is_temporal(self) -> bool:
        """Whether times are respected."""
        return self._plan.temporal

    def sample(
        self,
        seeds: Seeds,
        *,
        batch: int = 0,
        seed_time: Seeds | None = None,
        device: torch.device | str | int | None = None,
        input_id: torch.Tensor | None = None,
    ) -> SamplerOutput | HeteroSamplerOutput:
        """Sample around nodes: ``start(...)`` and ``result()`` in one.

        Parameters
        ----------
        seeds : torch.Tensor, or dict by node type of them
            Ids, int32 or int64, duplicates allowed. The dict is for heterogeneous graphs.
        batch : int
            Number of the batch, in [0, 2^64): other numbers give other samples.
        seed_time : torch.Tensor, or dict by node type; optional
            Integers, one a seed. None: the times of the seeds themselves.
        device : torch.device, str or int, optional
            Where to sample a unified graph. None: where the seeds are.
        input_id : torch.Tensor, optional
            Passed through into ``metadata``.

        Returns
        -------
        SamplerOutput or HeteroSamplerOutput
            On the device that sampled. Tensors may be views of larger buffers.

        Raises
        ------
        IndexError
            A seed is out of range.
        TypeError, ValueError
            An argument has another type or shape than it must have, or times are missing.
        UnsupportedError
            The graph's arrays cannot be read from `device`.
        """
        return self.start(
            seeds, batch=batch, seed_time=seed_time, device=device, input_id=input_id
        ).result()

    def start(
        self,
        seeds: Seeds,
        *,
        batch: int = 0,
        seed_time: Seeds | None = None,
        device: torch.device | str | int | None = None,
        input_id: torch.Tensor | None = None,
    ) -> PendingSample:
        """Begin to sample; see :meth:`sample`.

        On a GPU the kernels are enqueued on its current stream and nothing is waited for, unless a
        hop may take more than 2^22 edges or takes all (-1). The CPU samples at once.

        Returns
        -------
        PendingSample
            Its ``result()`` waits.
        """
        return self._start(seeds, batch, seed_time, device, (input_id, seed_time))

    def sample_links(
        self,
        edge_label_index: torch.Tensor | tuple[EdgeType, torch.Tensor],
        *,
        edge_label: torch.Tensor | None = None,
        edge_label_time: torch.Tensor | None = None,
        neg_sampling: NegativeSampling | None = None,
        batch: int = 0,
        device: torch.device | str | int | None = None,
        input_id: torch.Tensor | None = None,
    ) -> SamplerOutput | HeteroSamplerOutput:
        """Sample around both ends of edges, and of edges that are drawn as negatives.

        Parameters
        ----------
        edge_label_index : torch.Tensor, or (edge type, torch.Tensor)
            Ids of shape ``[2, links]``; with an edge type for heterogeneous graphs.
        edge_label : torch.Tensor, optional
            Labels of the links; None with binary negatives: 1.0. Negatives have label 0.
        edge_label_time : torch.Tensor, optional
            Integers, one a link; needed if the sampler is temporal.
        neg_sampling : NegativeSampling, optional
            How negatives are drawn.
        batch, device, input_id
            As in :meth:`sample`.

        Returns
        -------
        SamplerOutput or HeteroSamplerOutput
            ``metadata`` says where the ends of links are in ``node``.

        Raises
        ------
        IndexError, TypeError, ValueError, UnsupportedError
            As in :meth:`sample`; labels given with triplets.
        """
        return self.start_links(
            edge_label_index,
            edge_label=edge_label,
            edge_label_time=edge_label_time,
            neg_sampling=neg_sampling,
            batch=batch,
            device=device,
            input_id=input_id,
        ).result()

    def start_links(
        self,
        edge_label_index: torch.Tensor | tuple[EdgeType, torch.Tensor],
        *,
        edge_label: torch.Tensor | None = None,
        edge_label_time: torch.Tensor | None = None,
        neg_sampling: NegativeSampling | None = None,
        batch: int = 0,
        device: torch.device | str | int | None = None,
        input_id: torch.Tensor | None = None,
    ) -> PendingSample:
        """Begin to sample around links; see :meth:`sample_links` and :meth:`start`."""
        links = links_as_seeds(
            self.graph,
            edge_label_index,
            edge_label,
            edge_label_time,
            neg_sampling,
            seed=self._plan.seed,
            batch=batch,
            disjoint=self._plan.disjoint,
            temporal=self._plan.temporal,
            input_id=input_id,
        )
        if device is None and links.device.type == "cuda":
            device = links.device
        return self._start(links.seeds, batch, links.times, device, links.metadata, links)

    def _start(
        self,
        seeds: Seeds,
        batch: int,
        seed_time: Seeds | None,
        device: torch.device | str | int | None,
        metadata: tuple[Any, ...],
        links: Links | None = None,
    ) -> PendingSample:
        batch = operator.index(batch)
        if not 0 <= batch < 2**64:
            raise ValueError(f"batch must be in [0, 2^64), not {batch}")
        plan, graph = self._plan, self.graph
        given = by_type(graph, seeds, "seeds")
        where = device_for(graph, device, given)
        ids = [ids_of(graph, kind, given.get(kind), where) for kind in graph.node_types]
        times = times_of(graph, ids, seed_time, where) if plan.temporal else None
        if plan.disjoint:
            check_keys(graph, sum(part.numel() for part in ids))
        link_of = None
        if links is not None:
            link_of = None if links.link_of is None else sent(links.link_of, where)
            metadata = (metadata[0], *(None if m is None else sent(m, where) for m in metadata[1:]))
        if where.type == "cpu":
            threads = self._threads or torch.get_num_threads()
            done = sample_on_cpu(plan, ids, times, batch, threads)
            return PendingSample(plan, metadata, link_of, done)
        with torch.cuda.device(where):
            kernels = CudaKernels(where)
            work = DeviceBatch(plan, ids, times, batch, kernels)
            work.run()
            counters = torch.empty(work.counters.shape, dtype=torch.int64, pin_memory=True)
            counters.copy_(work.counters, non_blocking=True)
            for registration in work.registrations:
                registration.record_use(where.index, kernels.stream)
            event = torch.cuda.Event()  # type: ignore[no-untyped-call]
            event.record()
            running = Running(work, counters, event, torch.cuda.current_stream(where))
        return PendingSample(plan, metadata, link_of, running)


def _one_of(what: str, value: object, known: tuple[str, ...]) -> None:
    if value not in known:
        raise ValueError(f"{what} must be one of {list(known)}, not {value!r}")


def _as_graph_has(asked: bool | None, has: bool, what: str, of: str) -> bool:
    if asked is None:
        return has
    if asked and not has:
        raise ValueError(f"{what}=True, but the graph has no {of}: give them when making the Graph")
    return bool(asked)
