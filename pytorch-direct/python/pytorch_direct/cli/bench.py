# SPDX-License-Identifier: Apache-2.0
"""Measure gathers by row width beside the link, neighbour sampling, and an epoch of GraphSAGE.

The graph is R-MAT and the rows are random. On a GPU, rows and graph lie in host memory; each figure
stands beside what the same work takes with everything in the GPU's memory, or beside a copy.
"""

from __future__ import annotations

import dataclasses
import json as json_format
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from pytorch_direct.cli import pictures
from pytorch_direct.cli.measure import copy_rate, gather_rate, host_table, measuring_device
from pytorch_direct.cli.training import Problem, Workload
from pytorch_direct.ops.gather_model import gather_model
from pytorch_direct.sampling.neighbor_sampler import NeighborSampler
from pytorch_direct.tensor.unified_tensor import unified

__all__ = ["SECTIONS", "WIDTHS", "Request", "run"]

SECTIONS = ("gather", "sampling", "epoch")
WIDTHS = (64, 128, 256, 412, 512, 1024, 2048, 4096)
SHARE = 0.05


@dataclass(frozen=True)
class Request:
    """What to measure.

    Attributes
    ----------
    device : str or None
        None: CUDA where there is one.
    sections : list of str
        Of SECTIONS.
    gib : float
        Size of the table of the gathers.
    widths : list of int
        Bytes of a row.
    count : int
        Rows of a gather, at most.
    work : Workload
        Of sampling and the epoch.
    batches : int
        How many of them are measured.
    """

    device: str | None
    sections: list[str]
    gib: float
    widths: list[int]
    count: int
    work: Workload
    batches: int


