# SPDX-License-Identifier: Apache-2.0
"""A benchmark's rows by sections: written after each, so that a run that ends early loses none.

Which sections run can be chosen on the command line.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Concatenate, ParamSpec

from bench_schema import Row, write
from strategies import Measured, empty_device

__all__ = ["Results", "chosen"]

Arguments = ParamSpec("Arguments")


def chosen(flag: str, values: Sequence[str]) -> list[str]:
    """Take ``flag A,B`` off the command line; its values, or all that there are."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument(flag, default=",".join(values), dest="found")
    options, sys.argv[1:] = parser.parse_known_args()
    found: list[str] = options.found.split(",")
    if unknown := set(found) - set(values):
        parser.error(f"{flag}: {', '.join(sorted(unknown))}; there are {', '.join(values)}")
    return found


class Results:
    """Rows and raw figures of a run.

    Parameters
    ----------
    path : Path
        Of the JSON file.
    title : str
    """

    def __init__(self, path: Path, title: str) -> None:
        self._path = path
        self._title = title
        self._rows: list[Row] = []
        self._extra: dict[str, Any] = {}
        self._failed: list[str] = []
        self._begun = time.monotonic()

    def add(self, *rows: Row) -> None:
        """Take rows, in the place of earlier ones of the same work, and show them."""
        for row in rows:
            self._rows = [*(other for other in self._rows if other.work != row.work), row]
            print(row.line(), flush=True)

    def remember(self, work: str, found: Measured, name: str | None = None) -> None:
        """Keep raw figures."""
        self._extra[f"{work}: {name or found.name}"] = asdict(found)

    def keep_raw(self, name: str, figures: object) -> None:
        """Keep other raw figures."""
        self._extra[name] = figures

    def section(
        self,
        run: Callable[Concatenate[Results, Arguments], None],
        *args: Arguments.args,
        **kwargs: Arguments.kwargs,
    ) -> None:
        """Run a part of the benchmark; what it raises is shown, and the next part still runs."""
        try:
            run(self, *args, **kwargs)
        except Exception:  # noqa: BLE001 - whatever it is, it is shown, and fails the run at its end
            name = " ".join([run.__name__, *map(str, args)])
            print(f"FAILED: {name}\n{traceback.format_exc()}", flush=True)
            self._failed.append(name)
            self._extra["failed"] = self._failed
        empty_device()
        self.save()
        print(f"[{time.monotonic() - self._begun:.0f} s]", flush=True)

    def save(self) -> None:
        """Write what there is, as soon as there is a row."""
        if self._rows:
            write(self._path, self._title, self._rows, extra=self._extra)

    def finish(self) -> None:
        """End the program with an error if a section failed."""
        if self._failed:
            raise SystemExit(f"failed: {', '.join(self._failed)}")
