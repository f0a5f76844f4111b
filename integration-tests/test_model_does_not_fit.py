# SPDX-License-Identifier: Apache-2.0
"""The example keeps its promises at a tiny size, and says so when it does not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from packages import needed

needed("ssdtrain")

import model_does_not_fit as example  # noqa: E402
from language_model import Settings  # noqa: E402

TINY = ("--layers=6", "--width=64", "--length=128", "--batch=4", "--steps=2", "--device=cpu")


def test_promises_are_kept_and_files_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status = example.main([*TINY, "--cap=16MiB", "--out", str(tmp_path)])
    shown = capsys.readouterr().out
    assert status == 0, shown
    assert "out of memory in step 1" in shown
    assert shown.count("\nyes ") == 3
    assert "saved tensors of step 2" in (tmp_path / "report.txt").read_text()
    assert (tmp_path / "memory.png").read_bytes().startswith(b"\x89PNG")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert {"X", "M"} <= {event["ph"] for event in events}


def test_a_cap_that_plain_training_keeps_is_no_success(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert example.main([*TINY, "--cap=1GiB", "--out", str(tmp_path)]) == 1
    shown = capsys.readouterr().out
    assert "NO   plain training does not fit under the cap" in shown
    assert "yes  its losses are those without the cap" in shown


def test_other_losses_are_no_success() -> None:
    free = example.Run("plain, no cap", None, [2.0, 1.0])
    plain = example.Run("plain", 5, [], error="out of memory")
    moved = example.Run("with ssdtrain", 5, [2.0, 1.0 + 1e-15])
    assert list(example.promises(free, plain, moved).values()) == [True, True, False]
    assert list(example.promises(free, plain, plain).values()) == [True, False, False]


def test_the_meter_stops_at_the_cap_and_counts_what_is_alive() -> None:
    device = torch.device("cpu")
    with example.Meter(device, 10_000) as meter:
        a = torch.ones(2000)
        del a
        b = torch.ones(2000)
        with pytest.raises(MemoryError, match=r"15\.62 KiB of tensors, the cap is 9\.77 KiB"):
            torch.ones(2000)
        assert len(b) == 2000
    assert [nbytes for _, nbytes in meter.samples] == [8000, 8000]


@pytest.mark.gpu
def test_the_allocators_cap_on_a_gpu(tmp_path: Path) -> None:
    assert example.main(["--steps=3", "--out", str(tmp_path)]) == 0


def test_settings_of_a_gpu_are_larger() -> None:
    options = example.options_of(["--device", "cuda:0", "--width", "96"])
    settings = Settings(options.layers, options.width, 4, options.length, options.batch)
    assert (settings.layers, settings.width, options.cap) == (12, 96, "6GiB")
