# SPDX-License-Identifier: Apache-2.0
"""Made-up power-law graphs go through features, gathers and compiled layers like real ones."""

from __future__ import annotations

import pytest
import relational_gnn
import torch
from neighbor_sampling import Block
from packages import needed

pytorch_direct = needed("pytorch_direct")
hector = needed("hector")

NODES, EDGES, RELATIONS, WIDTH = 5_000, 60_000, 7, 24


def _block() -> Block:
    edge_index = pytorch_direct.rmat(NODES, EDGES, seed=11)
    edge_type = ((edge_index[0] * 31 + edge_index[1]) % RELATIONS).sort()
    return Block(edge_index[:, edge_type.indices], edge_type.values, NODES, NODES)


def test_the_graph_has_hubs() -> None:
    block = _block()
    assert int(block.edge_index.min()) >= 0
    assert int(block.edge_index.max()) < NODES
    in_degree = torch.bincount(block.edge_index[1], minlength=NODES).sort(descending=True).values
    # Uniform destinations would give the first hundredth of the nodes about 2 % of the edges.
    assert int(in_degree[: NODES // 100].sum()) > 0.15 * EDGES
    assert int((in_degree == 0).sum()) > NODES // 20


@pytest.mark.parametrize("seed", [0, 2**63])
def test_features_come_back_from_unified_memory(seed: int) -> None:
    features = pytorch_direct.rmat_features(NODES, WIDTH, seed=seed)
    assert torch.equal(features, pytorch_direct.rmat_features(NODES, WIDTH, seed=seed))
    ids = _block().edge_index[0]
    unified = pytorch_direct.unified(features.clone())
    assert torch.equal(pytorch_direct.gather(unified, ids), features.index_select(0, ids))


def test_compiled_layers_equal_plain_ones_around_hubs() -> None:
    block = _block()
    x = pytorch_direct.rmat_features(NODES, WIDTH, seed=3)
    results = {}
    for mode in ("plain", "datapath"):
        torch.manual_seed(0)
        model = relational_gnn.RelationalGNN(WIDTH, 16, 5, RELATIONS, mode=mode)
        out = model(x, (block, block))
        out.square().mean().backward()
        named = sorted((n.replace("conv.", ""), p.grad) for n, p in model.named_parameters())
        results[mode] = [("out", out.detach()), *named]
    assert len(results["plain"]) == 7
    for (name, plain), (same_name, compiled) in zip(*results.values(), strict=True):
        assert name == same_name
        torch.testing.assert_close(compiled, plain, rtol=1e-4, atol=1e-5, msg=name)
