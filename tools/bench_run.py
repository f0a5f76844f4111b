# SPDX-License-Identifier: Apache-2.0
"""Runs the packages' benchmark programs and keeps their results; measures nothing itself.

``python tools/bench_run.py --kind cpu --out docs/benchmarks/results [--quick] [NAME ...]``
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import bench_schema

ROOT = bench_schema.ROOT
PACKAGES = ("core", "pytorch-direct", "hector", "ssdtrain", "integration-tests")


def programs(kind: str, names: list[str]) -> list[tuple[str, Path]]:
    """Return (package, program) of every benchmark of a kind, in the order of the packages.

    Raises
    ------
    ValueError
        A name in `names` fits none of them.
    """
    found = []
    for package in PACKAGES:
        for path in sorted((ROOT / package / "benchmarks").glob("bench_*.py")):
            if path.stem.startswith("bench_gpu_") == (kind == "gpu"):
                found.append((package, path))
    if not names:
        return found
    if unknown := [name for name in names if not any(name in _label(*entry) for entry in found)]:
        known = ", ".join(_label(*entry) for entry in found)
        raise ValueError(f"no {kind} benchmark is called {', '.join(unknown)}; there are: {known}")
    return [entry for entry in found if any(name in _label(*entry) for name in names)]


def run(package: str, program: Path, out: Path, *, quick: bool) -> bool:
    """Run one program; True if it ended well and left a result that passes the check."""
    label = _label(package, program)
    target = out / f"{label}.json"
    fresh = target.with_suffix(".part")
    environment = os.environ.copy()
    paths = [str(Path(bench_schema.__file__).parent), environment.get("PYTHONPATH", "")]
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    command = [sys.executable, str(program), "--json", str(fresh), *(["--quick"] if quick else [])]
    print(f"== {label}", flush=True)
    start = time.monotonic()
    status = subprocess.run(command, env=environment, check=False).returncode
    try:
        if status != 0:
            raise ValueError(f"it ended with status {status}")
        bench_schema.check(json.loads(fresh.read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        fresh.unlink(missing_ok=True)
        print(f"== {label}: FAILED: {error}", flush=True)
        return False
    fresh.replace(target)
    print(f"== {label}: {target}, {time.monotonic() - start:.0f} s", flush=True)
    return True


def main() -> int:
    """Run what the command line asks for; 1 if any program failed or there is none."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kind", choices=("cpu", "gpu"), default="cpu")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that they run")
    parser.add_argument("names", nargs="*", help="parts of names; all when none is given")
    options = parser.parse_args()
    try:
        chosen = programs(options.kind, options.names)
    except ValueError as error:
        parser.error(str(error))
    out = options.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    good = [run(package, program, out, quick=options.quick) for package, program in chosen]
    print(f"benchmarks: {sum(good)} of {len(good)} wrote results to {out}")
    return 0 if good and all(good) else 1


def _label(package: str, program: Path) -> str:
    return f"{package}-{program.stem.removeprefix('bench_').replace('_', '-')}"


if __name__ == "__main__":
    sys.exit(main())
