# SPDX-License-Identifier: Apache-2.0
"""A batch on a GPU: buffers with room for the most there can be, sizes read once at the end.

The same steps run on the host for the tests, by threads that are played one after another.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import torch

from pytorch_direct import _native
from pytorch_direct.graph.device import sent
from pytorch_direct.graph.relation import Address
from pytorch_direct.sampling.plan import Counts, Plan, Sampled, Step

__all__ = ["DeviceBatch", "EmulatedKernels", "Kernels"]

#: Bounds above this many edges are replaced by the true number, for which the host waits.
MOST_UNREAD = 1 << 22

Numbers = tuple[int, ...]


class Kernels(Protocol):
    """What carries the steps out."""

    device: torch.device

    def insert(self, table: Numbers, numbers: Numbers) -> None:
        """Give nodes of a list their places as numbers."""

    def hop(
        self,
        take: bool,
        relation: _native.Relation,
        rule: _native.SamplingRule,
        parts: tuple[Numbers, Numbers, Numbers, Numbers],
    ) -> None:
        """Count the edges of a hop along one edge type, or take them."""


@dataclass
class EmulatedKernels:
    """The GPU's kernels with their threads played by the host, in an order drawn from a seed."""

    threads: int = 64
    order: int = 0
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))

    def insert(self, table: Numbers, numbers: Numbers) -> None:
        """See `Kernels`."""
        _native.insert_seeds_emulated(table, numbers, self.threads, self.order)

    def hop(
        self,
        take: bool,
        relation: _native.Relation,
        rule: _native.SamplingRule,
        parts: tuple[Numbers, Numbers, Numbers, Numbers],
    ) -> None:
        """See `Kernels`."""
        _native.hop_emulated(take, relation, rule, *parts, self.threads, self.order)


class _Nodes:
    """The list of nodes of one type and the table over it."""

    def __init__(self, size: int, limit: int, disjoint: bool, device: torch.device) -> None:
        self.size = size  #: Upper bound of nodes so far.
        self.frontier = size  #: Upper bound of the nodes that came in the last hop.
        self.limit = limit  #: More than the graph's nodes and the seeds there cannot be.
        self._distinct = limit - size  #: Nodes of the type.
        self._disjoint = disjoint
        self._device = device
        self.capacity = -1

    def allocate(self, capacity: int) -> None:
        self.capacity = capacity
        self.nodes = torch.empty(capacity, dtype=torch.int64, device=self._device)
        self.batch = torch.empty_like(self.nodes) if self._disjoint else None
        keys = capacity if self._disjoint else min(capacity, self._distinct)
        self.slots = 1 << max(6, (2 * keys - 1).bit_length())
        self.table = torch.full((2, self.slots), -1, dtype=torch.int64, device=self._device)

    def bound(self, size: int) -> int:
        return size if self._disjoint else min(size, self.limit)


