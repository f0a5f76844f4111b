# SPDX-License-Identifier: Apache-2.0
"""Builds a C++ benchmark against the installed package and reads its JSON lines."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import datapath_core

HERE = Path(__file__).resolve().parent
PACKAGE = Path(datapath_core.__file__).resolve().parent


def library_folder() -> Path:
    """Return the folder of the installed ``libdatapath.so``; an editable one has two folders."""
    native = Path(datapath_core._core.__file__).resolve().parent
    return next(folder for folder in (PACKAGE, native) if (folder / "libdatapath.so").exists())


def build(name: str, folder: Path) -> Path:
    """Compile ``name.cpp`` of this folder and return the program.

    Raises
    ------
    RuntimeError
        There is no C++ compiler, or it failed.
    """
    compiler = os.environ.get("CXX") or shutil.which("g++") or shutil.which("c++")
    if compiler is None:
        raise RuntimeError("the native benchmarks need a C++ compiler: install g++ or set CXX")
    target = folder / name
    library = library_folder()
    command = [
        compiler, "-O3", "-std=c++20", str(HERE / f"{name}.cpp"), "-I", str(PACKAGE / "include"),
        "-I", str(HERE.parent / "include"), "-L", str(library), "-ldatapath",
        f"-Wl,-rpath,{library}", "-lpthread", "-ldl", "-o", str(target),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"compiling {name}.cpp failed:\n{done.stderr}")
    return target


def run(program: Path, *arguments: object) -> list[dict[str, Any]]:
    """Run a program and return the objects that it printed, one a line.

    Raises
    ------
    RuntimeError
        It failed; the text is its own.
    """
    done = subprocess.run(
        [str(program), *map(str, arguments)], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise RuntimeError(f"{program.name} ended with status {done.returncode}: {done.stderr}")
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
