# SPDX-License-Identifier: Apache-2.0
"""Fixtures of core's tests."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from datapath_core import io


@pytest.fixture(scope="session", autouse=True)
def _no_tuned_file(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep the settings of whoever runs the tests out of them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        for name in [name for name in os.environ if name.startswith("DATAPATH_")]:
            patch.delenv(name)
        yield


@pytest.fixture(params=["uring", "threads"])
def engine(request: pytest.FixtureRequest) -> Iterator[io.Engine]:
    """Give an engine of each backend that works here."""
    from datapath_core import UnsupportedError

    try:
        made = io.Engine(request.param, threads=2)
    except UnsupportedError as error:
        pytest.skip(str(error))
    with made:
        yield made


def open_handles() -> int:
    """Count the process's open files."""
    return len(list(Path("/proc/self/fd").iterdir()))


def threads() -> int:
    """Count the process's threads, those of the library too."""
    return len(list(Path("/proc/self/task").iterdir()))


@pytest.fixture
def returns_to_baseline() -> Iterator[None]:
    """Fail if the test leaves files open or threads running."""
    gc.collect()
    before = open_handles(), threads()
    yield
    # Threads that have been joined may be listed for a moment longer.
    for _ in range(1500):
        gc.collect()
        if open_handles() <= before[0] and threads() <= before[1]:
            return
        time.sleep(0.02)
    assert (open_handles(), threads()) == before, "open files and threads did not come back"


@pytest.fixture
def child() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run Python text in a process of its own."""

    def run(
        text: str, *arguments: object, check: bool = True, timeout: float = 60, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(text), *map(str, arguments)],
            capture_output=True,
            text=True,
            timeout=timeout,
            env={**os.environ, **environment},
            check=False,
        )
        if check and done.returncode != 0:
            pytest.fail(f"the child ended with {done.returncode}:\n{done.stdout}\n{done.stderr}")
        return done

    return run


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Give an empty directory."""
    return tmp_path
