# SPDX-License-Identifier: Apache-2.0
"""The command ``ssdtrain``: offloading on paper, and measured."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence
from pathlib import Path

from datapath_core.commands import exit_status, load_factory, with_threads_that_sleep
from datapath_core.settings import parse_bytes

from . import __version__, rok
from .paper import Drive, Setup, find_drive, find_gpu, find_model, paper_plan
from .paper.catalogue import catalogue
from .paper.show import as_csv, as_json, explain, print_tables
from .wear import parse_decimal_bytes

__all__ = ["main"]

PLAN_EXAMPLES = """examples:
  ssdtrain plan --model llama-3-8b --gpu h200 --ssd d7-ps1010 --sequence 8192
  ssdtrain plan --model gpt --hidden 12288 --layers 3 --gpu a100-40gb-pcie --ssd p5800x --drives 4
  ssdtrain plan --model path/to/config.json --gpu h100 --tensor-parallel 8 --sequence-parallel \\
      --pipeline-parallel 4 --micro-batches 16 --state-shards 8
  ssdtrain plan --model qwen3-8b --gpu h100 --explain write_forward step_seconds
  ssdtrain plan --list
"""
ROK_EXAMPLES = """examples:
  ssdtrain rok train.py:make --batches 4,8,16 --spill /nvme/spill --out rok
  ssdtrain rok package.module:make --batches 1,2 --strategies keep,recompute,planned

