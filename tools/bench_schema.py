# SPDX-License-Identifier: Apache-2.0
"""The form of a benchmark result: what a row says, where it ran, how a file of results is checked.

Not for running benchmarks (``bench_run.py``) nor for showing them (``bench_pages.py``). Uses the
standard library only, so that it works beside wheels on a bare machine.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import json
import math
import os
import platform
import shutil
import subprocess
import sys
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

__all__ = ["Row", "arguments", "check", "collect", "write"]

ROOT = Path(__file__).resolve().parent.parent
DISTRIBUTIONS = (
    "datapath-core", "pytorch-direct", "hector-rgnn", "ssdtrain", "torch", "numpy", "triton",
    "torch-geometric",
)  # fmt: skip


@dataclass(frozen=True)
class Row:
    """One line of a result table; all of its figures come from the same run on the same machine.

    Parameters
    ----------
    work : str
        What was done, with its sizes: "4 KiB random reads, O_DIRECT, depth 128, 2 threads".
    ours : float
        Our figure in `unit`.
    unit : str
        "GB/s" (decimal), "IOPS", "ms", "us", "GiB", ...
    peer, peer_name : float or None, str
        What another library or PyTorch itself reaches, and which.
    limit, limit_name : float or None, str
        What the hardware gives, and the yardstick that measured it.
    ratio : float or None
        The ratio that `target` speaks of; usually ``ours / limit`` or ``ours / peer``, the other
        way round for times.
    target : str
        The target as the table of targets words it: ">= 95 % of the limit"; empty for none.
    met : bool or None
        Whether `target` was met; ``None`` where there is none.
    note : str
        Page-cache state for anything that reads files; whatever else a reader must know.
    """

    work: str
    ours: float
    unit: str
    peer: float | None = None
    peer_name: str = ""
    limit: float | None = None
    limit_name: str = ""
    ratio: float | None = None
    target: str = ""
    met: bool | None = None
    note: str = ""

    def line(self) -> str:
        """Return what a benchmark prints of the row when it has it."""
        ratio = "" if self.ratio is None else f", ratio {self.ratio:.3f}"
        met = "" if self.met is None else f", {'met' if self.met else 'MISSED'}: {self.target}"
        return f"-- {self.work}: {self.ours:.4g} {self.unit}{ratio}{met}; {self.note}"


def arguments(description: str | None) -> argparse.Namespace:
    """Parse the command line that every benchmark program has: ``--json PATH`` and ``--quick``."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--json", type=Path, required=True, help="where the results go")
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it runs")
    return parser.parse_args()


def write(path: Path, title: str, rows: list[Row], *, extra: dict[str, Any] | None = None) -> None:
    """Check the rows and write them with machine, versions, commit and date.

    Raises
    ------
    ValueError
        A row is not well formed; nothing is written.
    """
    result = {
        "title": title, **collect(), "rows": [asdict(row) for row in rows], "extra": extra or {},
    }  # fmt: skip
    check(result)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def check(result: dict[str, Any]) -> None:
    """Raise ``ValueError`` naming the first thing that is wrong with a result."""
    for key, kind in (
        ("title", str), ("machine", dict), ("versions", dict), ("commit", str), ("date", str),
        ("rows", list),
    ):  # fmt: skip
        if not isinstance(result.get(key), kind):
            raise ValueError(f"result: {key!r} is missing or is not a {kind.__name__}")
    if not result["rows"]:
        raise ValueError("result: it has no rows")
    known = {field.name for field in fields(Row)}
    works: set[str] = set()
    for number, row in enumerate(result["rows"]):
        where = f"row {number} ({row.get('work')!r})"
        if unknown := set(row) - known:
            raise ValueError(f"{where}: unknown keys {sorted(unknown)}")
        if not row.get("work") or not row.get("unit"):
            raise ValueError(f"{where}: 'work' and 'unit' must be given")
        if row["work"] in works:
            raise ValueError(f"{where}: another row has the same 'work'; say what differs")
        works.add(row["work"])
        for key in ("ours", "peer", "limit", "ratio"):
            value = row.get(key)
            if value is None and key != "ours":
                continue
            if not isinstance(value, int | float) or not math.isfinite(value):
                raise ValueError(f"{where}: {key!r} is {value!r}, not a finite number")
        for key in ("peer", "limit"):
            if row.get(key) is not None and not row.get(f"{key}_name"):
                raise ValueError(f"{where}: {key!r} has no name")
        if bool(row.get("target")) != (row.get("met") is not None):
            raise ValueError(f"{where}: 'target' and 'met' go together")


def collect() -> dict[str, Any]:
    """Return where this runs: ``machine``, ``versions``, ``commit`` and ``date``."""
    return {
        "machine": _machine(),
        "versions": _versions(),
        "commit": _commit(),
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
    }


def _machine() -> dict[str, Any]:
    machine: dict[str, Any] = {
        "cpu": _first_match(Path("/proc/cpuinfo"), "model name") or platform.processor(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30, 1),
        "kernel": platform.release(),
        "architecture": platform.machine(),
        "gpus": [],
    }
    if shutil.which("nvidia-smi"):
        query = subprocess.run(
            ["nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"],
            capture_output=True, text=True, check=False, timeout=60,
        )  # fmt: skip
        machine["gpus"] = [line.strip() for line in query.stdout.splitlines() if line.strip()]
    return machine


def _versions() -> dict[str, str]:
    versions = {"python": platform.python_version()}
    for name in DISTRIBUTIONS:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


def _commit() -> str:
    """Return the commit that is measured; a copy without ``.git`` brings it in a variable."""
    given = os.environ.get("DATAPATH_BENCH_COMMIT")
    if given:
        return given
    command = ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
        return done.stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def _first_match(path: Path, key: str) -> str:
    try:
        for line in path.read_text().splitlines():
            if line.startswith(key):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return ""


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        check(json.loads(Path(argument).read_text(encoding="utf-8")))
