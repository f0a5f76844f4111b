# SPDX-License-Identifier: Apache-2.0
"""Runs a test file's checks in a process where Triton interprets kernels on the CPU."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"


def require_interpreter() -> None:
    """Skip a whole file outside the process that test_triton_interpreted starts."""
    if not INTERPRETED:
        pytest.skip("test_triton_interpreted runs this file", allow_module_level=True)
    pytest.importorskip("triton")


def run_interpreted(*files: str) -> None:
    """Run test files under the interpreter, which must be chosen before Triton is imported."""
    if INTERPRETED:
        pytest.skip("this is that process")
    if importlib.util.find_spec("triton") is None:
        pytest.skip("Triton is not installed")
    folder = Path(__file__).parent
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    environment.pop("PYTEST_CURRENT_TEST", None)
    command = [sys.executable, "-m", "pytest", "-q", "-x", *(str(folder / name) for name in files)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert " passed" in done.stdout
    assert "failed" not in done.stdout
