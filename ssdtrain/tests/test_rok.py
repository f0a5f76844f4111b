# SPDX-License-Identifier: Apache-2.0
"""Measuring strategies: what is loaded, what is counted, what is written; never how fast."""

from __future__ import annotations

import csv
import gc
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from ssdtrain import rok, rok_running
from ssdtrain.live_bytes import DevicePeak, LiveBytes, peak_over_resident
from ssdtrain.rok_report import draw, print_table, write_csv, write_json
from ssdtrain.steering import Steering, StepOrder, StepResult

WIDTH = 64


class Block(torch.nn.Module):
    """A normalised MLP with a residual."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.LayerNorm(WIDTH)
        self.up, self.down = torch.nn.Linear(WIDTH, 256), torch.nn.Linear(256, WIDTH)
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm(x))))


class Model(torch.nn.Module):
    """Blocks after an embedding, and a list of other equal modules that is smaller."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(50, WIDTH)
        self.blocks = torch.nn.ModuleList(Block() for _ in range(4))
        self.norms = torch.nn.ModuleList(torch.nn.LayerNorm(WIDTH) for _ in range(2))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x: torch.Tensor = self.embedding(ids)
        for block in self.blocks:
            x = block(x)
        for norm in self.norms:
            x = norm(x)
        return x


def make() -> tuple[Any, ...]:
    """As a script's factory does."""
    model = Model()
    return (
        model,
        lambda size: torch.randint(50, (size, 32)),
        lambda model, ids: model(ids).square().mean(),
        torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9),
    )


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Threads cost more than they give on tensors this small."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def work() -> rok.Work:
    torch.manual_seed(0)
    return rok.as_work(make())


@pytest.fixture
def arguments(tmp_path: Path) -> dict[str, Any]:
    folder = tmp_path / "spill"
    folder.mkdir()
    return {
        "spill": folder, "host": 0, "ssd": "64MiB", "min_bytes": "4KiB", "backlog": 0,
        "prefetch": 0, "steps": 1, "warmup": 2,
    }  # fmt: skip


def test_strategies_are_measured_in_order(work: rok.Work, arguments: dict[str, Any]) -> None:
    seen: list[rok.Row] = []
    rows = rok.measure(work, [8, 4], progress=seen.append, **arguments)
    assert [(row.batch, row.strategy) for row in rows] == [
        (batch, strategy) for batch in (4, 8) for strategy in rok.STRATEGIES
    ]
    assert seen == rows
    peak = {(row.batch, row.strategy): row.peak_bytes or 0 for row in rows}
    for row in rows:
        assert row.status == "ok"
        assert row.unit == "tokens/s"
        assert row.throughput == pytest.approx(row.batch * 32 / (row.seconds or 0))
    for batch in (4, 8):
        # Four blocks save 10 x width elements a token (norm 2, GELU 8); keep holds all at once.
        assert peak[batch, "keep"] > 4 * 10 * WIDTH * 4 * batch * 32
        assert peak[batch, "recompute"] < 0.7 * peak[batch, "keep"]
        assert peak[batch, "offload"] < 0.7 * peak[batch, "keep"]
    assert peak[8, "keep"] > 1.8 * peak[4, "keep"]
    assert next(row for row in rows if row.strategy == "offload").bytes["disk"] > 0


def test_nothing_is_left_behind(work: rok.Work, arguments: dict[str, Any]) -> None:
    blocks = rok.find_blocks(work.model)
    rok.measure(work, [2], ["recompute", "offload"], **arguments)
    assert not any("forward" in vars(block) for block in blocks)
    assert not work.model._forward_pre_hooks
    assert all(p.grad is None for p in work.model.parameters())
    assert list(arguments["spill"].iterdir()) == []


def test_recompute_computes_blocks_twice_in_a_step(
    work: rok.Work, arguments: dict[str, Any]
) -> None:
    arguments |= {"steps": 2, "warmup": 1}
    blocks = rok.find_blocks(work.model)
    rok.measure(work, [2], ["keep"], **arguments)
    assert [block.calls for block in blocks] == [4] * 4  # 1 to warm up, 1 watched, 2 timed
    rok.measure(work, [2], ["recompute"], **arguments)
    assert [block.calls for block in blocks] == [4 + 8] * 4


