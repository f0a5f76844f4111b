# SPDX-License-Identifier: Apache-2.0
"""Parts of the benchmarks that need no GPU: files that stay whole, what a run is made of."""

import argparse
import json
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tools"), str(ROOT / "hector" / "benchmarks")]
bench_schema = pytest.importorskip("bench_schema", reason="the tools are not here")

import bench_cpu_layers  # noqa: E402
import bench_gpu_layers  # noqa: E402
import mini_batches  # noqa: E402
from gpu_cells import BF16, HIGH, HIGHEST, Cell, Measured, attributed  # noqa: E402
from gpu_peers import Timed  # noqa: E402
from gpu_results import Results  # noqa: E402
from gpu_sections import Context, _row, compiled, means  # noqa: E402

from hector.measure.layers import LAYERS  # noqa: E402
from hector.measure.profile import KernelTime  # noqa: E402
from hector.measure.shapes import SHAPES  # noqa: E402


def test_results_are_whole_after_every_row(tmp_path):
    results = Results(tmp_path / "r.json", "title")
    for number in range(3):
        results.add(bench_schema.Row(f"row {number}", number + 1.0, "ms"))
        results.keep("raw", str(number), [number])
        found = json.loads((tmp_path / "r.json").read_text(encoding="utf-8"))
        bench_schema.check(found)
        assert [row["ours"] for row in found["rows"]] == [n + 1.0 for n in range(number + 1)]
    results.write()
    assert json.loads((tmp_path / "r.json").read_text(encoding="utf-8"))["extra"]["raw"]["2"] == [2]


def test_settings_of_a_graph_are_those_of_its_sections():
    chosen = argparse.Namespace(some=["aifb"])
    found = {
        section: [bench_gpu_layers.settings(graph, section, chosen) for graph in ("aifb", "mag")]
        for section in bench_gpu_layers.SECTIONS
    }
    assert found["speed"] == [[HIGH], [HIGH]]
    assert found["precision"] == [[BF16, HIGHEST], [BF16]]
    assert [len(each) for each in found["ablation"]] == [4, 0]
    assert [len(each) for each in found["widths"]] == [3, 0]
    assert found["forms"] == found["compiled"] == [[], []]


def test_means_take_the_faster_of_peers_compiled_or_not(tmp_path):
    context = Context(Results(tmp_path / "r.json", "title"), 1e9, 0.0)
    for training in (False, True):
        context.fp32.update({("RGCN, aifb", training): 1.0, ("HGT, mag", training): 2.0})
        context.pyg[training] = {"RGCN, aifb": 100.0, "HGT, mag": 50.0}
    means(context)
    compiled(context, {
        ("aifb", "RGCN", True): [Timed("fast", 36.0), Timed("none", None, "none: failed")],
        ("mag", "HGT", False): [Timed("slow", 80.0)],
    })  # fmt: skip
    rows = {row.work: row for row in context.results.rows}
    mean = "{}, width 64, geometric mean over 2 cells of the best PyG layer"
    assert rows[mean.format("training")].ours == pytest.approx(50.0)
    assert rows[mean.format("training") + ", compiled or not"].ours == pytest.approx(30.0)
    assert rows[mean.format("inference") + ", compiled or not"].ours == pytest.approx(50.0)
    assert rows["RGCN, aifb, forward + backward, PyG compiled"].ratio == 36.0
    assert rows["RGCN, aifb, forward + backward, PyG compiled"].note == "none: failed"


def test_the_best_peer_stands_in_the_row_and_the_others_in_its_note(tmp_path):
    layer = LAYERS["RGCN"]
    made = Cell(layer, SHAPES["aifb"], layer.draw(SHAPES["aifb"].scaled(0.01), "cpu"))
    found = Measured(2.0, 2.0, "compact_src", "", 10, 10, 1000, 100, 1000)
    peers = [Timed("slow", 9.0), Timed("fast", 3.0), Timed("large", None, "large: out of memory")]
    context = Context(Results(tmp_path / "r.json", "title"), 1e9, 0.0)
    row = _row(made, HIGH, True, found, context, peers)
    assert (row.peer, row.peer_name, row.ratio, row.met) == (3.0, "fast", 1.5, True)
    assert row.limit == pytest.approx(1e-3)
    for part in ("slow 9 ms", "large: out of memory", "compact_src"):
        assert part in row.note
    alone = _row(made, HIGH, False, found, context, peers[2:])
    assert (alone.peer, alone.ratio, alone.met) == (None, None, None)


def test_launches_get_the_bytes_of_their_kernels():
    seen = [KernelTime("a", 1.0), KernelTime("a_hubs", 0.5), KernelTime("fill", 0.1)]
    assert attributed(seen, {"a": 7, "b": 9}) == [("a", 1.0, 7), ("a_hubs", 0.5, 0),
                                                  ("fill", 0.1, 0)]  # fmt: skip


def test_peers_that_gather_matrices_are_expected_to_need_them():
    shape = SHAPES["fb15k"]
    matrices = shape.edges * 64 * 64 * 4
    assert bench_cpu_layers.peer_bytes("RGATConv", shape, True) > matrices
    assert bench_cpu_layers.peer_bytes("RGCNConv", shape, False) < matrices / 10


def test_batches_change_in_size_and_are_the_same_again():
    made, again = mini_batches.batches(6, 100, 500), mini_batches.batches(6, 100, 500)
    assert len({batch.rel.shape for batch in made}) == 6
    assert all(torch.equal(a.index, b.index) for a, b in zip(made, again, strict=True))
    found = mini_batches.measure(LAYERS["RGCN"], made, torch.device("cpu"))
    assert found.programs == 1
    assert min(found.plan, found.step, found.prefetched) > 0
