# SPDX-License-Identifier: Apache-2.0
"""Refuses to be imported where the library cannot work; it looks at files only."""

from __future__ import annotations

import importlib.machinery
import os
import re
import sys

from datapath_core.errors import UnsupportedError

__all__ = ["UnsupportedPlatformError", "check"]

ARCHITECTURES = ("x86_64", "aarch64")


class UnsupportedPlatformError(UnsupportedError, ImportError):
    """The package cannot be used on this platform, or beside this PyTorch."""


def check() -> None:
    """Raise if this platform or the installed PyTorch cannot be served.

    Raises
    ------
    UnsupportedPlatformError
        Outside Linux on x86-64 or aarch64, or if the installed PyTorch is built for ROCm, whose
        device is called ``cuda`` too but is none.
    """
    # The module `platform` would say it too, but costs a good part of the import.
    names = os.uname() if hasattr(os, "uname") else (sys.platform, "", "", "", "")
    system, machine = names[0], names[4]
    if system != "Linux" or machine not in ARCHITECTURES:
        raise UnsupportedPlatformError(
            f"datapath_core runs on Linux with {' or '.join(ARCHITECTURES)}; this is "
            f"{system} {machine}"
        )
    if version := _rocm_version():
        raise UnsupportedPlatformError(
            f"the installed PyTorch is built for ROCm {version}, whose device 'cuda' is no CUDA "
            "device; datapath_core works with PyTorch for CUDA or for the CPU"
        )


def _rocm_version() -> str:
    """Return the ROCm version of the installed torch, without importing it; empty for none."""
    torch = sys.modules.get("torch")
    if torch is not None:
        return str(getattr(getattr(torch, "version", None), "hip", None) or "")
    spec = importlib.machinery.PathFinder.find_spec("torch")
    if spec is None or not isinstance(spec.loader, importlib.machinery.SourceFileLoader):
        return ""
    try:
        text = spec.loader.get_data(f"{spec.loader.path.rpartition('/')[0]}/version.py").decode()
    except OSError:
        return ""
    found = re.search(r"^hip\b[^=\n]*=\s*['\"]([^'\"]+)['\"]", text, re.MULTILINE)
    return found[1] if found else ""
