# SPDX-License-Identifier: Apache-2.0
"""Loaders of PyG over sampled batches: its NeighborLoader where it can sample, else the same loader
around a sampler in plain PyTorch.
"""

from __future__ import annotations

import importlib.util

import torch
from torch_geometric.loader import NeighborLoader, NodeLoader
from torch_geometric.sampler import BaseSampler, HeteroSamplerOutput, SamplerOutput

CAN_SAMPLE = any(importlib.util.find_spec(name) for name in ("pyg_lib", "torch_sparse"))


class Frontier:
    """Nodes of one type in the order in which they were met."""

    def __init__(self):
        self.ids = []
        self.number = {}
        self.new = []

    def add(self, node):
        if node not in self.number:
            self.number[node] = len(self.ids)
            self.ids.append(node)
            self.new.append(node)
        return self.number[node]


class Sampler(BaseSampler):
    """Up to so many in-neighbours of every node that the last hop met, relation by relation."""

    edge_permutation = None

    def __init__(self, edges, fan_out, only):
        self.edges, self.fan_out, self.only = edges, fan_out, only
        self.generator = torch.Generator().manual_seed(0)

    def sample_from_nodes(self, inputs, **kwargs):
        seeds = inputs.input_type or self.only
        met = {name: Frontier() for r in self.edges for name in r[::2]}
        for node in inputs.node.tolist():
            met[seeds].add(node)
        found = {r: ([], [], []) for r in self.edges}
        for count in self.fan_out:
            front = {name: each.new for name, each in met.items()}
            for each in met.values():
                each.new = []
            for r, index in self.edges.items():
                for node in front[r[2]]:
                    into = torch.nonzero(index[1] == node)[:, 0]
                    order = torch.randperm(len(into), generator=self.generator)[:count]
                    for edge in into[order].tolist():
                        row = met[r[0]].add(int(index[0, edge]))
                        parts = row, met[r[2]].number[node], edge
                        for part, value in zip(found[r], parts, strict=True):
                            part.append(value)
        nodes = {name: torch.tensor(each.ids, dtype=torch.long) for name, each in met.items()}
        parts = [
            {r: torch.tensor(part[i], dtype=torch.long) for r, part in found.items()}
            for i in range(3)
        ]
        about = (inputs.input_id, inputs.time)
        if inputs.input_type:
            return HeteroSamplerOutput(nodes, *parts, metadata=about)
        ((relation, _),) = found.items()
        return SamplerOutput(nodes[seeds], *(part[relation] for part in parts), metadata=about)

    def sample_from_edges(self, inputs, **kwargs):
        raise NotImplementedError("these tests start from nodes")


def loader(data, fan_out, batch_size, input_nodes=None, **options):
    """Batches of sampled neighbourhoods, as ``NeighborLoader`` gives them."""
    if CAN_SAMPLE:
        return NeighborLoader(
            data, fan_out, input_nodes=input_nodes, batch_size=batch_size, **options
        )
    edges = data.edge_index_dict if input_nodes else {("n", "to", "n"): data.edge_index}
    return NodeLoader(
        data, Sampler(edges, fan_out, "n"), input_nodes, batch_size=batch_size, **options
    )
