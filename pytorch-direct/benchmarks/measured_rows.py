# SPDX-License-Identifier: Apache-2.0
"""A benchmark by sections whose result is written after every row: a run cut short keeps its rows.

Every program that uses it takes ``--sections A,B`` and ``--device``; with ``--quick`` and
``--device cpu`` it runs anywhere in seconds, which says that it works and nothing of speed.
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import bench_schema
import torch

from pytorch_direct.cli.measure import measuring_device

__all__ = ["Results", "options"]


def options(
    description: str | None, sections: Sequence[str], **more: tuple[type, Any]
) -> argparse.Namespace:
    """Parse a command line: what every benchmark has, sections, a device and options of its own.

    Parameters
    ----------
    description : str or None
    sections : sequence of str
        Names, in the order of running.
    **more
        Name -> (type, default).
    """
    own = argparse.ArgumentParser(add_help=False)
    own.add_argument("--sections", default=",".join(sections))
    own.add_argument("--device", default=None)
    for name, (kind, default) in more.items():
        own.add_argument(f"--{name.replace('_', '-')}", type=kind, default=default)
    mine, rest = own.parse_known_args()
    sys.argv[1:] = rest
    chosen = mine.sections.split(",")
    if unknown := [name for name in chosen if name not in sections]:
        own.error(f"no section {', '.join(unknown)}; there are {', '.join(sections)}")
    mine.sections = [name for name in sections if name in chosen]
    mine.device = measuring_device(mine.device)
    return argparse.Namespace(**vars(mine), **vars(bench_schema.arguments(description)))


class Results:
    """Rows and free figures of a run.

    Parameters
    ----------
    path : Path
        Of the JSON file.
    title : str
    """

    def __init__(self, path: Path, title: str) -> None:
        self._path, self._title = path, title
        self._rows: list[bench_schema.Row] = []
        self._failed: list[str] = []
        self._begun = time.monotonic()
        self.extra: dict[str, Any] = {}

    def add(self, row: bench_schema.Row) -> None:
        """Take a row, show it, write the file."""
        self._rows.append(row)
        print(row.line(), flush=True)
        self.write()

    def write(self) -> None:
        """Write what there is."""
        if self._rows:
            bench_schema.write(self._path, self._title, self._rows, extra=self.extra)

    def section(self, name: str, run: Callable[[], Iterable[bench_schema.Row]]) -> None:
        """Take the rows of a part of the benchmark; if it raises, say so and go on."""
        try:
            for row in run():
                self.add(row)
        except Exception:  # noqa: BLE001 - whatever it is, it is shown, and fails the run at its end
            print(f"FAILED: {name}\n{traceback.format_exc()}", flush=True)
            self._failed.append(name)
            self.extra["failed"] = self._failed
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
            torch.cuda.empty_cache()
        self.write()
        print(f"[{name} ended at {time.monotonic() - self._begun:.0f} s]", flush=True)

    def finish(self) -> None:
        """End the program with an error if a section failed."""
        if self._failed:
            raise SystemExit(f"failed: {', '.join(self._failed)}")
