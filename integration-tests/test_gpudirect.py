# SPDX-License-Identifier: Apache-2.0
"""GPUDirect Storage from end to end, over a libcufile of the tests' own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from packages import needed

needed("ssdtrain")
pytestmark = pytest.mark.gpu

HERE = Path(__file__).resolve().parent
COMPILER = shutil.which("cc") or shutil.which("gcc")


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if COMPILER is None:
        pytest.skip("no C compiler for the test's libcufile")
    made = tmp_path_factory.mktemp("cufile") / "libcufile.so.0"
    source = HERE / "fake_cufile.c"
    subprocess.run(
        [COMPILER, "-shared", "-fPIC", f"-Wl,-soname,{made.name}", "-o", made, source, "-ldl"],
        check=True,
    )
    return made


def account(library: Path, spill: Path, plan: str, **environment: str) -> dict[str, Any]:
    command = [sys.executable, HERE / "gpudirect_worker.py", library, spill, plan]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=120, check=False,
        env={**os.environ, "LD_PRELOAD": str(library), **environment},  # PyTorch brings its own.
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("plan", ["all", "auto"])
def test_bytes_go_from_the_gpu_to_the_drive(library: Path, tmp_path: Path, plan: str) -> None:
    found = account(library, tmp_path, plan)
    assert found["gpudirect"] == {"used": True, "reason": ""}
    assert all(found["equal"])
    assert found["faults"] == []
    assert found["live"] == {}
    if plan == "all":
        assert found["disk"] > 0
        assert found["written"] >= found["disk"]
        assert found["read"] >= found["disk"]


def test_failed_writes_lose_no_step(library: Path, tmp_path: Path) -> None:
    found = account(library, tmp_path, "all", FAKE_CUFILE_FAILS_AFTER="9")
    assert all(found["equal"])
    assert found["faults"]
