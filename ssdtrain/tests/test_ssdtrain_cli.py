# SPDX-License-Identifier: Apache-2.0
"""The command line: what it prints, what it refuses, and its exit status."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from ssdtrain.cli import main

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "ssdtrain-on-paper.md"
PLAN = ["plan", "--model", "llama-3-8b", "--gpu", "h200", "--sequence", "8192"]


def test_plan_prints_tables(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*PLAN, "--ssd", "d7-ps1010"]) == 0
    text = capsys.readouterr().out
    assert "Llama-3 8B on H200 SXM, Solidigm D7-PS1010" in text
    assert "136 KiB" in text  # 139,392 bytes a token and layer
    assert "lifetime_days" in text


def test_plan_as_json_and_csv(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*PLAN, "--json", "--link", "25", "--micro-batch", "2"]) == 0
    read = json.loads(capsys.readouterr().out)
    assert read["layer_bytes"]["value"] == 139_392
    assert read["link"] == {
        "value": 25e9, "unit": "B/s", "label": "GPU to host, a direction", "formula": "",
        "inputs": {}, "source": "given",
    }  # fmt: skip
    assert read["micro_batch_bytes"]["inputs"]["b"] == 2
    assert main([*PLAN, "--csv"]) == 0
    rows = {row["name"]: row for row in csv.DictReader(io.StringIO(capsys.readouterr().out))}
    assert float(rows["layer_bytes"]["value"]) == 139_392
    assert "lifetime_days" not in rows


def test_plan_explains_every_figure(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*PLAN, "--explain", "--eager-mlp"]) == 0
    text = capsys.readouterr().out
    assert "boundary_bytes = e*h/u = 8,192 B" in text
    assert "layer_bytes = (e*h + e*h + e*h + e*h)/u" in text
    assert "= 168,064 B" in text
    assert "arXiv 2205.05198" in text


def test_plan_takes_models_and_drives_of_ones_own(capsys: pytest.CaptureFixture[str]) -> None:
    own = ["plan", "--model", "gpt", "--hidden", "12288", "--layers", "3", "--gpu", "a100-80gb",
           "--ssd", "custom", "--ssd-read", "7", "--ssd-write", "5", "--ssd-capacity", "1TB",
           "--ssd-rating", "600TBW", "--drives", "4", "--gpu-tflops", "160", "--achieved", "1",
           "--dropout", "--json"]  # fmt: skip
    assert main(own) == 0
    read = json.loads(capsys.readouterr().out)
    assert read["endurance_all"]["value"] == 4 * 600e12
    assert read["disk_write"]["value"] == 20e9
    assert read["F"]["value"] == 160e12


def test_plan_lists_the_catalogues(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--list"]) == 0
    text = capsys.readouterr().out
    for word in ("qwen3-30b-a3b", "b200", "p5800x", "https://", "arXiv"):
        assert word in text


@pytest.mark.skipif(not GUIDE.exists(), reason="the guide comes with the repository")
def test_the_guide_shows_what_is_printed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "118")
    blocks = re.findall(r"```console\n\$ (ssdtrain plan .*)\n((?:.*\n)*?)```", GUIDE.read_text())
    assert len(blocks) == 3
    for command, shown in blocks:
        assert main(command.split()[1:]) == 0
        printed = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
        assert printed == shown.splitlines()


def test_rok_runs_with_threads_that_sleep(tmp_path: Path) -> None:
    script = tmp_path / "work.py"
    script.write_text(
        "import os\ndef make():\n    raise ValueError(os.environ['OMP_WAIT_POLICY'])\n"
    )
    command = [sys.executable, "-m", "ssdtrain.cli", "rok", f"{script}:make", "--batches", "1"]
    environment = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False, timeout=250
    )
    assert done.stderr == "ssdtrain rok: passive\n"
    assert done.returncode == 1


def test_rok_leaves_a_policy_that_was_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OMP_WAIT_POLICY", "active")
    missing = tmp_path / "no.py"
    monkeypatch.setattr(sys, "argv", ["ssdtrain", "rok", f"{missing}:make", "--batches", "1"])
    assert main() == 1
    assert "no.py" in capsys.readouterr().err


def test_rows_are_whole_where_no_terminal_has_a_width(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    assert main([*PLAN]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any("the same, norms and activations computed again" in line for line in lines)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["plan"], "--hidden and --layers"),
        (["plan", "--model", "gpt-9"], "gpt-3-175b"),
        ([*PLAN, "--gpu", "h300"], "h200"),
        ([*PLAN, "--ssd", "floppy"], "pm1743"),
        ([*PLAN, "--ssd", "custom"], "read, write, capacity, rating"),
        ([*PLAN, "--ssd-write", "3"], "--ssd custom"),
        ([*PLAN, "--achieved", "40"], "achieved"),
        ([*PLAN, "--tensor-parallel", "5"], "heads do not divide"),
        ([*PLAN, "--gpu-memory", "much"], "--gpu-memory 'much'"),
        ([*PLAN, "--link", "0"], "link must be positive"),
        ([*PLAN, "--gpu-tflops", "nan"], "flops must be positive"),
        ([*PLAN, "--ssd", "fl6", "--ssd-write", "-1"], "write must be positive"),
        ([*PLAN, "--experts", "-1"], "experts must be 0 or more"),
        ([*PLAN, "--explain", "layer_bytes", "nothing"], "no figure nothing"),
        (["rok", "nothing.py:make", "--batches", "1"], "nothing.py"),
    ],
)
def test_errors_are_one_line_and_status_1(
    arguments: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 1
    error = capsys.readouterr().err
    assert text in error
    assert error.startswith(f"ssdtrain {arguments[0]}: ")
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["no"],
        [*PLAN, "--json", "--csv"],
        [*PLAN, "--schedule", "x"],
        ["rok", "a.py:f", "--batches", "1,x"],
        ["rok", "a.py:f"],
    ],
)
def test_wrong_command_lines_are_status_2(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2


@pytest.mark.parametrize("command", ["plan", "rok"])
def test_help_has_examples(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([command, "--help"])
    assert ended.value.code == 0
    assert f"ssdtrain {command} " in capsys.readouterr().out.split("examples:")[1]


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.write_text(
        textwrap.dedent("""
            import torch

            torch.set_num_threads(1)

            def make():
                layers = [torch.nn.Linear(32, 32) for _ in range(3)]
                model = torch.nn.Sequential(*layers)
                def loss(model, x):
                    if len(x) > 8:
                        raise MemoryError
                    return model(x).square().mean()
                return model, lambda n: torch.randn(n, 32), loss

            def nothing():
                return None
        """)
    )
    return path


def test_rok_writes_its_files(
    script: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "deep" / "result.v1"
    command = ["rok", f"{script}:make", "--batches", "4,8,16", "--steps", "1", "--warmup", "1",
               "--strategies", "keep,offload", "--spill", str(tmp_path),
               "--min-bytes", "1", "--host", "0", "--ssd", "16MiB",
               "--out", str(out), "--picture", "svg"]  # fmt: skip
    assert main(command) == 0
    text = capsys.readouterr().out
    assert "out of memory" in text
    rows = json.loads(out.with_name("result.v1.json").read_text())["rows"]
    assert len(rows) == 6
    assert {row["status"] for row in rows[:4]} == {"ok"}
    assert out.with_name("result.v1.csv").read_text().count("\n") == 7
    assert "</svg>" in out.with_name("result.v1.svg").read_text()


def test_rok_keeps_the_batch_sizes_that_it_had_done(script: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken.py"
    broken.write_text(script.read_text().replace("raise MemoryError", "raise ArithmeticError"))
    command = ["rok", f"{broken}:make", "--batches", "4,8,16", "--steps", "1", "--warmup", "1",
               "--strategies", "keep,recompute", "--out", str(tmp_path / "r")]  # fmt: skip
    with pytest.raises(ArithmeticError):
        main(command)
    rows = json.loads((tmp_path / "r.json").read_text())["rows"]
    assert [row["batch"] for row in rows] == [4, 4, 8, 8]
    assert (tmp_path / "r.csv").read_text().count("\n") == 5
    assert (tmp_path / "r.png").exists()


def test_rok_without_anything_that_fits_draws_nothing(script: Path, tmp_path: Path) -> None:
    command = ["rok", f"{script}:make", "--batches", "16", "--strategies", "keep",
               "--out", str(tmp_path / "r")]  # fmt: skip
    assert main(command) == 0
    assert not (tmp_path / "r.png").exists()


@pytest.mark.parametrize("more", [["--strategies", "fast"], ["--host", "lots"]])
def test_rok_refuses_before_it_measures(
    script: Path, tmp_path: Path, more: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["rok", f"{script}:make", "--batches", "1", "--out", str(tmp_path / "r"), *more]
    assert main(command) == 1
    assert more[1] in capsys.readouterr().err
    assert main(["rok", f"{script}:nothing", "--batches", "1"]) == 1
