# SPDX-License-Identifier: Apache-2.0
"""Checks what is in built wheels: all files that belong, none that does not, and how they link.

``python tools/check_wheels.py dist/*.whl``; needs readelf and nm (binutils). Does not install.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

SYSTEM = {
    "libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1", "libstdc++.so.6",
    "libgcc_s.so.1", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1",
}  # fmt: skip
WANTED = {
    "datapath_core": [
        r"datapath_core/__init__\.py", r"datapath_core/_core\.pyi", r"datapath_core/_core\..*\.so",
        r"datapath_core/libdatapath\.so", r"datapath_core/include/datapath/datapath\.h",
        r"datapath_core/include/datapath/datapath\.hpp",
        r"datapath_core/include/datapath/python/gil\.hpp",
        r"datapath_core/lib/cmake/datapath/datapath-config\.cmake",
    ],
    "pytorch_direct": [r"pytorch_direct/__init__\.py", r"pytorch_direct/_native\..*\.so"],
    "hector_rgnn": [r"hector/__init__\.py"],
    "ssdtrain": [r"ssdtrain/__init__\.py"],
}  # fmt: skip
UNWANTED = re.compile(r"(^|/)(tests?|benchmarks|__pycache__)/|\.(cpp|cu|o|a|pyc)$")
# What a library shows beside its own symbols: the names a linker adds.
IGNORED_SYMBOLS = {"_init", "_fini", "_edata", "_end", "__bss_start"}


def check(wheel: Path) -> list[str]:
    """Return what is wrong with a wheel; nothing is an empty list."""
    name = wheel.name.split("-")[0]
    if name not in WANTED:
        return [f"no rule for a distribution called {name}"]
    with zipfile.ZipFile(wheel) as archive, tempfile.TemporaryDirectory() as folder:
        files = archive.namelist()
        faults = [
            f"no file matches {pattern}" for pattern in (*WANTED[name], r".*/py\.typed",
            r".*\.dist-info/licenses/LICENSE")
            if not any(re.fullmatch(pattern, file) for file in files)
        ]  # fmt: skip
        faults += [f"does not belong: {file}" for file in files if UNWANTED.search(file)]
        top = {file.split("/")[0] for file in files if ".dist-info/" not in file}
        if len(top) != 1:
            faults.append(f"more than one package at the top: {sorted(top)}")
        libraries = [file for file in files if re.search(r"\.so(\.|$)", file)]
        for library in libraries:
            faults += _library_faults(Path(archive.extract(library, folder)), name)
    # More than those that are wanted: an old build was lying in the source tree.
    wanted = sum(pattern.endswith("\\.so") for pattern in WANTED[name])
    if len(libraries) > wanted:
        faults.append(f"{len(libraries)} libraries instead of {wanted}: {libraries}")
    pure = wheel.stem.endswith("-none-any")
    if pure == bool(libraries):
        faults.append("the tag and the contents disagree on native code")
    return faults


def _library_faults(library: Path, distribution: str) -> list[str]:
    dynamic = _output("readelf", "-dW", str(library))
    needed = set(re.findall(r"\(NEEDED\).*\[(.+?)\]", dynamic))
    allowed = SYSTEM | ({"libdatapath.so"} if library.name != "libdatapath.so" else set())
    faults = [f"{library.name} links {name}" for name in sorted(needed - allowed)]
    runpath = "".join(re.findall(r"\((?:RUNPATH|RPATH)\).*\[(.+?)\]", dynamic))
    wanted = "$ORIGIN" if distribution == "datapath_core" else "$ORIGIN/../datapath_core"
    if runpath != wanted:
        faults.append(f"{library.name}: run path is {runpath!r}, not {wanted!r}")
    shown = _output("nm", "-D", "--defined-only", "--format=just-symbols", str(library)).split()
    own = "dp_" if library.name == "libdatapath.so" else "PyInit_"
    for symbol in shown:
        bare = symbol.split("@")[0]
        if not bare.startswith((own, "DATAPATH_")) and bare not in IGNORED_SYMBOLS:
            faults.append(f"{library.name} shows {bare}")
    return faults


def _output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def main() -> int:
    """Check the wheels on the command line; 1 if anything is wrong with any, or there is none."""
    wheels = [Path(argument) for argument in sys.argv[1:]]
    bad = not wheels
    for wheel in wheels:
        faults = check(wheel)
        bad = bad or bool(faults)
        print(f"{wheel.name}: {'good' if not faults else 'BAD'}")
        for fault in faults:
            print(f"  {fault}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