make() returns (model, make_batch, loss) or (model, make_batch, loss, optimizer); see
ssdtrain.rok.Work.
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
    if arguments is None and options.command == "rok":
        with_threads_that_sleep()
    logging.basicConfig(format="%(levelname)s %(name)s: %(message)s")
    return exit_status(f"ssdtrain {options.command}", lambda: options.run(options))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="ssdtrain", description=__doc__)
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _add_plan(
        commands.add_parser(
            "plan",
            help="work out on paper what offloading needs, wears and buys",
            description="Work out on paper what offloading a model's activations needs, how long"
            " drives last and what the freed memory buys. Nothing is measured.",
            epilog=PLAN_EXAMPLES,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
    )
    _add_rok(
        commands.add_parser(
            "rok",
            help="measure keep, recompute, offload and planned over batch sizes",
            description="Measure memory and throughput of keep, full recompute, offload and"
            " planned at several batch sizes: a table, a picture, CSV and JSON.",
            epilog=ROK_EXAMPLES,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
    )
    return parser


def _add_plan(command: argparse.ArgumentParser) -> None:
    command.set_defaults(run=_plan)
    command.add_argument("--list", action="store_true", help="show the catalogues and end")
    add = command.add_argument_group("model").add_argument
    add("--model", help="name in the catalogue, path of a config.json, 'gpt' or 'llama'")
    for name in ("hidden", "layers", "ffn", "heads", "kv-heads", "head-dim", "vocab", "experts"):
        add(f"--{name}", type=int, metavar="N")
    add("--experts-per-token", type=int, metavar="N")
    add("--mlp", choices=("swiglu", "gelu"), help="three matrices with a gate, or two")
    add = command.add_argument_group("GPU").add_argument
    add("--gpu", default="h200", help="name in the catalogue (%(default)s)")
    add("--gpu-tflops", type=float, metavar="X", help="peak of dense bf16, instead of its own")
    add("--gpu-memory", metavar="SIZE", help="instead of its own, as '80GB' (decimal)")
    add("--link", type=float, metavar="GB/s", help="to the host, a direction")
    add("--achieved", type=float, metavar="SHARE", help="of the peak (0.4)")
    add("--usable", type=float, metavar="SHARE", help="of the memory (0.9)")
    add = command.add_argument_group("drives").add_argument
    add("--ssd", help="name in the catalogue, or 'custom'; none: host memory only")
    add("--drives", type=int, metavar="N", help="for each GPU (1)")
    add("--ssd-read", type=float, metavar="GB/s")
    add("--ssd-write", type=float, metavar="GB/s")
    add("--ssd-capacity", metavar="SIZE", help="as '7.68TB' (decimal)")
    add("--ssd-rating", metavar="RATING", help="as '600TBW', '14PB' or '1DWPD'")
    add("--write-amplification", type=float, metavar="X", help="beyond the rating's own (1)")
    add("--retention-relaxation", type=float, metavar="FACTOR",
        help="multiplies the rating; no vendor warrants it (1)")  # fmt: skip
    add("--duty", type=float, metavar="SHARE", help="of the day spent training (1)")
    add = command.add_argument_group("training").add_argument
    add("--micro-batch", type=int, metavar="N", help="sequences (1)")
    add("--sequence", type=int, metavar="TOKENS", help="(4096)")
    add("--micro-batches", type=int, metavar="N", help="in a step, for a pipeline (1)")
    add("--tensor-parallel", type=int, metavar="N")
    add("--sequence-parallel", action="store_true", default=None)
    add("--pipeline-parallel", type=int, metavar="N")
    add("--virtual-stages", type=int, metavar="N", help="interleaved schedule")
    add("--schedule", choices=("1f1b", "gpipe"))
    add("--state-shards", type=int, metavar="N", help="GPUs that share the optimizer (ZeRO, FSDP)")
    add("--state-bytes", type=float, metavar="N", help="a parameter, with optimizer (16)")
    add("--no-head", dest="head", action="store_false", default=None,
        help="layers alone, without embedding and output projection")  # fmt: skip
    add("--dropout", action="store_true", default=None)
    add("--eager-mlp", dest="fused_mlp", action="store_false", default=None,
        help="gated activation in two kernels")  # fmt: skip
    add("--no-flash", dest="flash", action="store_false", default=None,
        help="attention saves its scores")  # fmt: skip
    add("--bidirectional", dest="causal", action="store_false", default=None)
    add("--moe-buffers", action="store_true", default=None,
        help="experts' inputs and outputs are saved as dispatched")  # fmt: skip
    add = command.add_argument_group("output").add_mutually_exclusive_group().add_argument
    add("--json", action="store_true", help="all figures with formulas, base units")
    add("--csv", action="store_true", help="the same as CSV")
    add("--explain", nargs="*", metavar="FIGURE",
        help="formulas with their numbers and sources: of these figures, or of all")  # fmt: skip


def _plan(options: argparse.Namespace) -> int:
    if options.list:
        for kind in ("models", "gpus", "ssds"):
            for name, found in catalogue(kind).items():
                print(f"{kind[:-1]:6} {name:16} {found['name']}; {found['source']}")
        return 0
    given = vars(options)
    sizes = ("hidden", "layers", "ffn", "heads", "kv_heads", "head_dim", "vocab", "experts",
             "experts_per_token", "mlp")  # fmt: skip
    model = find_model(options.model, **{name: given[name] for name in sizes})
    gpu = find_gpu(
        options.gpu,
        flops=_scaled(options.gpu_tflops, 1e12),
        memory=_size("--gpu-memory", options.gpu_memory),
        link=_scaled(options.link, 1e9),
    )
    drive = _drive(options)
    fields = {name: given[name] for name in Setup.__dataclass_fields__ if given.get(name)
              is not None}  # fmt: skip
    sheet = paper_plan(model, gpu, drive, Setup(**fields))
    if options.json:
        print(as_json(sheet))
    elif options.csv:
        print(as_csv(sheet), end="")
    elif options.explain is not None:
        print(explain(sheet, options.explain))
    else:
        devices = gpu.name if drive is None else f"{gpu.name}, {drive.name}"
        print_tables(sheet, f"{model.name} on {devices}")
    return 0


def _drive(options: argparse.Namespace) -> Drive | None:
    own = {
        "read": _scaled(options.ssd_read, 1e9),
        "write": _scaled(options.ssd_write, 1e9),
        "capacity": _size("--ssd-capacity", options.ssd_capacity),
        "rating": options.ssd_rating,
    }
    if options.ssd is None:
        if any(value is not None for value in own.values()):
            raise ValueError("numbers of a drive, but no drive: add --ssd custom, or a name")
        return None
    return find_drive(options.ssd, **own)


def _size(name: str, text: str | None) -> float | None:
    return None if text is None else parse_decimal_bytes(name, text)


def _scaled(value: float | None, unit: float) -> float | None:
    return None if value is None else value * unit


def _add_rok(command: argparse.ArgumentParser) -> None:
    command.set_defaults(run=_rok)
    add = command.add_argument
    add("factory", help="script.py:function or package.module:function")
    add("--batches", type=_numbers, required=True, metavar="N,N,...", help="samples in a step")
    add("--strategies", default=",".join(rok.STRATEGIES), help="(%(default)s)")
    add("--steps", type=int, default=5, help="that are timed (%(default)s)")
    add("--warmup", type=int, default=6,
        help="steps before, in which the planner plans (%(default)s)")  # fmt: skip
    add("--spill", action="append", metavar="DIR", help="directory of the disk tier; repeatable")
    add("--host", default="8GiB", help="ceiling of pinned host memory (%(default)s)")
    add("--ssd", default="200GiB", help="ceiling of disk space (%(default)s)")
    add("--min-bytes", default="1MiB", help="smaller tensors stay (%(default)s)")
    add("--backlog", default="256MiB",
        help="bytes on their way out at a time without a plan, where two of the largest tensors"
        " are not more (%(default)s)")  # fmt: skip
    add("--prefetch", default="256MiB",
        help="bytes loaded ahead of backward without a plan (%(default)s)")  # fmt: skip
    add("--max-memory", metavar="SIZE", help="for 'planned'")
    add("--max-slowdown", type=float, metavar="SHARE", help="for 'planned', 0.02 is 2 %%")
    add("--out", type=Path, default=Path("rok"), metavar="PATH",
        help="PATH.csv, PATH.json and PATH.png are written (%(default)s)")  # fmt: skip
    add("--picture", choices=("png", "svg", "pdf"), default="png", help="(%(default)s)")


def _numbers(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no list of numbers like 4,8,16") from None


def _rok(options: argparse.Namespace) -> int:
    from tqdm import tqdm

    from . import rok_report

    work = rok.as_work(load_factory(options.factory)())
    strategies = [name.strip() for name in options.strategies.split(",")]
    for size in ("host", "ssd", "min_bytes", "backlog", "prefetch"):
        parse_bytes(getattr(options, size))
    options.out.parent.mkdir(parents=True, exist_ok=True)
    files = [options.out.with_name(options.out.name + f".{suffix}")
             for suffix in ("csv", "json", options.picture)]  # fmt: skip
    total = len(set(options.batches)) * len(strategies)
    rows: list[rok.Row] = []
    with tqdm(total=total, unit="run", disable=None) as bar:

        def show(row: rok.Row) -> None:
            bar.update()
            rows.append(row)
            # After each batch size, so that a run that ends early keeps what it has.
            if len(rows) % len(strategies) == 0:
                rok_report.write_csv(rows, files[0])
                rok_report.write_json(rows, files[1], work.device)
                if any(row.status == "ok" for row in rows):
                    rok_report.draw(rows, files[2], title=Path(options.factory).name)

        rok.measure(
            work,
            options.batches,
            strategies,
            steps=options.steps,
            warmup=options.warmup,
            max_slowdown=options.max_slowdown,
            max_memory=options.max_memory,
            progress=show,
            spill=options.spill,
            host=options.host,
            ssd=options.ssd,
            min_bytes=options.min_bytes,
            backlog=options.backlog,
            prefetch=options.prefetch,
        )
    rok_report.print_table(rows)
    if all(row.status != "ok" for row in rows):
        files.pop()
    print("written:", *files)
    return 0


if __name__ == "__main__":
    sys.exit(main())
