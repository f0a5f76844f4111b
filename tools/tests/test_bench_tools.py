# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import bench_pages
import bench_run
import bench_schema
import gpu_run
import pytest
from bench_schema import Row

GOOD = Row(
    work="4 KiB reads | O_DIRECT",
    ours=90.0,
    unit="MB/s",
    limit=100.0,
    limit_name="raw",
    ratio=0.9,
    target=">= 95 %",
    met=False,
)


def test_a_written_result_says_where_it_ran_and_passes_the_check(tmp_path: Path) -> None:
    path = tmp_path / "deeper" / "result.json"
    bench_schema.write(path, "Reads", [GOOD])
    result = json.loads(path.read_text())
    bench_schema.check(result)
    assert result["machine"]["cores"] >= 1
    assert result["versions"]["python"].startswith("3.")
    assert result["rows"][0]["ours"] == 90.0


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"ours": float("nan")}, "not a finite number"),
        ({"ours": None}, "not a finite number"),
        ({"work": ""}, "must be given"),
        ({"limit_name": ""}, "has no name"),
        ({"met": None}, "go together"),
        ({"speed": 3}, "unknown keys"),
    ],
)
def test_a_row_that_is_not_well_formed_is_named(change: dict[str, object], complaint: str) -> None:
    result = {"title": "Reads", **bench_schema.collect(), "rows": [{**vars(GOOD), **change}]}
    with pytest.raises(ValueError, match=complaint):
        bench_schema.check(result)


def test_two_rows_of_one_name_are_refused() -> None:
    result = {"title": "Reads", **bench_schema.collect(), "rows": [vars(GOOD), vars(GOOD)]}
    with pytest.raises(ValueError, match="another row has the same 'work'"):
        bench_schema.check(result)


def test_a_result_without_rows_is_refused() -> None:
    with pytest.raises(ValueError, match="no rows"):
        bench_schema.check({"title": "Reads", **bench_schema.collect(), "rows": []})


def test_the_page_names_shortfalls_first_and_escapes_cells() -> None:
    met = {**vars(GOOD), "work": "met", "met": True}
    result = {"title": "Reads", **bench_schema.collect(), "rows": [met, dict(vars(GOOD))]}
    page = bench_pages.page({"reads.json": result})
    assert "1 of 2 targets are met" in page
    targets = page[page.index("## Targets") : page.index("## Reads")]
    assert targets.index("4 KiB reads") < targets.index("| met |", targets.index("---|"))
    assert "4 KiB reads \\| O_DIRECT" in targets


def _program(folder: Path, body: str) -> Path:
    path = folder / "bench_thing.py"
    path.write_text(body)
    return path


def test_a_program_that_fails_leaves_no_result(tmp_path: Path) -> None:
    program = _program(tmp_path, "raise SystemExit(3)\n")
    assert not bench_run.run("core", program, tmp_path, quick=True)
    assert not list(tmp_path.glob("*.json"))


def test_a_program_that_writes_a_bad_result_fails(tmp_path: Path) -> None:
    body = "import sys, pathlib\npathlib.Path(sys.argv[2]).write_text('{}')\n"
    assert not bench_run.run("core", _program(tmp_path, body), tmp_path, quick=False)
    assert not list(tmp_path.glob("*.json"))


def test_a_program_that_ends_well_leaves_its_result_under_its_name(tmp_path: Path) -> None:
    body = (
        "from bench_schema import Row, arguments, write\n"
        "options = arguments(None)\n"
        "write(options.json, 'T', [Row(work='w', ours=float(options.quick), unit='s')])\n"
    )
    assert bench_run.run("core", _program(tmp_path, body), tmp_path, quick=True)
    result = json.loads((tmp_path / "core-thing.json").read_text())
    assert result["rows"][0]["ours"] == 1.0


def test_a_name_that_fits_no_benchmark_is_refused() -> None:
    with pytest.raises(ValueError, match="nothing-like-this"):
        bench_run.programs("cpu", ["nothing-like-this"])


def test_names_of_gpu_benchmarks_may_stand_behind_the_options(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = []

    class Done:
        returncode = 0

    def run(command: list[str], **_: object) -> Done:
        ran.append(command)
        return Done()

    monkeypatch.setattr(gpu_run, "gpus", lambda environment: 1)
    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr(sys, "argv", ["gpu_run.py", "bench", "--out", str(tmp_path), "core", "hec"])
    assert gpu_run.main() == 0
    assert ran[0][-2:] == ["core", "hec"]


def test_line_of_a_row() -> None:
    row = Row("rows", 1234.5, "GB/s", ratio=0.5, target=">= 0.9", met=False, note="n")
    assert row.line() == "-- rows: 1234 GB/s, ratio 0.500, MISSED: >= 0.9; n"
    assert Row("rows", 2, "ms").line() == "-- rows: 2 ms; "
