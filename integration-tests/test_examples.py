# SPDX-License-Identifier: Apache-2.0
"""The pieces of the demo at tiny sizes, in plain PyTorch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import demo
import demo_report
import language_model
import pytest
import relational_gnn
import torch
from neighbor_sampling import Block, Sampler
from small_graph import small_graph
from stdlib_corpus import Corpus
from torch.profiler import ProfilerActivity, profile

from ssdtrain.live_bytes import LiveBytes, peak_over_resident

TINY_LM = language_model.Settings(
    layers=2, width=32, heads=2, length=32, batch_size=2, steps=4, min_bytes=1024
)
TINY_GNN = relational_gnn.Settings(hidden=8, epochs=2, batch_size=16, fanouts=(3, 2))


def test_layer_is_the_mean_of_each_relation() -> None:
    graph = small_graph()
    layer = relational_gnn.PlainLayer(16, 4, 5)
    x = torch.randn(80, 16)
    expected = x @ layer.root + layer.bias
    for node in range(80):
        for relation in range(5):
            chosen = (graph.edge_index[1] == node) & (graph.edge_type == relation)
            if chosen.any():
                rows = x[graph.edge_index[0, chosen]]
                expected[node] += rows.mean(0) @ layer.weight[relation]
    block = Block(graph.edge_index, graph.edge_type, 80, 80)
    torch.testing.assert_close(layer(x, block), expected, rtol=1e-4, atol=1e-5)


def test_sampling_every_edge_gives_the_whole_graphs_result() -> None:
    graph = small_graph()
    model = relational_gnn.RelationalGNN(16, 8, 3, 5)
    x = torch.randn(80, 16)
    whole = Block(graph.edge_index, graph.edge_type, 80, 80)
    # Two edges between the same nodes stay two edges only if the draw is by edge, not by node.
    sampler = Sampler(graph.edge_index, graph.edge_type, 80, (300, 300), seed=0)
    seeds = torch.tensor([7, 3, 61])
    sample = sampler.sample(seeds)
    assert torch.equal(sample.nodes[:3], seeds)
    expected = model(x, (whole, whole))[seeds]
    torch.testing.assert_close(model(x[sample.nodes], sample.blocks), expected)


def test_samples_are_edges_of_the_graph_and_repeat() -> None:
    graph = small_graph()
    edges = {
        (s, d, r)
        for s, d, r in zip(*graph.edge_index.tolist(), graph.edge_type.tolist(), strict=True)
    }
    samples = [
        Sampler(graph.edge_index, graph.edge_type, 80, (3, 2), seed=5).sample(torch.arange(10))
        for _ in range(2)
    ]
    assert torch.equal(samples[0].nodes, samples[1].nodes)
    assert len(torch.unique(samples[0].nodes)) == len(samples[0].nodes)
    outer, inner = samples[0].blocks
    assert inner.num_outputs == 10
    assert inner.num_nodes == outer.num_outputs
    assert torch.bincount(inner.edge_index[1], minlength=10).max() <= 3
    for block, again in zip(samples[0].blocks, samples[1].blocks, strict=True):
        assert torch.equal(block.edge_index, again.edge_index)
        assert bool((block.edge_type.diff() >= 0).all())
        assert int(block.edge_index[1].max()) < block.num_outputs
        source, destination = samples[0].nodes[block.edge_index].tolist()
        found = zip(source, destination, block.edge_type.tolist(), strict=True)
        assert set(found) <= edges


def test_gnn_repeats_and_learns() -> None:
    graph = small_graph()
    settings = relational_gnn.Settings(hidden=16, epochs=30, batch_size=16, dropout=0.0)
    runs = [relational_gnn.train(graph, settings)[1] for _ in range(2)]
    assert runs[0].losses == runs[1].losses
    assert len(runs[0].losses) == relational_gnn.count_steps(graph, settings)
    assert runs[0].losses[-1] < 0.2 * runs[0].losses[0]
    assert runs[0].fetched_bytes % (16 * 4) == 0
    assert runs[0].fetched_bytes > 0


def test_language_model_repeats_and_learns() -> None:
    corpus = Corpus(max_bytes=50_000)
    settings = language_model.Settings(
        layers=1, width=32, heads=2, length=32, batch_size=8, steps=40
    )
    runs = [language_model.train(corpus, settings)[1] for _ in range(2)]
    assert runs[0].losses == runs[1].losses
    assert runs[0].held_out_loss == runs[1].held_out_loss
    assert runs[0].losses[-1] < runs[0].losses[0] - 1


@pytest.mark.parametrize("module", [relational_gnn, language_model])
def test_unknown_mode(module: Any) -> None:
    data = small_graph() if module is relational_gnn else Corpus(max_bytes=50_000)
    settings = TINY_GNN if module is relational_gnn else TINY_LM
    with pytest.raises(ValueError, match="mode is 'fast'; 'plain' or 'datapath' wanted"):
        module.train(data, settings, mode="fast")


def test_live_bytes_agree_with_the_allocators_events() -> None:
    corpus = Corpus(max_bytes=50_000)
    model = language_model.LanguageModel(TINY_LM)
    inputs, targets = next(corpus.batches(1, 2, 32, seed=0))

    def step() -> None:
        logits = model(inputs)
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
        loss.backward()  # type: ignore[no-untyped-call]
        model.zero_grad()

    step()
    found = peak_over_resident(step, torch.device("cpu"))
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        step()
    assert profiler.profiler is not None
    events = [e for e in profiler.profiler.kineto_results.events() if e.name() == "[memory]"]
    live = highest = 0
    for event in sorted(events, key=lambda e: e.start_ns()):
        live += event.nbytes()
        highest = max(highest, live)
    assert highest > 50_000
    # Operators' own scratch memory is in the allocator's events only.
    assert 0.9 * highest <= found <= highest


def test_live_bytes_see_frees_and_views() -> None:
    with LiveBytes() as counter:
        a = torch.ones(1000)
        view = a[10:20]
        assert counter.live == 4000
        del a
        assert counter.live == 4000
        del view
        assert counter.live == 0
        torch.ones(500).add_(1)
    assert counter.peak == 4000


def _histories() -> tuple[dict[str, Any], dict[str, Any]]:
    gnn = {
        mode: relational_gnn.History([3.0, 2.0], [0.4, 0.8], 1.0, 10**9, 0.5) for mode in demo.MODES
    }
    lm = {
        "plain": language_model.History([5.0, 4.0], 4.5, 1.0, 100),
        "datapath": language_model.History(
            [5.0, 4.0], 4.5, 1.0, 60, {"bytes": {"host": 0, "disk": 50, "recompute": 0, "kept": 9}}
        ),
    }
    return gnn, lm


def test_promises_hold_or_break() -> None:
    gnn, lm = _histories()
    assert [check["holds"] for check in demo.checks(gnn, 0.1, lm)] == [True] * 4
    gnn["datapath"].accuracies[-1] -= 0.006
    lm["datapath"].losses[1] += 1e-15
    lm["datapath"].peak_bytes = 100
    assert [check["holds"] for check in demo.checks(gnn, 0.7, lm)] == [False] * 4


def test_report_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gnn, lm = _histories()
    report = demo_report.collect(
        small_graph(), TINY_GNN, gnn, 0.1, TINY_LM, lm, demo.checks(gnn, 0.1, lm),
        torch.device("cpu"),
    )  # fmt: skip
    report["seconds"] = 3.0
    report["lanes"] = {"read": 2.5, "write": 1.5}
    demo_report.write(report, tmp_path)
    assert json.loads((tmp_path / "report.json").read_text())["gnn"]["plain"]["losses"] == [3, 2]
    text = (tmp_path / "report.md").read_text()
    assert "80.00 %" in text
    assert "| yes |" in text
    assert "2.50 GB/s" in text
    pictures = sorted(tmp_path.glob("*.png"))
    assert len(pictures) >= 2
    for picture in pictures:
        assert picture.name in text
        assert picture.read_bytes().startswith(b"\x89PNG")
        assert picture.stat().st_size > 5_000
    assert "80.00 %" in capsys.readouterr().out


def test_missing_package_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def absent(name: str) -> None:
        raise ImportError(f"No module named {name!r}")

    monkeypatch.setattr("importlib.import_module", absent)
    with pytest.raises(SystemExit, match="cannot import datapath_core"):
        demo.main(["--out", str(tmp_path / "report")])
    assert not (tmp_path / "report").exists()
