# SPDX-License-Identifier: Apache-2.0
"""Skips tests whose packages are not installed; for nothing else."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

__all__ = ["needed"]


def needed(name: str) -> Any:
    """Return the package, or skip the test module with the reason.

    A folder of the same name on the path makes an empty namespace package; that counts as absent.
    """
    try:
        package = importlib.import_module(name)
    except ImportError as error:
        pytest.skip(f"{name} cannot be imported: {error}", allow_module_level=True)
    if getattr(package, "__file__", None) is None:
        pytest.skip(f"{name} is not installed (nox -s dev)", allow_module_level=True)
    return package
