# SPDX-License-Identifier: Apache-2.0
"""Writes docs/benchmarks/index.md from the raw results beside it; changes no figure.

``python tools/bench_pages.py`` writes the page, ``--check`` fails where it is out of date.
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from bench_schema import ROOT, check

FOLDER = ROOT / "docs" / "benchmarks"
HEAD = """\
<!-- Written by tools/bench_pages.py from results/*.json: do not edit. -->
# Benchmarks

Every row compares figures of one run on one machine: ours, a peer's where there is one, and the
limit of the hardware where a yardstick can show it. The raw results lie in
`docs/benchmarks/results/`; {doc}`README` says how they are made. Bandwidths are in decimal GB/s.
"""


def page(results: dict[str, dict[str, Any]]) -> str:
    """Return the whole page for results by file name."""
    parts = [HEAD]
    if not results:
        parts.append("No results have been recorded yet.\n")
    else:
        parts += ["## Targets\n", _targets(results)]
    for name, result in results.items():
        parts += [f"## {result['title']}\n", _context(name, result), _table(result["rows"])]
    return "\n".join(parts)


def _targets(results: dict[str, dict[str, Any]]) -> str:
    """Return the rows that have a target, shortfalls first."""
    rows = [
        (row, result["title"]) for result in results.values() for row in result["rows"]
        if row.get("target")
    ]  # fmt: skip
    if not rows:
        return "No row has a target.\n"
    rows.sort(key=lambda entry: bool(entry[0]["met"]))
    missed = sum(not row["met"] for row, _ in rows)
    lines = [
        f"{len(rows) - missed} of {len(rows)} targets are met.\n",
        "| target | work | ratio | met | in |",
        "|---|---|---|---|---|",
    ]
    for row, title in rows:
        met = "yes" if row["met"] else "**no**"
        cells = (row["target"], row["work"], _number(row.get("ratio")), met, title)
        lines.append(_line(cells))
    return "\n".join(lines) + "\n"


def _context(name: str, result: dict[str, Any]) -> str:
    machine = result["machine"]
    gpus = "; ".join(machine.get("gpus", [])) or "no GPU"
    versions = ", ".join(f"{key} {value}" for key, value in result["versions"].items())
    return (
        f"{machine['cpu']}, {machine['cores']} cores, {machine['memory_gib']} GiB, {gpus}; "
        f"Linux {machine['kernel']}. {versions}. Commit `{result['commit']}`, {result['date']}. "
        f"Raw: `{name}`.\n"
    )


def _table(rows: list[dict[str, Any]]) -> str:
    lines = [
        "| work | ours | peer | limit | ratio | target | note |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        unit = row["unit"]
        target = row.get("target") or ""
        if target:
            target += ": met" if row["met"] else ": **missed**"
        cells = (
            row["work"], f"{_number(row['ours'])} {unit}",
            _named(row, "peer"), _named(row, "limit"), _number(row.get("ratio")),
            target, row.get("note") or "",
        )  # fmt: skip
        lines.append(_line(cells))
    return "\n".join(lines) + "\n"


def _named(row: dict[str, Any], key: str) -> str:
    if row.get(key) is None:
        return ""
    return f"{_number(row[key])} {row['unit']} ({row[f'{key}_name']})"


def _number(value: float | None) -> str:
    if value is None:
        return ""
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def _line(cells: tuple[str, ...]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"


def main() -> int:
    """Write or check the page; 1 where ``--check`` finds it out of date."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    results = {}
    for path in sorted((FOLDER / "results").glob("*.json")):
        result = json.loads(path.read_text(encoding="utf-8"))
        try:
            check(result)
        except ValueError as error:
            raise SystemExit(f"{path}: {error}") from error
        results[path.name] = result
    target = FOLDER / "index.md"
    text = page(results)
    if options.check:
        if not target.exists() or target.read_text(encoding="utf-8") != text:
            print(f"{target} is out of date: run python tools/bench_pages.py")
            return 1
        return 0
    target.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
