# SPDX-License-Identifier: Apache-2.0
"""The command line of ``hector``; what its commands do is in modules of their names."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

import hector
from datapath_core.commands import exit_status, with_threads_that_sleep
from hector.cli import bench, explain
from hector.measure.layers import LAYERS
from hector.measure.shapes import SHAPES

__all__ = ["main"]

_DESCRIPTION = "Explain what relational layers are compiled to, and time them."
EXPLAIN_EXAMPLES = """examples:
  hector explain model.py:make                     what make() returns: (layer, graph, inputs ...)
  hector explain model.py:make --svg layer.svg     draw it as written and as compiled
  hector explain train.py -- --epochs 1            run a script; explain each compiled call once
"""
BENCH_EXAMPLES = """examples:
  hector bench                                     three layers on small graphs
  hector bench --graphs aifb,mag --dtype bfloat16 --json r.json --picture roofline.svg
  hector bench --graphs wikikg2 --scale 0.01       a hundredth of its nodes and edges
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
    if arguments is None and options.command == "bench":
        with_threads_that_sleep()
    return exit_status(f"hector {options.command}", lambda: _run(options))


def _run(options: argparse.Namespace) -> None:
    if options.command == "explain":
        explain.run(
            options.where, options.rest, gradients=not options.no_grad,
            everything=options.all, svg=options.svg,
        )  # fmt: skip
    else:
        bench.run(
            bench.Request(
                options.graphs, options.layers, options.width, options.heads, options.dtype,
                options.scale, options.device, options.seconds,
            ),
            json=options.json, picture=options.picture,
        )  # fmt: skip


def _names(known: Sequence[str]) -> Callable[[str], list[str]]:
    """What reads an argument: names with commas, each known."""

    def read(text: str) -> list[str]:
        spelled = {name.lower(): name for name in known}
        names = [spelled.get(name.lower(), name) for name in text.split(",") if name]
        unknown = [name for name in names if name not in known]
        if unknown or not names:
            said = ", ".join(unknown) or "nothing"
            raise argparse.ArgumentTypeError(f"{said} is none of {', '.join(known)}")
        return names

    return read


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="hector", description=_DESCRIPTION)
    parser.add_argument("--version", action="version", version=hector.__version__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    how = argparse.RawDescriptionHelpFormatter
    one = commands.add_parser(
        "explain", help="program, forms compared, kernels, bytes and memory of compiled layers",
        description=explain.__doc__, epilog=EXPLAIN_EXAMPLES, formatter_class=how,
    )  # fmt: skip
    one.add_argument("where", help="FILE.py:FUNCTION, package.module:FUNCTION, or a script")
    one.add_argument("rest", nargs="*", help="arguments of a script, after --")
    one.add_argument("--no-grad", action="store_true", help="inference: plan no gradients")
    one.add_argument("--all", action="store_true", help="the IR after every pass and all kernels")
    one.add_argument("--svg", type=Path, help="draw the IR before and after the passes")
    two = commands.add_parser(
        "bench", help="layers on graphs of known sizes, beside what the machine can move",
        description=bench.__doc__, epilog=BENCH_EXAMPLES, formatter_class=how,
    )  # fmt: skip
    graphs, layers = list(SHAPES), list(LAYERS)
    two.add_argument(
        "--graphs", type=_names(graphs), default=["aifb", "mutag", "fb15k"], metavar="NAMES",
        help=f"of {', '.join(graphs)}; default: aifb, mutag, fb15k",
    )  # fmt: skip
    two.add_argument(
        "--layers", type=_names(layers), default=layers, metavar="NAMES",
        help=f"of {', '.join(layers)}; default: all",
    )  # fmt: skip
    two.add_argument("--width", type=int, default=64)
    two.add_argument("--heads", type=int, default=1)
    two.add_argument("--dtype", choices=("float32", "bfloat16", "float16"), default="float32")
    two.add_argument("--scale", type=float, default=1.0, help="share of nodes and edges")
    two.add_argument("--device", help="cpu, cuda, cuda:1, ...; default: CUDA where there is one")
    two.add_argument("--seconds", type=float, default=0.5, help="of measuring, for each figure")
    two.add_argument("--json", type=Path, help="write the figures here")
    two.add_argument("--picture", type=Path, help="draw the roofline here, as SVG")
    return parser