class _Edges:
    """The lists of edges of one type."""

    def __init__(self, capacity: int, device: torch.device) -> None:
        self.size = 0
        self._device = device
        self.lists = [self._empty(capacity) for _ in range(3)]

    def _empty(self, capacity: int) -> torch.Tensor:
        return torch.empty(capacity, dtype=torch.int64, device=self._device)

    def reserve(self, capacity: int) -> None:
        old = self.lists[0].shape[0]
        if capacity <= old:
            return
        grown = max(capacity, old + old // 2)
        for i, before in enumerate(self.lists):
            self.lists[i] = self._empty(grown)
            self.lists[i][: self.size] = before[: self.size]


class DeviceBatch:
    """One batch under way.

    Parameters
    ----------
    plan : Plan
        What to sample.
    seeds : list of torch.Tensor
        int64, on the device, by number of type.
    times : torch.Tensor or None
        int64, on the device: the times of all seeds, in order.
    batch : int
        Number of the batch.
    kernels : Kernels
        What carries it out.
    """

    def __init__(
        self,
        plan: Plan,
        seeds: list[torch.Tensor],
        times: torch.Tensor | None,
        batch: int,
        kernels: Kernels,
    ) -> None:
        self._plan, self._times, self._batch, self._kernels = plan, times, batch, kernels
        self._device = kernels.device
        graph = plan.graph
        kinds, relations, hops = len(graph.node_types), len(graph.edge_types), plan.hops
        sizes = [graph.num_nodes[name] for name in graph.node_types]
        self._strides = sizes
        self._address = Address(self._device)
        self._relations = plan.relations(self._address)
        self.registrations = self._address.registrations
        #: Nodes of each type: 0, the seeds, after each hop; edges of each type: 0, after each hop;
        #: the complement of the first bad seed.
        host = torch.zeros(kinds * (hops + 2) + relations * (hops + 1) + 1, dtype=torch.int64)
        for kind, ids in enumerate(seeds):
            host[kind * (hops + 2) + 1] = ids.numel()
        self.counters = sent(host, self._device)
        split = kinds * (hops + 2)
        self._node_counts = self.counters[:split].view(kinds, hops + 2)
        self._edge_counts = self.counters[split:-1].view(relations, hops + 1)
        self._nodes = [
            _Nodes(ids.numel(), ids.numel() + size, plan.disjoint, self._device)
            for ids, size in zip(seeds, sizes, strict=True)
        ]
        nodes, edges = self._first_capacities()
        for state, capacity, ids in zip(self._nodes, nodes, seeds, strict=True):
            state.allocate(capacity)
            state.nodes[: ids.numel()] = ids
        self._edges = [_Edges(capacity, self._device) for capacity in edges]
        first = 0
        for kind, ids in enumerate(seeds):
            if ids.numel():
                self._insert(kind, 1, ids.numel(), first, self._at(self.counters, -1))
            first += ids.numel()

    def run(self) -> None:
        """Enqueue all hops."""
        for hop in range(self._plan.hops):
            self._node_counts[:, hop + 2] = self._node_counts[:, hop + 1]
            self._edge_counts[:, hop + 1] = self._edge_counts[:, hop]
            arrived = [0] * len(self._nodes)
            for step in self._plan.steps(hop):
                arrived[step.source] += self._take(step)
            for kind, state in enumerate(self._nodes):
                state.frontier = state.bound(arrived[kind])

    def finish(self, host: torch.Tensor) -> Sampled:
        """Cut the buffers to the sizes in `host`, a copy of the counters.

        Raises
        ------
        IndexError
            A seed is out of range.
        """
        numbers = host.tolist()
        if numbers[-1] != 0:
            raise IndexError(f"seed {~numbers[-1]} of the batch is out of range")
        kinds, hops = len(self._nodes), self._plan.hops
        split = kinds * (hops + 2)
        counts = Counts(
            [numbers[i * (hops + 2) + 1 : (i + 1) * (hops + 2)] for i in range(kinds)],
            [
                numbers[split + i * (hops + 1) : split + (i + 1) * (hops + 1)]
                for i in range(len(self._edges))
            ],
        )
        nodes = [n.nodes[: c[-1]] for n, c in zip(self._nodes, counts.nodes, strict=True)]
        lists = [
            [part[: c[-1]] for part in e.lists]
            for e, c in zip(self._edges, counts.edges, strict=True)
        ]
        of = [
            n.batch[: c[-1]]
            for n, c in zip(self._nodes, counts.nodes, strict=True)
            if n.batch is not None
        ]
        return Sampled(
            nodes,
            of if self._plan.disjoint else None,
            [row for row, _, _ in lists],
            [col for _, col, _ in lists],
            [edge for _, _, edge in lists],
            counts,
        )

    def _first_capacities(self) -> tuple[list[int], list[int]]:
        """Return room for the whole batch where that is known and modest, else for the seeds."""
        nodes = [state.size for state in self._nodes]
        frontier = list(nodes)
        edges = [0] * len(self._relations)
        for hop in range(self._plan.hops):
            arrived = [0] * len(nodes)
            for step in self._plan.steps(hop):
                most = self._bound(step, frontier[step.destination])
                if most is None or most > MOST_UNREAD:
                    return [state.size for state in self._nodes], [0] * len(edges)
                arrived[step.source] += most
                edges[step.relation] += most
            for kind, state in enumerate(self._nodes):
                frontier[kind] = state.bound(arrived[kind])
                nodes[kind] = state.bound(nodes[kind] + arrived[kind])
        return nodes, edges

    def _bound(self, step: Step, frontier: int) -> int | None:
        """Return the most edges that a step can take; None where only the graph knows."""
        return frontier * step.fanout if step.fanout >= 0 else None

    def _take(self, step: Step) -> int:
        """Enqueue one step and return the most edges that it takes."""
        frontier = self._nodes[step.destination]
        if frontier.frontier == 0:
            return 0
        relation, rule = self._relations[step.relation], self._plan.rule(step, self._batch)
        near = torch.empty(3 * frontier.frontier + 1, dtype=torch.int64, device=self._device)
        view = (
            frontier.nodes.data_ptr(),
            0 if frontier.batch is None else frontier.batch.data_ptr(),
            0 if self._times is None else self._times.data_ptr(),
            self._at(self._node_counts, step.destination, step.hop),
            frontier.frontier,
        )
        begins = self._at(near, 0)
        populations = self._at(near, frontier.frontier)
        offsets = self._at(near, 2 * frontier.frontier)
        nothing = (0, 0, 0, 0, 0)
        table = (0, 0, 0, 0, 0, 0, 0)
        counted = (begins, populations, offsets, 0, 0, 0)
        self._kernels.hop(False, relation, rule, (view, table, nothing, counted))
        most = self._bound(step, frontier.frontier)
        if most is None or most > MOST_UNREAD:
            most = int(near[-1])
        if most == 0:
            return 0
        self._reserve(step, most)
        edges = self._edges[step.relation]
        scratch = torch.empty(2 * most + 1, dtype=torch.int64, device=self._device)
        slots = None
        if step.fanout > _native.many_choices and not self._plan.replace:
            room = _native.slots_a_choice * most
            slots = torch.full((room,), -1, dtype=torch.int64, device=self._device)
        row, col, ids = (part.data_ptr() for part in edges.lists)
        ends = self._at(self._edge_counts, step.relation, step.hop)
        self._kernels.hop(
            True,
            relation,
            rule,
            (
                # The list of the frontier may have moved to a larger buffer.
                (
                    frontier.nodes.data_ptr(),
                    0 if frontier.batch is None else frontier.batch.data_ptr(),
                    *view[2:],
                ),
                self._table(step.source, step.hop + 2),
                (row, col, ids, ends, most),
                (
                    begins,
                    populations,
                    offsets,
                    self._at(scratch, 0),
                    self._at(scratch, most),
                    0 if slots is None else slots.data_ptr(),
                ),
            ),
        )
        edges.size += most
        sources = self._nodes[step.source]
        sources.size = sources.bound(sources.size + most)
        return most

    def _reserve(self, step: Step, more: int) -> None:
        self._edges[step.relation].reserve(self._edges[step.relation].size + more)
        state = self._nodes[step.source]
        needed = state.bound(state.size + more)
        if needed <= state.capacity:
            return
        before, before_batch, used = state.nodes, state.batch, state.size
        state.allocate(state.bound(max(needed, state.capacity + state.capacity // 2)))
        state.nodes[:used] = before[:used]
        if state.batch is not None and before_batch is not None:
            state.batch[:used] = before_batch[:used]
        self._insert(step.source, step.hop + 2, used, -1, 0)

    def _insert(self, kind: int, column: int, count: int, first_batch: int, bad: int) -> None:
        numbers = (count, 0, first_batch, self._strides[kind], bad)
        self._kernels.insert(self._table(kind, column), numbers)

    def _table(self, kind: int, column: int) -> Numbers:
        state = self._nodes[kind]
        return (
            state.nodes.data_ptr(),
            0 if state.batch is None else state.batch.data_ptr(),
            self._at(state.table, 0),
            self._at(state.table, 1),
            state.slots,
            self._strides[kind],
            self._at(self._node_counts, kind, column),
        )

    @staticmethod
    def _at(tensor: torch.Tensor, *index: int) -> int:
        """Return the address of an element, or of a row."""
        offset = sum(
            (i if i >= 0 else tensor.shape[d] + i) * tensor.stride(d) for d, i in enumerate(index)
        )
        return int(tensor.data_ptr() + offset * tensor.element_size())
