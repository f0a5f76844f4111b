# SPDX-License-Identifier: Apache-2.0
"""An offloader that moves whatever may go."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def offloader(tmp_path: Path) -> Iterator[Any]:
    """Every tensor goes to the disk, has gone when forward goes on, and is checked on return.

    After the test nothing of it may be left.
    """
    ssdtrain = pytest.importorskip("ssdtrain")
    off = ssdtrain.Offloader(tmp_path, 0, "256MiB", min_bytes=1, plan="all", checks=True, backlog=0)
    yield off
    gc.collect()
    assert off.report()["live_bytes"] == {}
    off.close()
