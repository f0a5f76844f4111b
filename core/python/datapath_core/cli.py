# SPDX-License-Identifier: Apache-2.0
"""The command ``datapath``: describe this machine, measure it, tune the settings to it."""

from __future__ import annotations

import argparse
import json
import logging
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from datapath_core import __version__, _measure, _tune, describe, settings
from datapath_core.commands import exit_status

__all__ = ["main"]

DESCRIBE_EXAMPLES = """examples:
  datapath describe --probe            what works here, the CUDA devices too
  datapath describe --json > here.json
"""
BENCH_EXAMPLES = """examples:
  datapath bench --dir /nvme/spill     beside what that drive gives
  datapath bench --size 4GiB --json > rates.json
"""
TUNE_EXAMPLES = """examples:
  datapath tune --dir /nvme/spill --size 1GiB
  datapath tune --dry-run              show what would be kept
  datapath tune --reset
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return its exit status.

    Parameters
    ----------
    arguments : sequence of str, optional
        By default those of the process.
    """
    options = _parser().parse_args(arguments)
    logging.basicConfig(format="%(levelname)s %(name)s: %(message)s")
    return exit_status(f"datapath {options.command}", lambda: options.run(options))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="datapath", description=__doc__)
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    how = argparse.RawDescriptionHelpFormatter

    command = commands.add_parser(
        "describe", help="say what works here, and why the rest does not",
        epilog=DESCRIBE_EXAMPLES, formatter_class=how,
    )  # fmt: skip
    command.add_argument("--json", action="store_true", help="as JSON, for bug reports")
    command.add_argument("--probe", action="store_true", help="open the CUDA devices too")
    command.set_defaults(run=_describe)

    command = commands.add_parser(
        "bench", help="measure memory, copies and a directory's drive",
        epilog=BENCH_EXAMPLES, formatter_class=how,
    )  # fmt: skip
    _add_sample(command)
    command.add_argument("--json", action="store_true", help="as JSON")
    command.set_defaults(run=_bench)

    command = commands.add_parser(
        "tune", help="find the best I/O settings and keep them",
        epilog=TUNE_EXAMPLES, formatter_class=how,
    )  # fmt: skip
    _add_sample(command)
    command.add_argument("--dry-run", action="store_true", help="show them, keep nothing")
    command.add_argument(
        "--reset", action="store_true", help="remove what was kept, measure nothing"
    )
    command.set_defaults(run=_tune_settings)
    return parser


def _add_sample(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--dir",
        type=Path,
        default=Path(tempfile.gettempdir()),
        help="a directory on the drive to measure (%(default)s)",
    )
    command.add_argument(
        "--size", default="256MiB", help="size of the file that is made there (%(default)s)"
    )


def _describe(options: argparse.Namespace) -> int:
    described = describe(options.probe)
    if options.json:
        print(json.dumps(described, indent=1))
        return 0
    listed = described.pop("settings")
    rows = [("version", str(described.pop("version"))), ("ABI", str(described.pop("abi")))]
    for section, content in described.items():
        rows += [(name, text) for name, text in _flat(section, content)]
    _table(["what", "state"], rows)
    print()
    _table(
        ["setting", "value", "from", "variable"],
        [(row["name"], str(row["value"]), row["source"], row["environment"]) for row in listed],
    )
    wrong = [row["error"] for row in listed if row.get("error")]
    for error in wrong:
        print(error, file=sys.stderr)
    return 1 if wrong else 0


def _bench(options: argparse.Namespace) -> int:
    depth, threads = int(settings.get("io.depth")), int(settings.get("io.threads"))
    with _measure.sample_file(options.dir, settings.parse_bytes(options.size)) as sample:
        measured = [
            _measure.memory_rate(4 * sample.nbytes),
            *_measure.copy_rates(sample.nbytes),
            *_measure.disk_rates(sample, depth=depth, threads=threads),
        ]
    if options.json:
        print(json.dumps([{**vars(row), "ratio": row.ratio} for row in measured], indent=1))
        return 0
    _table(
        ["work", "ours", "limit", "ratio", "limit measured with"],
        [
            (
                row.work,
                _figure(row.ours, row.unit),
                _figure(row.limit, row.unit),
                f"{row.ratio:.2f}",
                row.limit_name,
            )
            for row in measured
        ],
    )
    return 0


def _tune_settings(options: argparse.Namespace) -> int:
    if options.reset:
        print("removed" if _tune.remove() else "there was nothing to remove", _tune.tuned_path())
        return 0
    tried: list[_tune.Trial] = []
    with _measure.sample_file(options.dir, settings.parse_bytes(options.size)) as sample:
        for trial in _tune.trials(sample):
            tried.append(trial)
            chosen = ", ".join(f"{name}={value}" for name, value in trial.values.items())
            print(f"{chosen}: {_figure(trial.figure, trial.unit)}", flush=True)
    best = _tune.choose(tried)
    print()
    _table(["setting", "value"], [(name, str(value)) for name, value in best.items()])
    if not options.dry_run:
        note = f"measured by datapath tune {time.strftime('%Y-%m-%d')} on {options.dir.resolve()}"
        print("written to", _tune.write(best, note))
    return 0


def _figure(value: float, unit: str) -> str:
    return f"{value:,.0f} {unit}" if unit == "IOPS" else f"{value:.2f} {unit}"


def _flat(name: str, content: Any) -> list[tuple[str, str]]:
    """Nested dicts as rows, "io.backends.uring.reason"."""
    if isinstance(content, dict) and content:
        return [row for key, value in content.items() for row in _flat(f"{name}.{key}", value)]
    if isinstance(content, list) and content:
        return [row for key, value in enumerate(content) for row in _flat(f"{name}.{key}", value)]
    return [(name, "" if content in (None, [], {}) else str(content))]


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    try:
        from rich.console import Console
        from rich.table import Table
    except ImportError:
        widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
        for row in (header, *rows):
            print("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)))
        return
    table = Table(*header)
    for row in rows:
        table.add_row(*row)
    Console().print(table)


if __name__ == "__main__":
    sys.exit(main())
