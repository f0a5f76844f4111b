# SPDX-License-Identifier: Apache-2.0
"""Runs the GPU tests or benchmarks, with nothing but Python, pip, pytest and torch on the machine.

``python tools/gpu_run.py tests --out gpu-report [--wheels dist] [-- more for pytest]``
``python tools/gpu_run.py bench --out docs/benchmarks/results [--wheels dist] [NAME ...]``

With ``--wheels`` the packages are installed from that folder into a fresh one, without network and
without touching the environment; without it, those that are installed are used. A copy of this
repository must be there for the tests and benchmarks. ``tests`` writes ``gpu-tests.json``.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import bench_schema

ROOT = bench_schema.ROOT
OURS = ("datapath-core", "pytorch-direct", "hector-rgnn", "ssdtrain")
# Installed from the same folder where the machine lacks them: distribution, import name.
COMPANIONS = {
    "pytest": "pytest", "hypothesis": "hypothesis", "tqdm": "tqdm", "rich": "rich",
    "scipy": "scipy", "matplotlib": "matplotlib",
}  # fmt: skip
COUNT_GPUS = "import torch; print(torch.cuda.device_count() if torch.version.cuda else 0)"


def install(wheels: Path, target: Path) -> None:
    """Install the four packages, and those companions that are missing here, into a folder.

    Raises
    ------
    subprocess.CalledProcessError
        pip found no wheel for this Python.
    """
    lacking = [name for name, module in COMPANIONS.items() if not importlib.util.find_spec(module)]
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps",
               "--find-links", str(wheels), "--target", str(target)]  # fmt: skip
    subprocess.run([*command, *OURS], check=True)
    for name in lacking:
        # A companion may be absent from the folder too; what needs it then says so by itself.
        subprocess.run([*command, name], check=False)


def gpus(environment: dict[str, str]) -> int:
    """Return how many GPUs torch sees, asked in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", COUNT_GPUS], env=environment, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    if done.returncode != 0:
        raise SystemExit(f"torch cannot be imported here:\n{done.stderr}")
    return int(done.stdout)


def tests(out: Path, environment: dict[str, str], count: int, extra: list[str]) -> int:
    """Run the tests marked gpu (and multigpu where there are two) of each package.

    Returns 0 if all passed; a package that has none counts as passed, all having none does not.
    """
    marked = "gpu or multigpu" if count > 1 else "gpu and not multigpu"
    outcome: dict[str, Any] = {**bench_schema.collect(), "marked": marked, "packages": {}}
    failed = False
    for folder in ("core/tests/python", "pytorch-direct/tests", "hector/tests", "ssdtrain/tests",
                   "integration-tests"):  # fmt: skip
        if not (ROOT / folder).is_dir():
            continue
        report = out / "junit.xml"
        report.unlink(missing_ok=True)
        command = [sys.executable, "-m", "pytest", "-c", "pyproject.toml", "-m", marked]
        command += ["-p", "no:cacheprovider", f"--junitxml={report}", folder, *extra]
        print(f"== {folder}", flush=True)
        start = time.monotonic()
        status = subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode
        counts = _counts(report)
        failed = failed or status not in (0, 5)  # 5: pytest found no test with these marks
        outcome["packages"][folder] = {
            "exit_status": status, "seconds": round(time.monotonic() - start, 1), **counts,
        }  # fmt: skip
    ran = sum(entry.get("passed", 0) for entry in outcome["packages"].values())
    outcome["passed"] = not failed and ran > 0
    target = out / "gpu-tests.json"
    target.write_text(json.dumps(outcome, indent=1) + "\n", encoding="utf-8")
    print(f"GPU tests: {ran} passed{', some FAILED' if failed else ''}; {target}")
    return 0 if outcome["passed"] else 1


def _counts(report: Path) -> dict[str, Any]:
    if not report.exists():
        return {"passed": 0}
    suite = next(ET.parse(report).getroot().iter("testsuite"))
    total, failures, errors, skipped = (
        int(suite.get(key, 0)) for key in ("tests", "failures", "errors", "skipped")
    )
    broken = [
        f"{case.get('classname')}::{case.get('name')}" for case in suite.iter("testcase")
        if case.find("failure") is not None or case.find("error") is not None
    ]  # fmt: skip
    report.unlink()
    return {
        "passed": total - failures - errors - skipped, "failed": failures, "errors": errors,
        "skipped": skipped, "broken": broken,
    }  # fmt: skip


def main() -> int:
    """Install where asked, then run tests or benchmarks."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("tests", "bench"))
    parser.add_argument("--out", type=Path, required=True, help="folder for the results")
    parser.add_argument("--wheels", type=Path, help="folder with the four wheels for this Python")
    parser.add_argument("--quick", action="store_true", help="benchmarks: small sizes")
    parser.add_argument("names", nargs="*", help="benchmarks: parts of names; all without")
    # What follows -- is pytest's own: argparse would take its options for ours.
    ours, dashes, for_pytest = sys.argv[1:], "--", []
    if dashes in ours:
        cut = ours.index(dashes)
        ours, for_pytest = ours[:cut], ours[cut + 1 :]
    # Names may stand behind options, as the usage above has them.
    options = parser.parse_intermixed_args(ours)
    out = options.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    environment = os.environ.copy()
    with tempfile.TemporaryDirectory(prefix="datapath-gpu-") as folder:
        if options.wheels:
            install(options.wheels.resolve(), Path(folder))
            paths = [folder, environment.get("PYTHONPATH", "")]
            environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
            sys.path.insert(0, folder)  # so that the versions written down are those installed here
        count = gpus(environment)
        if count == 0:
            raise SystemExit("torch sees no NVIDIA GPU here; nothing was run")
        if options.what == "tests":
            return tests(out, environment, count, for_pytest)
        runner = Path(__file__).with_name("bench_run.py")
        quick = ["--quick"] if options.quick else []
        command = [sys.executable, str(runner), "--kind", "gpu", "--out", str(out), *quick]
        command += options.names
        return subprocess.run(command, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
