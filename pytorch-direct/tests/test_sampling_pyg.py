# SPDX-License-Identifier: Apache-2.0
"""Against PyG's own sampler where it is installed: equal with full fan-out, of one law below it.

PyG sorts edges by destination with a sort that is not stable, so edges are given to both in order.
"""

from __future__ import annotations

import warnings

import pytest
import torch
from scipy import stats

from pytorch_direct import Graph, NeighborSampler, rmat

data_module = pytest.importorskip("torch_geometric.data")
pytest.importorskip("torch_sparse")


def in_order(edges: torch.Tensor) -> torch.Tensor:
    return edges[:, torch.argsort(edges[1], stable=True)]


def pyg_sample(data, fanouts, seeds, **options):
    from torch_geometric.sampler import NeighborSampler as PygSampler
    from torch_geometric.sampler import NodeSamplerInput

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sampler = PygSampler(data, fanouts, is_sorted=True, **options)
        kind, ids = seeds if isinstance(seeds, tuple) else (None, seeds)
        return sampler.sample_from_nodes(NodeSamplerInput(None, ids, input_type=kind))


@pytest.mark.parametrize("hops", [1, 2, 3])
@pytest.mark.parametrize("seeds", [[5, 1, 77, 200, 13], [5, 1, 5, 5, 1]])
def test_full_fanout_is_equal(hops, seeds):
    data = data_module.Data(edge_index=in_order(rmat(300, 1500, seed=3)), num_nodes=300)
    theirs = pyg_sample(data, [-1] * hops, torch.tensor(seeds))
    ours = NeighborSampler(Graph.from_pyg(data), [-1] * hops).sample(torch.tensor(seeds))
    for part in ("node", "row", "col", "edge"):
        assert torch.equal(getattr(ours, part), getattr(theirs, part))


def test_full_fanout_of_types_is_equal():
    data = data_module.HeteroData()
    data["u"].num_nodes, data["i"].num_nodes = 40, 60
    generator = torch.Generator().manual_seed(2)
    for kind, nodes in ((("u", "likes", "i"), (40, 60)), (("i", "liked", "u"), (60, 40))):
        ends = [torch.randint(0, n, (150,), generator=generator) for n in nodes]
        data[kind].edge_index = in_order(torch.stack(ends))
    seeds = torch.tensor([3, 30, 8])
    theirs = pyg_sample(data, [-1, -1], ("u", seeds))
    ours = NeighborSampler(Graph.from_pyg(data), [-1, -1]).sample({"u": seeds})
    for kind in data.node_types:
        assert torch.equal(ours.node[kind], theirs.node[kind])
    for kind in data.edge_types:
        for part in ("row", "col", "edge"):
            assert torch.equal(getattr(ours, part)[kind], getattr(theirs, part)[kind])


def test_induced_subgraph_is_equal():
    data = data_module.Data(edge_index=in_order(rmat(300, 1500, seed=3)), num_nodes=300)
    seeds = torch.tensor([5, 1, 77])
    theirs = pyg_sample(data, [-1, -1], seeds, subgraph_type="induced")
    ours = NeighborSampler(Graph.from_pyg(data), [-1, -1], subgraph_type="induced").sample(seeds)
    for part in ("node", "row", "col", "edge"):
        assert torch.equal(getattr(ours, part), getattr(theirs, part))


def test_bidirectional_subgraph_has_the_same_edges():
    data = data_module.Data(edge_index=in_order(rmat(300, 1500, seed=3)), num_nodes=300)
    seeds = torch.tensor([5, 1, 77])
    theirs = pyg_sample(data, [-1, -1], seeds, subgraph_type="bidirectional")
    ours = NeighborSampler(Graph.from_pyg(data), [-1, -1], subgraph_type="bidirectional").sample(
        seeds
    )
    assert torch.equal(ours.node, theirs.node)
    both = [sorted(zip(out.row.tolist(), out.col.tolist(), strict=True)) for out in (ours, theirs)]
    assert both[0] == both[1]


def test_numbers_of_samples_are_of_one_law():
    data = data_module.Data(edge_index=in_order(rmat(2000, 30_000, seed=3)), num_nodes=2000)
    graph = Graph.from_pyg(data)
    ours, theirs = [], []
    for batch in range(150):
        seeds = torch.arange(20) * 97 % 2000
        ours.append(NeighborSampler(graph, [4, 3]).sample(seeds, batch=batch).node.numel())
        theirs.append(pyg_sample(data, [4, 3], seeds).node.numel())
    assert stats.ks_2samp(ours, theirs).pvalue > 1e-6
