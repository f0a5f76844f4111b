# SPDX-License-Identifier: Apache-2.0
"""Finds a Python of a given version on this machine, also where version managers keep them."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

__all__ = ["find"]

ASK = "import sys, venv, ensurepip; print('%d.%d' % sys.version_info[:2])"


def find(version: str) -> Path | None:
    """Return an interpreter that runs, is of `version` ("3.12") and can make environments."""
    return next((path for path in _candidates(version) if _answers(path, version)), None)


def _candidates(version: str) -> list[Path]:
    name = f"python{version}"
    on_path = shutil.which(name)
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    uv = Path(os.environ.get("UV_PYTHON_INSTALL_DIR", Path.home() / ".local/share/uv/python"))
    managed = [
        *sorted(pyenv.glob(f"{version}*/bin/{name}"), reverse=True),
        *sorted(uv.glob(f"cpython-{version}*/bin/{name}"), reverse=True),
    ]
    return [*([Path(on_path)] if on_path else []), *managed]


def _answers(path: Path, version: str) -> bool:
    # A shim of a version manager may stand on PATH and refuse.
    try:
        done = subprocess.run(
            [str(path), "-c", ASK], capture_output=True, text=True, check=False, timeout=60
        )
    except OSError:
        return False
    return done.returncode == 0 and done.stdout.strip() == version
