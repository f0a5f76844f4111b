# SPDX-License-Identifier: Apache-2.0
"""``NeighborSampler``: subgraphs around seeds, hop by hop, on the CPU or on a GPU."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Mapping
from typing import Any, Literal

import torch

from datapath_core.errors import UnsupportedError
from pytorch_direct.graph.device import as_device
from pytorch_direct.graph.graph import NODE, EdgeType, Graph
from pytorch_direct.sampling.cpu import sample_on_cpu
from pytorch_direct.sampling.cuda import CudaKernels
from pytorch_direct.sampling.device import DeviceBatch
from pytorch_direct.sampling.fanouts import NumNeighbors, fanouts_of
from pytorch_direct.sampling.negative import NegativeSampling
from pytorch_direct.sampling.output import HeteroSamplerOutput, SamplerOutput
from pytorch_direct.sampling.plan import Plan, Sampled
from pytorch_direct.sampling.subgraphs import bidirectional, induced

__all__ = ["NeighborSampler", "PendingSample"]

SubgraphType = Literal["directional", "bidirectional", "induced"]
Seeds = torch.Tensor | Mapping[str, torch.Tensor]


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
        the graph has times. Subgraphs are disjoint then.
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
        self.subgraph_type = subgraph_type
        self._threads = threads
        self._return_edge_ids = return_edge_ids
        self._plan = Plan(
            graph,
            fanouts_of(num_neighbors, graph.edge_types),
            bool(replace),
            temporal and temporal_strategy == "last",
            disjoint,
            weighted,
            temporal,
            bool(return_edge_ids) and subgraph_type != "induced",
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
        hop may take more than 2^24 edges or takes all (-1). The CPU samples at once.

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
        from pytorch_direct.sampling.links import links_as_seeds

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
        if device is None:
            device = links.device
        pending = self._start(links.seeds, batch, links.times, device, links.metadata)
        pending.batch_modulus = links.count if self._plan.disjoint else 0
        return pending

    def _start(
        self,
        seeds: Seeds,
        batch: int,
        seed_time: Seeds | None,
        device: torch.device | str | int | None,
        metadata: tuple[Any, ...],
    ) -> PendingSample:
        batch = operator.index(batch)
        if not 0 <= batch < 2**64:
            raise ValueError(f"batch must be in [0, 2^64), not {batch}")
        given = self._by_type(seeds, "seeds")
        where = self._device(device, given)
        ids = [self._seeds_of(kind, given.get(kind), where) for kind in self.graph.node_types]
        times = self._times(ids, seed_time, where) if self._plan.temporal else None
        if self._plan.disjoint:
            self._check_keys(sum(part.numel() for part in ids))
        if where.type == "cpu":
            threads = self._threads or torch.get_num_threads()
            done = sample_on_cpu(self._plan, ids, times, batch, threads)
            return PendingSample(self, metadata, done=done)
        with torch.cuda.device(where):
            kernels = CudaKernels(where)
            work = DeviceBatch(self._plan, ids, times, batch, kernels)
            work.run()
            counters = torch.empty(work.counters.shape, dtype=torch.int64, pin_memory=True)
            counters.copy_(work.counters, non_blocking=True)
            for registration in work.registrations:
                registration.record_use(where.index, kernels.stream)
            event = torch.cuda.Event()  # type: ignore[no-untyped-call]
            event.record()
        return PendingSample(self, metadata, work=work, counters=counters, event=event)

    def _by_type(self, value: Seeds, what: str) -> dict[str, torch.Tensor]:
        if isinstance(value, Mapping) != self.graph.is_hetero:
            raise TypeError(
                f"{what} of a {'heterogeneous' if self.graph.is_hetero else 'homogeneous'} graph "
                f"must be {'a dict by node type' if self.graph.is_hetero else 'a tensor'}, not "
                f"{type(value).__name__}"
            )
        if not isinstance(value, Mapping):
            return {NODE: value}
        for kind in value:
            if kind not in self.graph.node_types:
                raise ValueError(
                    f"{what}: there is no node type {kind!r}; there are "
                    f"{list(self.graph.node_types)}"
                )
        # By the graph's order, which numbers disjoint subgraphs.
        return {kind: value[kind] for kind in self.graph.node_types if kind in value}

    def _device(
        self, device: torch.device | str | int | None, given: dict[str, torch.Tensor]
    ) -> torch.device:
        graph = self.graph
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

    def _seeds_of(self, kind: str, ids: torch.Tensor | None, where: torch.device) -> torch.Tensor:
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
        nodes = self.graph.num_nodes[kind]
        if ids.device.type == "cpu" and ids.numel():
            low, high = (int(bound) for bound in torch.aminmax(ids))
            if low < 0 or high >= nodes:
                bad = low if low < 0 else high
                position = int((ids == bad).nonzero()[0])
                raise IndexError(
                    f"seeds: node {bad} at position {position} of {ids.numel()} is not in "
                    f"[0, {nodes})"
                )
        elif where.type == "cpu" and ids.numel():
            return self._seeds_of(kind, ids.cpu(), where)
        return ids.to(where, torch.int64).contiguous()

    def _times(
        self, ids: list[torch.Tensor], seed_time: Seeds | None, where: torch.device
    ) -> torch.Tensor:
        given = {} if seed_time is None else self._by_type(seed_time, "seed_time")
        parts = []
        for kind, part in zip(self.graph.node_types, ids, strict=True):
            time = given.get(kind)
            if time is None:
                own = self.graph.node_time.get(kind)
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
            parts.append(time.to(where, torch.int64))
        return torch.cat(parts) if parts else torch.empty(0, dtype=torch.int64, device=where)

    def _check_keys(self, seeds: int) -> None:
        most = max(self.graph.num_nodes.values(), default=0)
        if seeds * most >= 2**63:
            raise ValueError(
                f"{seeds} disjoint subgraphs of up to {most} nodes are more than 2^63 nodes: use "
                "smaller batches"
            )

    def _output(
        self, sampled: Sampled, metadata: tuple[Any, ...], modulus: int
    ) -> SamplerOutput | HeteroSamplerOutput:
        node_types, edge_types = self.graph.node_types, self.graph.edge_types
        nodes = [[c[0]] + [b - a for a, b in _pairs(c)] for c in sampled.counts.nodes]
        edges = [[b - a for a, b in _pairs(c)] for c in sampled.counts.edges]
        of = sampled.batch
        if of is not None and modulus:
            of = [part % modulus for part in of]
        out: SamplerOutput | HeteroSamplerOutput
        if self.graph.is_hetero:
            out = HeteroSamplerOutput(
                dict(zip(node_types, sampled.node, strict=True)),
                dict(zip(edge_types, sampled.row, strict=True)),
                dict(zip(edge_types, sampled.col, strict=True)),
                dict(zip(edge_types, sampled.edge, strict=True)) if self._return_edge_ids else None,
                None if of is None else dict(zip(node_types, of, strict=True)),
                dict(zip(node_types, nodes, strict=True)),
                dict(zip(edge_types, edges, strict=True)),
                metadata=metadata,
            )
        else:
            out = SamplerOutput(
                sampled.node[0],
                sampled.row[0],
                sampled.col[0],
                sampled.edge[0] if self._return_edge_ids else None,
                None if of is None else of[0],
                nodes[0],
                edges[0],
                metadata=metadata,
            )
        if self.subgraph_type == "bidirectional":
            return bidirectional(out)
        if self.subgraph_type == "induced":
            return induced(out, self.graph, self._return_edge_ids)
        return out


class PendingSample:
    """A batch that may still be under way; made by ``NeighborSampler.start``."""

    def __init__(
        self,
        sampler: NeighborSampler,
        metadata: tuple[Any, ...],
        *,
        done: Sampled | None = None,
        work: DeviceBatch | None = None,
        counters: torch.Tensor | None = None,
        event: torch.cuda.Event | None = None,
    ) -> None:
        self._sampler, self._metadata = sampler, metadata
        self._done, self._work, self._counters, self._event = done, work, counters, event
        self.batch_modulus = 0  #: Links share the subgraph number of their two ends.

    def done(self) -> bool:
        """Whether ``result()`` returns without waiting."""
        return self._event is None or bool(self._event.query())  # type: ignore[no-untyped-call]

    def result(self) -> SamplerOutput | HeteroSamplerOutput:
        """Wait for the batch and return it; its tensors belong to the stream that sampled.

        Raises
        ------
        IndexError
            A seed is out of range.
        """
        if self._done is None:
            assert self._work is not None
            assert self._counters is not None
            assert self._event is not None
            self._event.synchronize()
            self._done = self._work.finish(self._counters)
            self._work = None
        return self._sampler._output(self._done, self._metadata, self.batch_modulus)


def _pairs(numbers: list[int]) -> list[tuple[int, int]]:
    return list(itertools.pairwise(numbers))


def _one_of(what: str, value: object, known: tuple[str, ...]) -> None:
    if value not in known:
        raise ValueError(f"{what} must be one of {list(known)}, not {value!r}")


def _as_graph_has(asked: bool | None, has: bool, what: str, of: str) -> bool:
    if asked is None:
        return has
    if asked and not has:
        raise ValueError(f"{what}=True, but the graph has no {of}: give them when making the Graph")
    return bool(asked)
