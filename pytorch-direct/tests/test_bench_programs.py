# SPDX-License-Identifier: Apache-2.0
"""The benchmark programs run at small sizes on the CPU and leave results that pass the check."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1]
TOOLS = PACKAGE.parent / "tools"


def run(program: str, out: Path, *more: str) -> dict:
    environment = os.environ.copy()
    paths = [str(TOOLS), *sys.path, environment.get("PYTHONPATH", "")]
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    environment["OMP_WAIT_POLICY"] = "passive"
    command = [sys.executable, str(PACKAGE / "benchmarks" / program), "--json", str(out), "--quick"]
    done = subprocess.run(
        [*command, *more], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    subprocess.run([sys.executable, str(TOOLS / "bench_schema.py"), str(out)], check=True)
    return json.loads(out.read_text())


def test_gathers(tmp_path):
    result = run("bench_gpu_gather.py", tmp_path / "r.json", "--device", "cpu")
    works = " ".join(row["work"] for row in result["rows"])
    for said in ("random rows of 64 B", "412 B, packed", "int8", "register", "by heat"):
        assert said in works
    assert not any(row["target"] for row in result["rows"] if "random rows of 64 B" in row["work"])


def test_sections_are_chosen_and_checked(tmp_path):
    result = run(
        "bench_gpu_gather.py", tmp_path / "r.json", "--device", "cpu", "--sections", "cast"
    )
    assert len(result["rows"]) == 3
    with pytest.raises(AssertionError, match="no section nothing"):
        run("bench_gpu_gather.py", tmp_path / "r.json", "--sections", "nothing")


def test_loading(tmp_path):
    result = run("bench_loader.py", tmp_path / "r.json")
    assert all(row["ours"] > 0 for row in result["rows"])


def test_epochs(tmp_path):
    pytest.importorskip("torch_geometric")
    result = run(
        "bench_gpu_epoch.py", tmp_path / "r.json", "--device", "cpu", "--sections", "epoch"
    )
    loss = next(row for row in result["rows"] if row["work"].startswith("loss"))
    # Features "in the GPU's memory" are the same tensors here, so that nothing may differ.
    assert loss["ours"] == loss["limit"]
    assert "21 of 21" in loss["note"]