def test_strategies_take_turns_forwards_and_backwards(
    work: rok.Work, arguments: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    turns: list[str] = []
    plain = rok_running.Keeping.timed

    def timed(self: rok_running.Keeping, batch: Any) -> float:
        turns.append(type(self).__name__)
        return plain(self, batch)

    monkeypatch.setattr(rok_running.Keeping, "timed", timed)
    rok.measure(work, [2], ["keep", "recompute", "offload"], **{**arguments, "steps": 3})
    there = ["Keeping", "Recomputing", "Offloading"]
    assert turns == [*there, *reversed(there), *there]


def test_what_others_compute_between_is_no_part_of_a_planned_step(
    work: rok.Work, arguments: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds: list[float] = []
    plain_end = Steering.end_step

    def end_step(self: Steering, order: StepOrder, result: StepResult) -> None:
        if order.mode == "planned":
            seconds.append(result.seconds)
        plain_end(self, order, result)

    monkeypatch.setattr(Steering, "end_step", end_step)
    plain_loss = work.loss

    def loss(model: torch.nn.Module, ids: torch.Tensor) -> torch.Tensor:
        # Far longer than a step, in every step that is not planned.
        time.sleep(0.0 if model._forward_pre_hooks else 0.5)
        return plain_loss(model, ids)

    work.loss = loss
    arguments |= {"steps": 3, "warmup": 3}
    rok.measure(work, [2], ["keep", "planned"], **arguments)
    assert len(seconds) >= 3
    assert max(seconds) < 0.5


def test_memory_that_runs_out_in_a_later_turn_is_a_row(
    work: rok.Work, arguments: dict[str, Any]
) -> None:
    calls = []
    plain = work.loss

    def loss(model: torch.nn.Module, ids: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        if len(calls) == 5:  # Warm-up, peak, a turn of each; then keep's second.
            raise torch.OutOfMemoryError("CUDA out of memory")
        return plain(model, ids)

    work.loss = loss
    arguments |= {"steps": 3, "warmup": 1}
    keep, other = rok.measure(work, [2], ["keep", "recompute"], **arguments)
    assert {keep.status, other.status} == {"ok", "out of memory"}
    failed, fine = (keep, other) if keep.status != "ok" else (other, keep)
    assert failed.peak_bytes is failed.seconds is None
    assert fine.seconds is not None
    assert all(p.grad is None for p in work.model.parameters())


def test_a_forward_of_the_blocks_own_comes_back(work: rok.Work, arguments: dict[str, Any]) -> None:
    block = rok.find_blocks(work.model)[0]
    mine = block.forward
    block.forward = mine
    rok.measure(work, [2], ["recompute"], **arguments)
    assert vars(block)["forward"] is mine


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory"),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 1 bytes"),
        MemoryError("budget"),
    ],
)
def test_out_of_memory_is_a_row(
    work: rok.Work, arguments: dict[str, Any], error: Exception
) -> None:
    plain = work.loss

    def loss(model: torch.nn.Module, ids: torch.Tensor) -> torch.Tensor:
        if len(ids) > 2:
            raise error
        return plain(model, ids)

    work.loss = loss
    strategy = "offload" if isinstance(error, MemoryError) else "keep"
    rows = rok.measure(work, [2, 4, 8], [strategy], **arguments)
    assert [row.status for row in rows] == ["ok", "out of memory", "not tried: 4 did not fit"]
    assert rows[-1].peak_bytes is rows[-1].throughput is None


def test_other_errors_are_the_callers(work: rok.Work, arguments: dict[str, Any]) -> None:
    def loss(model: torch.nn.Module, ids: torch.Tensor) -> torch.Tensor:
        raise RuntimeError("shapes differ")

    work.loss = loss
    with pytest.raises(RuntimeError, match="shapes differ"):
        rok.measure(work, [1], ["keep"], **arguments)


def test_wrong_arguments_show_before_anything_runs(
    work: rok.Work, arguments: dict[str, Any]
) -> None:
    seen: list[rok.Row] = []
    with pytest.raises(ValueError):
        rok.measure(work, [1], progress=seen.append, **{**arguments, "min_bytes": "many"})
    for wrong in ({"batches": []}, {"batches": [0]}, {"strategies": ["fast"]}, {"strategies": []}):
        with pytest.raises(ValueError):
            rok.measure(**{"work": work, "batches": [1], **arguments, **wrong})
    assert seen == []


def test_blocks_are_the_largest_list_of_equal_modules(work: rok.Work) -> None:
    assert rok.find_blocks(work.model) == list(work.model.blocks)  # type: ignore[call-overload]
    with pytest.raises(ValueError, match="blocks="):
        rok.find_blocks(torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU()))


