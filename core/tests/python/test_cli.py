# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest

from datapath_core import __version__, _measure, _tune, cli, io, settings


def run(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    import os

    return subprocess.run(
        [sys.executable, "-m", "datapath_core.cli", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environment},
    )


def test_wrong_arguments_are_refused_with_one_line() -> None:
    assert run().returncode == 2
    assert run("dance").returncode == 2
    done = run("bench", "--dir", "/nonexistent")
    assert done.returncode == 1
    assert "/nonexistent" in done.stderr
    assert "Traceback" not in done.stderr
    done = run("tune", "--size", "lots")
    assert done.returncode == 1
    assert "lots" in done.stderr


@pytest.mark.parametrize("command", ["bench", "tune"])
@pytest.mark.parametrize(
    ("size", "said"),
    [("0", "4MiB is the least"), ("4095KiB", "4MiB is the least"), ("4EiB", "has no room for")],
)
def test_a_sample_that_measures_nothing_or_fills_the_drive_is_refused(
    command, size, said, folder, capsys
) -> None:
    assert cli.main([command, "--dir", str(folder), "--size", size]) == 1
    told = capsys.readouterr()
    assert told.out == ""
    assert said in told.err
    assert told.err.count("\n") == 1
    assert list(folder.iterdir()) == []


def test_a_sample_has_no_name_that_a_killed_process_would_leave(folder) -> None:
    with _measure.sample_file(folder, 5 << 20) as sample:
        assert list(folder.iterdir()) == []
        assert sample.nbytes == 4 << 20
        with io.Engine() as engine, engine.open(sample.path) as file:
            found = bytearray(sample.nbytes)
            assert file.read(found).result() == sample.nbytes
        assert len(set(found)) == 256


@pytest.mark.parametrize("command", ["describe", "bench", "tune"])
def test_help_has_examples_that_are_read(command, capsys, monkeypatch) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main([command, "--help"])
    assert ended.value.code == 0
    _, _, shown = capsys.readouterr().out.partition("examples:\n")
    for name in ("_describe", "_bench", "_tune_settings"):
        monkeypatch.setattr(cli, name, lambda options: 77)
    lines = [re.split(r" {2,}| > ", line.strip())[0].split() for line in shown.splitlines()]
    assert len(lines) >= 2
    for line in lines:
        assert line[:2] == ["datapath", command]
        assert cli.main(line[1:]) == 77


def test_the_version_is_shown(capsys) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"{__version__}\n"


def test_describe_shows_every_backend_and_setting() -> None:
    done = run("describe")
    assert done.returncode == 0, done.stderr
    assert "io.depth" in done.stdout
    assert "uring" in done.stdout
    assert json.loads(run("describe", "--json").stdout)["version"]


def test_describe_shows_a_wrong_setting_and_fails() -> None:
    done = run("describe", DATAPATH_IO_DEPTH="many")
    assert done.returncode == 1
    assert "DATAPATH_IO_DEPTH" in done.stderr


def test_bench_gives_figures_beside_limits(folder) -> None:
    done = run("bench", "--dir", folder, "--size", "8MiB", "--json")
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    assert {row["unit"] for row in rows} == {"GB/s", "IOPS"}
    assert all(row["ours"] > 0 and row["limit"] > 0 and row["limit_name"] for row in rows)
    assert list(folder.iterdir()) == []


def test_tune_writes_what_later_processes_read(folder, monkeypatch, capsys) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    measured = [
        _tune.Trial({"io.threads": 1, "io.depth": 32}, 99.0, "IOPS"),
        _tune.Trial({"io.threads": 2, "io.depth": 64}, 100.0, "IOPS"),
        _tune.Trial({"io.chunk_bytes": 1 << 18}, 1.0, "GB/s"),
        _tune.Trial({"io.chunk_bytes": 1 << 22}, 2.0, "GB/s"),
    ]
    monkeypatch.setattr(_tune, "trials", lambda sample: iter(measured))
    options = ["tune", "--dir", str(folder), "--size", "4MiB"]
    assert cli.main([*options, "--dry-run"]) == 0
    assert not _tune.tuned_path().exists()
    assert cli.main(options) == 0
    # The first is as good as the second but for noise, and needs fewer threads.
    assert settings.get("io.depth") == 32
    assert settings.source("io.depth") == "file"
    assert settings.get("io.chunk_bytes") == 1 << 22
    assert str(_tune.tuned_path()) in capsys.readouterr().out
    assert cli.main(["tune", "--reset"]) == 0
    assert not _tune.tuned_path().exists()


@pytest.mark.slow
def test_tune_measures_this_machine(folder) -> None:
    done = run("tune", "--dir", folder, "--size", "64MiB", XDG_CACHE_HOME=str(folder / "cache"))
    assert done.returncode == 0, done.stderr
    assert (folder / "cache" / "datapath" / "tuned.conf").read_text().startswith("# measured")
