# SPDX-License-Identifier: Apache-2.0
"""Time RGCN, RGAT and HGT on graphs of known sizes beside what the machine can move.

The graphs are drawn at random. Each figure stands beside two bounds: the bytes that the compiled
kernels move at the rate of a copy, and the bytes of a layer that reads each edge's row from memory
and stores nothing in between.
"""

from __future__ import annotations

import json as json_format
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from hector import pictures_roofline
from hector.entry import compile
from hector.measure.bounds import gather_bytes
from hector.measure.layers import LAYERS
from hector.measure.profile import kernel_times
from hector.measure.shapes import SHAPES
from hector.measure.timing import copy_rate, milliseconds, product_rate, runner

__all__ = ["Figure", "Request", "measure", "run"]


@dataclass(frozen=True)
class Request:
    """What to measure.

    Attributes
    ----------
    graphs, layers : list of str
        Names.
    width, heads : int
    dtype : str
    scale : float
        Share of the graphs' nodes and edges, in (0, 1].
    device : str or None
        None for CUDA where there is one.
    seconds : float
        Of measuring, for each figure.
    """

    graphs: list[str]
    layers: list[str]
    width: int = 64
    heads: int = 1
    dtype: str = "float32"
    scale: float = 1.0
    device: str | None = None
    seconds: float = 0.5


@dataclass(frozen=True)
class Figure:
    """One layer's call, or one kernel of it.

    Attributes
    ----------
    name : str
    milliseconds : float
    bytes, flops : int
        That its kernels move and compute, as predicted.
    bound_bytes : int
        ``gather_bytes`` of the call; 0 for a kernel.
    forms : str
    kernel : bool
    """

    name: str
    milliseconds: float
    bytes: int
    flops: int
    bound_bytes: int
    forms: str
    kernel: bool = False

    @property
    def rate(self) -> float:
        """Bytes a second."""
        return self.bytes / self.milliseconds * 1e3


def measure(request: Request) -> Iterator[Figure]:
    """Time every layer on every graph, forward and with backward, and its kernels on a GPU.

    Raises
    ------
    ValueError
        If heads do not divide the width or the scale is not in (0, 1].
    """
    _check(request)
    device = _device(request)
    dtype = getattr(torch, request.dtype)
    for name in request.graphs:
        shape = SHAPES[name] if request.scale == 1 else SHAPES[name].scaled(request.scale)
        for layer in (LAYERS[each] for each in request.layers):
            g = layer.draw(shape, device)
            inputs = layer.inputs(g, request.width, request.heads, dtype)
            compiled = compile(layer.function)
            for training in (False, True):
                run = runner(compiled, (g, *inputs), inputs, training)
                took = milliseconds(run, device, request.seconds)
                with torch.set_grad_enabled(training):
                    account = compiled.explain(g, *inputs)
                bound = sum(
                    gather_bytes(g.plan().counts, request.width, dtype.itemsize, backward=back)
                    for back in (False, True)[: training + 1]
                )
                what = f"{layer.name} {shape.name} {'training' if training else 'forward'}"
                forms = str(account.forms)
                yield Figure(what, took, account.bytes, account.flops, bound, forms)
                if device.type != "cuda" or account.emitter != "triton":
                    continue
                known = {k.name: k for each in account.programs.values() for k in each.kernels}
                for seen in kernel_times(run):
                    kernel = known.get(seen.name)
                    if kernel is not None:
                        named = f"{what}: {kernel.name}"
                        took = seen.milliseconds
                        yield Figure(named, took, kernel.bytes, kernel.flops, 0, forms, kernel=True)


def _check(request: Request) -> None:
    if request.heads < 1 or request.width < 1 or request.width % request.heads:
        raise ValueError(f"{request.heads} heads do not divide a width of {request.width}")
    if not 0 < request.scale <= 1:
        raise ValueError(f"--scale {request.scale} is not in (0, 1]")
    if not request.seconds >= 0:
        raise ValueError(f"--seconds {request.seconds} must not be negative")


def _device(request: Request) -> torch.device:
    """The device to measure on, which must be there."""
    count = torch.cuda.device_count()
    try:
        device = torch.device(request.device or ("cuda" if count else "cpu"))
    except RuntimeError:
        raise ValueError(f"--device {request.device} is neither cpu nor cuda") from None
    there = device.type == "cpu" or (device.type == "cuda" and (device.index or 0) < count)
    if not there:
        raise ValueError(f"--device {request.device}: there are the CPU and {count} CUDA devices")
    return device


def run(request: Request, *, json: Path | None, picture: Path | None) -> None:
    """Measure, print a table, and write what is asked for.

    Parameters
    ----------
    request : Request
    json, picture : Path or None

    Raises
    ------
    ValueError
        As ``measure``, or if the device is not there.
    OSError
        If a result cannot be written; found out before anything is measured.
    """
    _check(request)
    device = _device(request)
    for path in (json, picture):
        if path is not None:
            path.touch()
    rate, peak = copy_rate(device), product_rate(device, getattr(torch, request.dtype))
    where = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
    print(
        f"{where}: a copy moves {rate / 1e9:.1f} GB/s, a product computes {peak / 1e9:.0f} Gflop/s"
    )
    print(f"{'':44} {'ms':>10} {'GB/s':>8} {'of copy':>8} {'of bound':>8}  forms")
    figures = []
    for figure in measure(request):
        figures.append(figure)
        bound = figure.bound_bytes / rate / figure.milliseconds * 1e3
        told = f"{bound:8.2f}" if figure.bound_bytes else " " * 8
        indent = "  " if figure.kernel else ""
        name = figure.name.split(": ")[-1]
        print(
            f"{indent + name:44} {figure.milliseconds:10.4f} {figure.rate / 1e9:8.1f} "
            f"{figure.rate / rate:8.2f} {told}  {'' if figure.kernel else figure.forms}",
            flush=True,
        )
    if json is not None:
        result = {
            "device": where, "copy_bytes_a_second": rate, "flops_a_second": peak,
            "request": asdict(request), "figures": [asdict(figure) for figure in figures],
        }  # fmt: skip
        json.write_text(json_format.dumps(result, indent=1) + "\n", encoding="utf-8")
    if picture is not None:
        points = [
            pictures_roofline.Point(f.name, f.flops, f.bytes, f.milliseconds / 1e3, f.bound_bytes)
            for f in figures
        ]
        title = f"{where}, width {request.width}, {request.dtype}"
        picture.write_text(pictures_roofline.draw(title, points, rate, peak), encoding="utf-8")
        print(f"drawn: {picture}")
