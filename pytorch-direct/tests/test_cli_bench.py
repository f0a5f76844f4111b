# SPDX-License-Identifier: Apache-2.0
"""The command ``pytorch-direct``: what it measures, writes and refuses."""

from __future__ import annotations

import csv
import json

import pytest
import torch

from pytorch_direct.cli import main
from pytorch_direct.cli.measure import gather_rate, host_table, rows_of, verify_rows

SMALL = ["--device", "cpu", "--nodes", "0.002", "--edges", "0.01", "--width", "16", "--hidden", "8",
         "--fanouts", "3,2", "--batch-size", "64", "--batches", "3"]  # fmt: skip
GATHER = ["--gib", "0.001", "--widths", "64,412", "--count", "1000"]


def test_bench_measures_all_three_and_writes_them(tmp_path, capsys):
    out, table = tmp_path / "r.json", tmp_path / "r.csv"
    assert main(["bench", *SMALL, *GATHER, "--json", str(out), "--csv", str(table)]) == 0
    result = json.loads(out.read_text())
    rates = result["gather"]["rates"]
    assert [row["row_bytes"] for row in rates] == [64, 412]
    assert all(row["gb_per_second"] > 0 for row in rates)
    with table.open() as file:
        rows = list(csv.DictReader(file))
    assert [float(row["gb_per_second"]) for row in rows] == [r["gb_per_second"] for r in rates]
    assert result["sampling"][0]["edges_per_batch"] > 0
    epoch = result["epoch"][0]
    assert epoch["seconds_per_epoch"] == pytest.approx(epoch["ms_per_batch"] * 32 / 1e3)
    assert "epoch, features and graph in host memory" in capsys.readouterr().out


def test_bench_runs_what_is_asked_for(tmp_path):
    out = tmp_path / "r.json"
    assert main(["bench", *SMALL, "--only", "sampling", "--json", str(out)]) == 0
    assert {"sampling"} == {"gather", "sampling", "epoch"} & set(json.loads(out.read_text()))


@pytest.mark.parametrize("suffix", [".svg", ".png"])
def test_rates_are_drawn(tmp_path, suffix):
    pytest.importorskip("matplotlib")
    target = tmp_path / f"rates{suffix}"
    assert main(["bench", *SMALL, *GATHER, "--only", "gather", "--picture", str(target)]) == 0
    start = target.read_bytes()[:100]
    assert (b"<?xml" in start) if suffix == ".svg" else start.startswith(b"\x89PNG")


def test_a_trace_has_every_step_of_every_batch_in_order(tmp_path, capsys):
    out = tmp_path / "trace.json"
    assert main(["trace", str(out), *SMALL]) == 0
    events = json.loads(out.read_text())["traceEvents"]
    lanes = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    spans: dict[tuple[str, int], tuple[float, float]] = {}
    for event in events:
        if event["ph"] == "X":
            key = (lanes[event["tid"]], event["args"]["batch"])
            begin, end = spans.get(key, (float("inf"), 0.0))
            spans[key] = min(begin, event["ts"]), max(end, event["ts"] + event["dur"])
    for batch in range(3):
        sample, fetch, train = (spans[lane, batch] for lane in ("sample", "fetch", "train"))
        assert sample[0] < fetch[0] < train[0]
        assert fetch[1] <= train[0]
    assert "of the time" in capsys.readouterr().out


def test_a_trace_leaves_loaders_as_they_were(tmp_path):
    from pytorch_direct.loader.lanes import HostLanes
    from pytorch_direct.loader.maker import BatchMaker

    before = HostLanes.sampling, HostLanes.fetching, BatchMaker.start, BatchMaker.finish
    assert main(["trace", str(tmp_path / "t.json"), *SMALL]) == 0
    after = HostLanes.sampling, HostLanes.fetching, BatchMaker.start, BatchMaker.finish
    assert before == after


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["bench", "--only", "gather", "--device", "meta"], "cannot be measured"),
        (["bench", "--only", "gather", "--device", "cpu", "--picture", "a.gif"], ".svg or .png"),
        (
            ["bench", "--only", "gather", "--device", "cpu", "--gib", "0.000001"],
            "has no row of 4096",
        ),
        (["trace", "no/such/folder/t.json", *SMALL], "No such file"),
    ],
)
def test_errors_are_said_in_one_line(arguments, said, capsys):
    assert main(arguments) == 1
    text = capsys.readouterr().err
    assert said in text
    assert len(text.splitlines()) == 1


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_an_error(capsys):
    assert main(["bench", "--only", "gather", "--device", "cuda"]) == 1
    assert "sees no GPU" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        [], ["bench", "--only", "speed"], ["bench", "--widths", "0"], ["bench", "--widths", "x"],
        ["bench", "--gib", "-1"], ["bench", "--batches", "1,2"], ["trace"],
        ["bench", "--gib", "nan"],
    ],
)  # fmt: skip
def test_wrong_command_lines_end_with_2(arguments, capsys):
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert capsys.readouterr().err


def test_what_is_measured_is_checked():
    memory = host_table(1 << 16, torch.device("cpu"))
    rate, count = gather_rate(memory, 412, torch.device("cpu"), count=100)
    assert rate > 0
    assert count == 100
    table = rows_of(memory, 412)
    ids = torch.arange(10)
    with pytest.raises(RuntimeError, match="came out wrong"):
        verify_rows(table[ids] + 1, table, ids, "rows")


@pytest.mark.gpu
def test_bench_and_trace_on_a_gpu(tmp_path):
    out = tmp_path / "r.json"
    small = ["cuda" if word == "cpu" else word for word in SMALL]
    assert main(["bench", *small, *GATHER, "--json", str(out)]) == 0
    result = json.loads(out.read_text())
    assert len(result["gather"]["rates"]) == 6
    assert [row["place"] for row in result["epoch"]] == [
        "host memory, read by the GPU",
        "GPU memory",
    ]
    assert result["epoch"][0]["last_loss"] == pytest.approx(
        result["epoch"][1]["last_loss"], rel=0.05
    )
    trace = tmp_path / "trace.json"
    assert main(["trace", str(trace), *small]) == 0
    assert {"sample", "fetch", "train"} <= {
        event["args"]["name"] for event in json.loads(trace.read_text())["traceEvents"]
        if event["name"] == "thread_name"
    }  # fmt: skip
