# SPDX-License-Identifier: Apache-2.0
"""Puts the data's and the examples' modules on the path; both are scripts, not packages."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE / "data"), str(HERE.parent / "docs" / "examples")]

import debian_graph  # noqa: E402
import torch  # noqa: E402

# Small tensors gain nothing from threads, and threads that spin beside other tests cost a lot.
torch.set_num_threads(1)


@pytest.fixture(scope="session")
def debian() -> debian_graph.DebianGraph:
    return debian_graph.load()
