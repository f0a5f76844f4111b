# SPDX-License-Identifier: Apache-2.0
"""The command line of ``pytorch-direct``; what its commands do is in modules of their names."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

from datapath_core.commands import exit_status, with_threads_that_sleep
from pytorch_direct import __version__
from pytorch_direct.cli import bench, trace
from pytorch_direct.cli.training import Workload

__all__ = ["main"]

BENCH_EXAMPLES = """examples:
  pytorch-direct bench                                    all three, a table of 4 GiB
  pytorch-direct bench --only gather --gib 32 --picture rates.svg --csv rates.csv
  pytorch-direct bench --only epoch --nodes 10 --edges 200 --width 256 --json epoch.json
"""
TRACE_EXAMPLES = """examples:
  pytorch-direct trace pipeline.json                      then open it in https://ui.perfetto.dev
  pytorch-direct trace pipeline.json --batches 50 --nodes 10 --edges 200 --width 256
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return its exit status.

    Parameters
    ----------
    arguments : sequence of str, optional
        By default those of the process.

    Returns
    -------
    int
        0; 1 after an error or where nobody reads on, 2 for a wrong command line, 130 after Ctrl-C.
    """
    options = _parser().parse_args(arguments)
    if arguments is None:
        with_threads_that_sleep()
    return exit_status(f"pytorch-direct {options.command}", lambda: _run(options))


def _run(options: argparse.Namespace) -> None:
    work = Workload(
        int(options.nodes * 1e6), int(options.edges * 1e6), options.width, options.fanouts,
        options.batch_size, options.hidden,
    )  # fmt: skip
    if options.command == "bench":
        request = bench.Request(
            options.device, options.only, options.gib, options.widths, options.count,
            work, options.batches,
        )  # fmt: skip
        bench.run(request, json=options.json, csv=options.csv, picture=options.picture)
    else:
        trace.run(work, options.device, options.batches, options.out)


def _numbers(least: int) -> Callable[[str], list[int]]:
    """What reads an argument: integers with commas between."""

    def read(text: str) -> list[int]:
        try:
            numbers = [int(part) for part in text.split(",")]
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r}: integers with commas wanted") from None
        if min(numbers) < least:
            raise argparse.ArgumentTypeError(f"{min(numbers)} is below {least}")
        return numbers

    return read


def _sections(text: str) -> list[str]:
    names = text.split(",")
    if unknown := [name for name in names if name not in bench.SECTIONS]:
        raise argparse.ArgumentTypeError(
            f"{', '.join(unknown) or 'nothing'} is none of {', '.join(bench.SECTIONS)}"
        )
    return [name for name in bench.SECTIONS if name in names]


def _above_zero(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no number") from None
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    return number


def _count(text: str) -> int:
    numbers = _numbers(1)(text)
    if len(numbers) > 1:
        raise argparse.ArgumentTypeError(f"{text!r}: one integer wanted")
    return numbers[0]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="pytorch-direct", description=__doc__)
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    how = argparse.RawDescriptionHelpFormatter
    one = commands.add_parser(
        "bench", help="rates of gathers by row width, of sampling, and an epoch's time",
        description=bench.__doc__, epilog=BENCH_EXAMPLES, formatter_class=how,
    )  # fmt: skip
    two = commands.add_parser(
        "trace", help="what a loader and training do when, for Perfetto and Chrome",
        description=trace.__doc__, epilog=TRACE_EXAMPLES, formatter_class=how,
    )  # fmt: skip
    one.add_argument(
        "--only", type=_sections, default=list(bench.SECTIONS), metavar="PARTS",
        help=f"of {', '.join(bench.SECTIONS)}; default: all",
    )  # fmt: skip
    one.add_argument(
        "--gib", type=_above_zero, default=4.0, help="size of the table to gather from"
    )
    one.add_argument(
        "--widths", type=_numbers(1), default=list(bench.WIDTHS), metavar="BYTES",
        help="of rows, with commas",
    )  # fmt: skip
    one.add_argument("--count", type=_count, default=1 << 20, help="rows a gather, at most")
    one.add_argument("--json", type=Path, help="write all figures here")
    one.add_argument("--csv", type=Path, help="write the rates by row width here")
    one.add_argument("--picture", type=Path, help="draw them here, .svg or .png (needs matplotlib)")
    two.add_argument("out", type=Path, help="where the trace goes, as JSON")
    for command in (one, two):
        command.add_argument("--device", help="cpu, cuda, cuda:1; default: CUDA where there is one")
        command.add_argument(
            "--nodes", type=_above_zero, default=1.0, help="millions, of an R-MAT graph"
        )
        command.add_argument("--edges", type=_above_zero, default=20.0, help="millions")
        command.add_argument(
            "--width", type=_count, default=128, help="features of a node, float32"
        )
        command.add_argument("--fanouts", type=_numbers(-1), default=[15, 10, 5], metavar="N,N,...")
        command.add_argument("--batch-size", type=_count, default=1024)
        command.add_argument("--hidden", type=_count, default=256, help="width of layers")
        command.add_argument("--batches", type=_count, default=30, help="how many are measured")
    return parser
