# SPDX-License-Identifier: Apache-2.0
"""Unified features, compiled layers and offloaded activations in one training run."""

from __future__ import annotations

from pathlib import Path

import pytest
import relational_gnn
import torch
from neighbor_sampling import Block
from packages import needed
from small_graph import small_graph

pytorch_direct = needed("pytorch_direct")
hector = needed("hector")
ssdtrain = needed("ssdtrain")

SETTINGS = relational_gnn.Settings(
    hidden=32, epochs=3, batch_size=16, fanouts=(4, 3), dropout=0.2, seed=3
)


def _parameters(model: torch.nn.Module) -> list[torch.Tensor]:
    found = sorted(model.named_parameters(), key=lambda pair: pair[0].replace("conv.", ""))
    return [parameter.detach().clone() for _, parameter in found]


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_equal_to_plain_training(tmp_path: Path, device: str) -> None:
    graph = small_graph()
    plain_model, plain = relational_gnn.train(graph, SETTINGS, device=device)
    kept_model, kept = relational_gnn.train(graph, SETTINGS, mode="datapath", device=device)
    moved_bytes = []
    with_offload = ssdtrain.Offloader(
        spill=str(tmp_path), host=0, ssd="64MiB", min_bytes=0, plan="all", backlog=0, checks=True
    )
    try:

        def look(loss: float) -> None:
            moved_bytes.append(with_offload.report()["bytes"]["disk"])

        moved_model, moved = relational_gnn.train(
            graph,
            SETTINGS,
            mode="datapath",
            device=device,
            around_forward=lambda: with_offload,
            on_step=look,
        )
    finally:
        with_offload.close()
    # Offloading changes no bit; compiling changes the order of float32 sums.
    assert moved.losses == kept.losses
    for moved_one, kept_one in zip(_parameters(moved_model), _parameters(kept_model), strict=True):
        assert torch.equal(moved_one, kept_one)
    assert kept.losses == pytest.approx(plain.losses, rel=1e-4)
    assert kept.accuracies == pytest.approx(plain.accuracies, abs=0.06)
    for kept_one, plain_one in zip(_parameters(kept_model), _parameters(plain_model), strict=True):
        torch.testing.assert_close(kept_one, plain_one, rtol=1e-2, atol=1e-3)
    assert min(moved_bytes) > 0
    assert list(tmp_path.iterdir()) == []


def test_one_step_gives_the_plain_gradients(tmp_path: Path) -> None:
    graph = small_graph(1)
    block = Block(graph.edge_index, graph.edge_type, 80, 80)
    unified = pytorch_direct.unified(torch.cat([graph.features, torch.zeros(20, 16)]))
    x = pytorch_direct.gather(unified, torch.arange(80))
    gradients = {}
    for mode in ("plain", "datapath"):
        torch.manual_seed(0)
        model = relational_gnn.RelationalGNN(16, 32, 3, 5, mode=mode)
        offloader = ssdtrain.Offloader(
            spill=str(tmp_path), host=0, ssd="64MiB", min_bytes=0, plan="all", backlog=0
        )
        with offloader:
            loss = model(x, (block, block)).square().mean()
        loss.backward()
        gradients[mode] = {
            name.replace("conv.", ""): parameter.grad.clone()
            for name, parameter in model.named_parameters()
            if parameter.grad is not None
        }
        offloader.close()
    assert gradients["plain"].keys() == gradients["datapath"].keys()
    assert len(gradients["plain"]) == 6
    for name, expected in gradients["plain"].items():
        torch.testing.assert_close(gradients["datapath"][name], expected, msg=name)