def run(
    request: Request, *, json: Path | None = None, csv: Path | None = None,
    picture: Path | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Measure, print, and write what is asked for after each part.

    Parameters
    ----------
    request : Request
    json, csv, picture : Path or None

    Returns
    -------
    dict
        What the JSON file holds.

    Raises
    ------
    ImportError
        A picture is wanted and matplotlib is not here; nothing was measured then.
    ValueError
        A picture's name ends in neither .svg nor .png, or the table has no row of some width.
    UnsupportedError
        The device is not here, or memory cannot be pinned for it.
    """
    if picture is not None:
        pictures.check(picture)
    device = measuring_device(request.device)
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
    print(f"{name}; {gather_model()}" if device.type == "cuda" else name, flush=True)
    result: dict[str, Any] = {"device": name, "request": asdict(request)}
    problem = None
    for section in request.sections:
        if section != "gather" and problem is None:
            start = time.perf_counter()
            problem = request.work.make()
            print(f"\n{request.work}: made in {time.perf_counter() - start:.1f} s", flush=True)
        if section == "gather":
            result["gather"] = _gathers(request, device)
            if csv is not None:
                _write_csv(csv, result["gather"]["rates"])
            if picture is not None:
                pictures.draw(picture, f"{name}, {request.gib:g} GiB", result["gather"])
                print(f"drawn: {picture}")
        elif problem is not None:
            result[section] = {"sampling": _sampling, "epoch": _epoch}[section](
                problem, device, request.batches
            )
        if json is not None:
            json.write_text(json_format.dumps(result, indent=1) + "\n", encoding="utf-8")
    return result


def _gathers(request: Request, device: torch.device) -> dict[str, Any]:
    nbytes = int(request.gib * 2**30) // 8 * 8
    if nbytes < max(request.widths):
        raise ValueError(f"a table of {nbytes} bytes has no row of {max(request.widths)}")
    link = copy_rate(device, min(1 << 30, max(1 << 20, nbytes)))
    memory = host_table(nbytes, device)
    ways: dict[str, dict[str, Any]] = {"as the model chooses": {}}
    if device.type == "cuda":
        ways["in the order given"] = {"order": "none", "duplicates": "keep"}
        ways[f"{SHARE:.0%} of the multiprocessors"] = {"sm_share": SHARE}
    else:
        print("(on the CPU order and share change nothing)")
    print(f"a copy moves {link / 1e9:.1f} GB/s; gathers from {request.gib:g} GiB, GB/s:")
    print(f"{'row bytes':>10} {'rows':>9}" + "".join(f"{way:>30}" for way in ways))
    rates = []
    for width in request.widths:
        found = {
            way: gather_rate(memory, width, device, count=request.count, **options)
            for way, options in ways.items()
        }
        count = next(iter(found.values()))[1]
        shown = "".join(f"{rate / 1e9:22.2f} ({rate / link:4.2f})" for rate, _ in found.values())
        print(f"{width:>10} {count:>9}{shown}", flush=True)
        rates += [
            {"row_bytes": width, "rows": count, "way": way, "gb_per_second": rate / 1e9,
             "of_copy": rate / link}
            for way, (rate, _) in found.items()
        ]  # fmt: skip
    return {"copy_gb_per_second": link / 1e9, "rates": rates}


def _write_csv(path: Path, rates: list[dict[str, Any]]) -> None:
    lines = [",".join(rates[0])]
    lines += [",".join(str(value) for value in row.values()) for row in rates]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _places(problem: Problem, device: torch.device) -> Iterator[tuple[str, Problem]]:
    """Yield where features and graph are."""
    if device.type == "cpu":
        yield "host memory", problem
        return
    host = dataclasses.replace(problem, graph=problem.graph.unified(), x=unified(problem.x))
    yield "host memory, read by the GPU", host
    del host
    near = dataclasses.replace(
        problem, graph=problem.graph.to(device), x=problem.x.to(device), y=problem.y.to(device)
    )
    yield "GPU memory", near


def _sampling(problem: Problem, device: torch.device, batches: int) -> list[dict[str, Any]]:
    work, figures = problem.work, []
    size = min(work.batch_size, work.nodes)
    seeds = [torch.randint(0, work.nodes, (size,)) for _ in range(batches + 1)]
    for place, there in _places(problem, device):
        sampler = NeighborSampler(there.graph, work.fanouts)
        sampler.sample(seeds[0], device=device)
        start, edges = time.perf_counter(), 0
        for number, part in enumerate(seeds[1:]):
            out = sampler.sample(part, batch=number, device=device)
            edges += out.row.numel()  # type: ignore[union-attr]
        took = time.perf_counter() - start
        figures.append({
            "place": place, "ms_per_batch": took / batches * 1e3,
            "edges_per_batch": edges / batches, "million_edges_per_second": edges / took / 1e6,
        })  # fmt: skip
        print(
            f"sampling, graph in {place}: {took / batches * 1e3:.2f} ms a batch of "
            f"{edges // batches} edges, {edges / took / 1e6:.1f} M edges/s",
            flush=True,
        )
    return figures


def _epoch(problem: Problem, device: torch.device, batches: int) -> list[dict[str, Any]]:
    figures = []
    whole = -(-problem.work.nodes // problem.work.batch_size)
    batches = max(1, min(batches, whole - 2))
    for place, there in _places(problem, device):
        near = place == "GPU memory"
        loader = there.loader(device, graph_device=device if near else "cpu")
        trainer = there.trainer(device)
        source = iter(loader)
        # The first ones compile, allocate and fill the pipeline.
        losses = [trainer.step(next(source)) for _ in range(min(2, whole - 1))]
        _wait(device)
        start = time.perf_counter()
        losses += [trainer.step(next(source)) for _ in range(batches)]
        _wait(device)
        took = (time.perf_counter() - start) / batches
        del source
        figures.append({
            "place": place, "ms_per_batch": took * 1e3, "seconds_per_epoch": took * whole,
            "last_loss": float(losses[-1]),
        })  # fmt: skip
        print(
            f"epoch, features and graph in {place}: {took * 1e3:.1f} ms a batch, {whole} batches: "
            f"{took * whole:.1f} s; loss {float(losses[-1]):.4f}",
            flush=True,
        )
    return figures


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
