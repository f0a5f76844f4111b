# SPDX-License-Identifier: Apache-2.0
"""A library downstream, and the example of the docs: built against the installed wheel and run."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

import datapath_core

SOURCE = Path(__file__).resolve().parents[1] / "downstream"
PAGE = Path(__file__).resolve().parents[3] / "docs" / "core" / "native.md"
PREFIX = Path(datapath_core.__file__).parent


def build(source: Path, folder: Path) -> Path:
    """Build the downstream project in ``source`` and return its program."""
    cmake = shutil.which("cmake")
    if cmake is None or shutil.which("c++") is None:
        pytest.skip("cmake and a C++ compiler are needed")
    if not (PREFIX / "lib" / "cmake" / "datapath" / "datapath-config.cmake").exists():
        pytest.skip("datapath_core is not installed from a wheel, which has the CMake package")
    configure = [cmake, "-S", source, "-B", folder, f"-Ddatapath_ROOT={PREFIX}"]
    for command in (configure, [cmake, "--build", folder]):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    return folder / "downstream"


def run(program: Path, argument: Path) -> str:
    done = subprocess.run([program, argument], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_downstream_program_builds_against_the_installed_package_and_runs(folder) -> None:
    program = build(SOURCE, folder / "build")
    (folder / "work").mkdir()
    assert "all well" in run(program, folder / "work")


def test_another_project_may_contain_this_one(folder) -> None:
    cmake = shutil.which("cmake")
    if cmake is None or shutil.which("c++") is None:
        pytest.skip("cmake and a C++ compiler are needed")
    source = folder / "source"
    source.mkdir()
    text = (SOURCE / "CMakeLists.txt").read_text(encoding="utf-8")
    found = "find_package(datapath 0.1 CONFIG REQUIRED)"
    assert found in text
    contained = f'add_subdirectory("{SOURCE.parents[1]}" datapath)'
    # Its own choices, which the library has to leave alone.
    kept = 'if(CMAKE_BUILD_TYPE OR TARGET _core)\n  message(FATAL_ERROR "changed")\nendif()\n'
    (source / "CMakeLists.txt").write_text(text.replace(found, contained) + kept, encoding="utf-8")
    shutil.copy(SOURCE / "downstream.cpp", source)
    configure = [cmake, "-S", source, "-B", folder / "build"]
    done = subprocess.run(configure, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    rules = (folder / "build" / "datapath" / "cmake_install.cmake").read_text(encoding="utf-8")
    assert "libdatapath" not in rules


def test_the_example_of_the_page_builds_and_runs(folder) -> None:
    if not PAGE.exists():
        pytest.skip("the documentation is not here")
    blocks = re.findall(r"^```cpp\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.M | re.S)
    assert len(blocks) == 1
    source = folder / "source"
    source.mkdir()
    (source / "downstream.cpp").write_text(blocks[0], encoding="utf-8")
    shutil.copy(SOURCE / "CMakeLists.txt", source)
    assert run(build(source, folder / "build"), folder / "file") == f"{1 << 20} bytes\n"
    assert (folder / "file").read_bytes() == b"\7" * (1 << 20)