@pytest.mark.parametrize(
    "made", [None, (1, 2), (1, 2, 3, 4, 5), (1, len, len), (torch.nn.ReLU(), 2, len)]
)
def test_what_is_no_work_is_refused(made: object) -> None:
    with pytest.raises(TypeError, match="factory"):
        rok.as_work(made)


def test_objects_and_samples(work: rok.Work, arguments: dict[str, Any]) -> None:
    class Mine:
        model = work.model
        loss = staticmethod(lambda model, x: model.blocks[0](x).square().mean())
        make_batch = staticmethod(lambda size: torch.randn(size, 32, WIDTH))
        blocks = (work.model.blocks[0],)  # type: ignore[index]

    mine = rok.as_work(Mine())
    assert mine.optimizer is None
    (row,) = rok.measure(mine, [2], ["recompute"], **arguments)
    assert row.unit == "samples/s"
    mine.tokens = lambda batch: 7
    (row,) = rok.measure(mine, [2], ["keep"], **arguments)
    assert row.throughput == pytest.approx(7 / (row.seconds or 0))


def test_live_bytes_counts_what_is_held_at_a_time() -> None:
    def step() -> None:
        for _ in range(3):
            kept = torch.empty(1000, dtype=torch.uint8)
            views = kept[:10], kept.view(10, 100)
            more = torch.zeros(500, dtype=torch.uint8)
            more.add_(1)
            del kept, views, more

    assert peak_over_resident(step, torch.device("cpu")) == 1500
    with LiveBytes() as counter:
        held = torch.empty(100, dtype=torch.uint8)
    assert counter.live == held.nbytes
    del held
    gc.collect()
    assert counter.live == 0
    with pytest.raises(ValueError, match="meta"):
        peak_over_resident(step, torch.device("meta"))


def test_a_peak_outlives_that_the_allocators_is_started_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    highest = 0
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda _: highest)
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda _: None)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    here, other = torch.device("cuda:1"), torch.device("cuda:0")
    with DevicePeak(torch.device("cuda")) as peak:
        highest = 7
        assert peak.nbytes() == 7
        DevicePeak.starts_anew(here, 9)
        DevicePeak.starts_anew(other, 99)
        highest = 3
        assert peak.nbytes() == 9
        with DevicePeak(here) as later:
            DevicePeak.starts_anew(here, 5)
            assert later.nbytes() == 5
        assert peak.nbytes() == 9
    DevicePeak.starts_anew(here, 11)
    assert peak.nbytes() == 9


def some_rows() -> list[rok.Row]:
    return [
        rok.Row("keep", 2, "ok", 2**30, 0.5, 100.0, "tokens/s"),
        rok.Row("planned", 2, "ok", 2**29, 0.55, 90.0, "tokens/s", {"host": 7, "kept": 3}),
        rok.Row("keep", 4, "out of memory"),
    ]


def test_files_hold_what_was_measured(tmp_path: Path) -> None:
    rows = some_rows()
    write_csv(rows, tmp_path / "r.csv")
    with (tmp_path / "r.csv").open() as file:
        read = list(csv.DictReader(file))
    assert [row["status"] for row in read] == ["ok", "ok", "out of memory"]
    assert int(read[1]["peak_bytes"]) == 2**29
    assert (read[1]["host_bytes"], read[1]["disk_bytes"], read[2]["seconds"]) == ("7", "", "")
    write_json(rows, tmp_path / "r.json", torch.device("cpu"))
    content = json.loads((tmp_path / "r.json").read_text())
    assert content["rows"][1]["bytes"] == {"host": 7, "kept": 3}
    assert content["machine"]["torch"] == torch.__version__


def test_the_picture_has_a_curve_a_strategy(tmp_path: Path) -> None:
    draw(some_rows(), tmp_path / "r.svg", "title")
    picture = (tmp_path / "r.svg").read_text()
    assert picture.count("<!-- keep -->") == 1
    assert picture.count("<!-- planned -->") == 1
    assert "<!-- offload -->" not in picture
    with pytest.raises(ValueError, match="nothing"):
        draw([rok.Row("keep", 4, "out of memory")], tmp_path / "no.png")


def test_the_table_compares_with_keep(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(some_rows())
    text = capsys.readouterr().out
    assert "0.50" in text
    assert "1.10" in text
    assert "out of" in text
