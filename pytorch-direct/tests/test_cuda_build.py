# SPDX-License-Identifier: Apache-2.0
"""What the build finds of CUDA, and what a build says of itself."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import pytorch_direct
from pytorch_direct import _native

MODULE = Path(__file__).resolve().parents[1] / "cmake" / "CudaOfThisMachine.cmake"
CMAKE = shutil.which("cmake", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")


def run_cmake(folder: Path, body: str, **variables: str) -> str:
    if CMAKE is None:
        pytest.skip("no cmake")
    script = folder / "script.cmake"
    script.write_text(f'cmake_minimum_required(VERSION 3.24)\ninclude("{MODULE}")\n{body}\n')
    environment = {"PATH": str(folder), "HOME": str(folder), **variables}
    done = subprocess.run(
        [CMAKE, "-P", str(script)], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stderr.strip()


def program(path: Path, says: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{says}\n")
    path.chmod(0o755)
    return path


FIND_NVCC = 'pytorch_direct_find_nvcc()\nmessage("$ENV{CUDACXX}")'
ARCHITECTURES = 'pytorch_direct_gpu_architectures(found)\nmessage("${found}")'


def test_nvcc_off_the_path_is_found(tmp_path: Path) -> None:
    nvcc = program(tmp_path / "cuda" / "bin" / "nvcc")
    assert run_cmake(tmp_path, FIND_NVCC, CUDA_HOME=str(tmp_path / "cuda")) == str(nvcc)


def test_nvcc_on_the_path_goes_before_one_that_is_not(tmp_path: Path) -> None:
    program(tmp_path / "cuda" / "bin" / "nvcc")
    nvcc = program(tmp_path / "nvcc")
    assert run_cmake(tmp_path, FIND_NVCC, CUDA_HOME=str(tmp_path / "cuda")) == str(nvcc)


def test_cudacxx_is_left_as_it_is(tmp_path: Path) -> None:
    program(tmp_path / "nvcc")
    assert run_cmake(tmp_path, FIND_NVCC, CUDACXX="/elsewhere/nvcc") == "/elsewhere/nvcc"


@pytest.mark.parametrize(
    ("says", "expected"),
    [
        ("echo 8.9; echo 9.0; echo 8.9", "89;90"),
        ("echo 12.0", "120"),
        ("echo NVIDIA-SMI has failed; exit 9", "90"),
    ],
)
def test_architectures_are_those_of_the_gpus(tmp_path: Path, says: str, expected: str) -> None:
    program(tmp_path / "nvidia-smi", says)
    assert run_cmake(tmp_path, ARCHITECTURES) == expected


def test_architecture_without_a_gpu(tmp_path: Path) -> None:
    assert run_cmake(tmp_path, ARCHITECTURES) == "90"


def test_a_build_says_what_it_has_kernels_for() -> None:
    assert bool(pytorch_direct.cuda_architectures) == _native.has_cuda
    assert all(entry[0].isdigit() for entry in pytorch_direct.cuda_architectures)
