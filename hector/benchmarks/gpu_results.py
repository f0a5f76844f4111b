# SPDX-License-Identifier: Apache-2.0
"""A file of results that is whole after every row, so that a run cut short loses nothing."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import bench_schema

__all__ = ["Results"]


class Results:
    """Rows and other figures of one run.

    Parameters
    ----------
    path : Path
    title : str
    """

    def __init__(self, path: Path, title: str) -> None:
        self.path = path
        self.head = {"title": title, **bench_schema.collect()}
        self.start = time.monotonic()
        self.rows: list[bench_schema.Row] = []
        self.extra: dict[str, Any] = {}

    def add(self, row: bench_schema.Row) -> None:
        """Keep a row and write the file."""
        self.rows.append(row)
        text = f"{row.work}: {row.ours:.4g} {row.unit}"
        if row.peer is not None:
            text += f"; {row.peer:.4g} {row.peer_name}"
        if row.ratio is not None:
            text += f"; {row.ratio:.3g}"
        if row.target:
            text += f" ({row.target}: {'met' if row.met else 'MISSED'})"
        since = f"[{time.monotonic() - self.start:.0f} s] "
        print(since + (f"{text}; {row.note}" if row.note else text), flush=True)
        self.write()

    def keep(self, section: str, key: str, value: object) -> None:
        """Keep raw figures beside the rows."""
        self.extra.setdefault(section, {})[key] = value

    def write(self) -> None:
        """Write the file; nothing before there is a row."""
        if not self.rows:
            return
        result = {**self.head, "rows": [asdict(row) for row in self.rows], "extra": self.extra}
        bench_schema.check(result)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        fresh = self.path.with_suffix(".writing")
        fresh.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
        fresh.replace(self.path)
