# SPDX-License-Identifier: Apache-2.0
"""Compiles torch-sparse's neighbour sampler alone: ``build_peer_sampler.py SOURCES LIBRARY``.

SOURCES is its unpacked source distribution (see sampling_work.py). Not a build of torch-sparse:
the library has the operators that PyG's loaders call, and no others.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sysconfig
from pathlib import Path

import torch
from torch.utils import cpp_extension

FILES = ("csrc/neighbor_sample.cpp", "csrc/cpu/neighbor_sample_cpu.cpp")


def command(sources: Path, library: Path) -> list[str]:
    """Return the compiler's command line."""
    compiler = shutil.which("c++") or shutil.which("g++") or "g++"
    folders = [*cpp_extension.include_paths(), sysconfig.get_paths()["include"]]
    libraries = Path(torch.__file__).parent / "lib"
    return [
        compiler, "-std=c++20", "-O2", "-DNDEBUG", "-fPIC", "-shared", "-w",
        f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}",
        f"-I{sources / 'csrc'}", f"-I{sources / 'third_party' / 'parallel-hashmap'}",
        *(f"-isystem{folder}" for folder in folders),
        *(str(sources / file) for file in FILES), "-o", str(library),
        f"-L{libraries}", "-ltorch_cpu", "-ltorch", "-lc10", f"-Wl,-rpath,{libraries}",
    ]  # fmt: skip


def main() -> None:
    """Compile, then see that the operators are there."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sources", type=Path)
    parser.add_argument("library", type=Path)
    options = parser.parse_args()
    subprocess.run(command(options.sources, options.library.resolve()), check=True)
    torch.ops.load_library(str(options.library.resolve()))  # type: ignore[no-untyped-call]
    print(f"{options.library}: {torch.ops.torch_sparse.neighbor_sample}")


if __name__ == "__main__":
    main()
