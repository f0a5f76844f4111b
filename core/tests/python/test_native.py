# SPDX-License-Identifier: Apache-2.0
"""A library downstream: found by CMake from the installed wheel, built and run."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

import datapath_core

SOURCE = Path(__file__).resolve().parents[1] / "downstream"
PREFIX = Path(datapath_core.__file__).parent


def test_a_downstream_program_builds_against_the_installed_package_and_runs(folder) -> None:
    cmake = shutil.which("cmake")
    if cmake is None or shutil.which("c++") is None:
        pytest.skip("cmake and a C++ compiler are needed")
    if not (PREFIX / "lib" / "cmake" / "datapath" / "datapath-config.cmake").exists():
        pytest.skip("datapath_core is not installed from a wheel, which has the CMake package")
    configure = [cmake, "-S", SOURCE, "-B", folder / "build", f"-Ddatapath_ROOT={PREFIX}"]
    for command in (configure, [cmake, "--build", folder / "build"]):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    (folder / "work").mkdir()
    done = subprocess.run(
        [folder / "build" / "downstream", folder / "work"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "all well" in done.stdout
