# SPDX-License-Identifier: Apache-2.0
"""Checks that versions agree: CHANGELOG with pyproject.toml, dependents with core's version."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("core", "pytorch-direct", "hector", "ssdtrain")


def faults() -> list[str]:
    """Return every disagreement, named by file."""
    found = []
    projects = {name: _read(ROOT / name / "pyproject.toml") for name in PACKAGES}
    core = projects["core"]["project"]["version"]
    wanted = f"datapath-core~={core.rsplit('.', 1)[0]}.0"
    pythons = {
        name: project["project"].get("requires-python") for name, project in projects.items()
    }
    if len(set(pythons.values())) != 1:
        found.append(f"requires-python differs: {pythons}")
    for name, project in projects.items():
        version = project["project"]["version"]
        changes = (ROOT / name / "CHANGELOG.md").read_text(encoding="utf-8")
        heading = re.search(r"^## (\d+\.\d+\.\d+)", changes, flags=re.MULTILINE)
        if heading is None or heading[1] != version:
            top = heading[1] if heading else "nothing"
            found.append(f"{name}/CHANGELOG.md begins with {top}, pyproject.toml says {version}")
        for source in sorted((ROOT / name / "python").glob("*/__init__.py")):
            written = re.search(r'^__version__ = "(.+)"', source.read_text("utf-8"), re.MULTILINE)
            if written and written[1] != version:
                found.append(f"{source.relative_to(ROOT)} says {written[1]}, not {version}")
        if name == "core":
            continue
        places = {"run": project["project"]["dependencies"]}
        if "scikit-build-core" in " ".join(project["build-system"]["requires"]):
            places["build"] = project["build-system"]["requires"]
        for place, requirements in places.items():
            given = [entry for entry in requirements if entry.startswith("datapath-core")]
            if given != [wanted]:
                found.append(f"{name}/pyproject.toml: to {place} it needs {given}, not {wanted!r}")
    return found


def _read(path: Path) -> dict[str, Any]:
    return tomllib.loads(path.read_text(encoding="utf-8"))


if __name__ == "__main__":
    for fault in (problems := faults()):
        print(fault)
    sys.exit(1 if problems else 0)
