# SPDX-License-Identifier: Apache-2.0
"""Looks for the schedules of the Triton emitter on the GPU at hand, and keeps the best of each key.

Layers are trained on a graph of each size class, with every kernel laid out in one way after the
other; a kernel's times are compared between ways of laying it out, nothing else. Kernels are
compiled by processes side by side, which time them one at a time. What was found replaces the
entries of this architecture in ``schedules.json``, which installed packages read.
"""

from __future__ import annotations

import argparse
import dataclasses
import fcntl
import itertools
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import torch

import hector
from hector.emit.triton import emitter, schedules
from hector.emit.triton.job import Emitted, Job
from hector.measure.layers import LAYERS
from hector.measure.profile import kernel_times
from hector.measure.shapes import Shape
from hector.measure.timing import runner

SHAPES = {
    "large": Shape("large", 700_000, 7_500_000, 4, 4),
    "small": Shape("small", 14_541, 300_000, 200, 4),
}
"""One graph for each size class."""

# What is tried beside the rules' choice, by family; what does not compile is left out.
WAYS: dict[str, list[dict[str, Any]]] = {
    "traversal": [
        {"targets": targets, "lanes": lanes, "unroll": unroll, "warps": warps}
        for targets, lanes, unroll, warps in (
            (8, 1, 2, 4), (2, 1, 4, 1), (4, 1, 4, 2), (4, 1, 4, 1), (16, 1, 2, 4), (16, 1, 4, 8),
            (2, 1, 8, 1), (1, 2, 4, 1), (1, 4, 2, 1), (4, 1, 2, 1), (8, 1, 8, 4),
        )
    ],
    "product": [
        {"rows": rows, "tiles": tiles, "stages": stages, "warps": warps}
        for rows, tiles, stages, warps in (
            (64, 8, 3, 4), (32, 16, 3, 4), (64, 4, 3, 4), (64, 8, 2, 4), (32, 8, 4, 4),
            (128, 4, 3, 8), (64, 8, 3, 8), (32, 8, 3, 2), (64, 1, 1, 4), (64, 16, 4, 4),
            (16, 16, 3, 2),
        )
    ],
    "outer": [
        {"rows": rows, "chunk": chunk, "stages": stages, "warps": warps}
        for rows, chunk, stages, warps in (
            (64, 1024, 1, 4), (32, 2048, 1, 4), (64, 2048, 1, 4), (32, 4096, 1, 4),
            (32, 1024, 3, 4), (64, 1024, 3, 4), (128, 2048, 1, 8), (64, 4096, 2, 8),
            (32, 512, 1, 4), (64, 256, 1, 4), (32, 128, 1, 4),
        )
    ],
    "walk_product": [
        {"rows": rows, "tiles": tiles, "unroll": unroll, "warps": warps}
        for rows, tiles, unroll, warps in (
            (32, 32, 4, 4), (16, 64, 4, 4), (64, 16, 2, 8), (32, 32, 1, 4), (16, 64, 2, 2),
            (64, 16, 1, 4), (32, 16, 2, 4), (32, 32, 2, 8), (16, 32, 2, 4), (32, 4, 2, 4),
            (16, 64, 4, 2),
        )
    ],
    "rows": [
        {"rows": rows, "warps": warps}
        for rows, warps in (
            (16, 4), (64, 4), (64, 8), (16, 2), (8, 1), (128, 8), (16, 1), (4, 1), (32, 2), (8, 2),
            (32, 8),
        )
    ],
}  # fmt: skip
REPEATS = 5
"""Calls of which a kernel's shortest time counts."""

_TILE = 1 << 13
"""Elements of a tile of rows that are tried at most."""

_SECOND = r"_(hubs|pieces|chunks)\d*"
"""What kernels add to the name of the one that they belong to."""

COUNT = 1 + max(map(len, WAYS.values()))


def laid_out(key: schedules.Key, way: int) -> schedules.Schedule:
    """The schedule of a key that is tried in a turn; the rules' choice in turn 0 and past the end.

    Parameters
    ----------
    key : Key
    way : int
    """
    plain = schedules.by_rule(key)
    ways = WAYS[key.family]
    if not 0 < way <= len(ways):
        return plain
    other = dataclasses.replace(plain, **ways[way - 1])
    if isinstance(other, schedules.Rows) and other.rows * key.width > _TILE:
        return plain
    return other


def _watch(way: int) -> dict[str, tuple[schedules.Key, schedules.Schedule]]:
    """Have kernels laid out in one way; gives what their keys are, once they are emitted."""
    seen: dict[str, tuple[schedules.Key, schedules.Schedule]] = {}
    last: list[tuple[schedules.Key, schedules.Schedule]] = []
    template = emitter._Module._template

    def choose(key: schedules.Key) -> schedules.Schedule:
        last.append((key, laid_out(key, way)))
        return last[-1][1]

    def watched(self: Any, job: Job) -> Emitted:
        made: Emitted = template(self, job)
        seen[job.name] = last[-1]
        return made

    emitter.schedule = choose  # type: ignore[attr-defined]
    emitter._Module._template = watched  # type: ignore[method-assign]
    return seen


def work(layer: str, dtype: str, size: str, way: int, folder: Path) -> None:
    """Time the kernels of one layer laid out in one way; a process of its own."""
    torch.set_float32_matmul_precision("high")
    seen = _watch(way)
    chosen, device = LAYERS[layer], torch.device("cuda")
    g = chosen.draw(SHAPES[size], device)
    tensors = chosen.inputs(g, dtype=getattr(torch, dtype))
    run = runner(hector.compile(chosen.function, emitter="triton"), (g, *tensors), tensors, True)
    run()
    torch.cuda.synchronize()
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # kernels are timed one process at a time
        times: dict[str, list[float]] = defaultdict(list)
        for each in kernel_times(lambda: [run() for _ in range(REPEATS)]):
            times[each.name].append(each.milliseconds)
    found = []
    for name, (key, schedule) in seen.items():
        helpers = [other for other in times if re.fullmatch(name + _SECOND, other)]
        if name in times:
            total = sum(min(times[each]) for each in (name, *helpers))
            entry = {"kernel": name, "key": dataclasses.asdict(key), "milliseconds": total}
            found.append({**entry, "schedule": dataclasses.asdict(schedule)})
    name = f"{layer}-{dtype}-{size}-{way}.json"
    (folder / name).write_text(json.dumps(found), encoding="utf-8")


def best(folder: Path) -> list[dict[str, Any]]:
    """The best schedule of each key: the least sum over the kernels that have it."""
    sums: dict[str, dict[str, dict[str, float]]] = defaultdict(lambda: defaultdict(dict))
    for path in sorted(folder.glob("*.json")):
        layer = path.stem.rsplit("-", 1)[0]
        for entry in json.loads(path.read_text(encoding="utf-8")):
            key, schedule = json.dumps(entry["key"]), json.dumps(entry["schedule"])
            kernel = f"{layer} {entry['kernel']}"
            known = sums[key][schedule].get(kernel, entry["milliseconds"])
            sums[key][schedule][kernel] = min(known, entry["milliseconds"])
    kept = []
    for key, times in sorted(sums.items()):
        kernels = set().union(*times.values())
        whole = {s: sum(by.values()) for s, by in times.items() if by.keys() == kernels}
        if not whole:
            continue
        schedule = min(whole, key=whole.__getitem__)
        first = schedules.by_rule(schedules.Key(**json.loads(key)))
        rule = whole.get(json.dumps(dataclasses.asdict(first)))
        print(f"{key}\n  {schedule}: {whole[schedule]:.4f} ms, by rule {rule}", flush=True)
        if rule is None or whole[schedule] < 0.97 * rule:
            kept.append({"key": json.loads(key), "schedule": json.loads(schedule)})
    return kept


def main() -> None:
    """Start the processes, and write what is best."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="where to write, if not into the package")
    parser.add_argument("--seconds", type=float, default=300.0, help="to start processes for")
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--layers", nargs="+", default=list(LAYERS))
    parser.add_argument("--dtypes", nargs="+", default=["float32", "bfloat16"])
    parser.add_argument("--sizes", nargs="+", default=list(SHAPES))
    parser.add_argument("--work", nargs=5, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        layer, dtype, size, way, folder = options.work
        work(layer, dtype, size, int(way), Path(folder))
        return
    package = Path(schedules.__file__).with_name("schedules.json")
    out: Path = options.out or package
    major, minor = torch.cuda.get_device_capability()
    with tempfile.TemporaryDirectory() as folder:
        turns = itertools.product(options.sizes, range(COUNT), options.dtypes, options.layers)
        running: list[subprocess.Popen[bytes]] = []
        end = time.monotonic() + options.seconds
        for size, way, dtype, layer in turns:
            while len(running) >= options.processes:
                time.sleep(0.05)
                running = [each for each in running if each.poll() is None]
            if time.monotonic() > end:
                break
            command = [sys.executable, __file__, "--work", layer, dtype, size, str(way), folder]
            errors = (Path(folder) / f"{layer}-{dtype}-{size}-{way}.txt").open("wb")
            running.append(subprocess.Popen(command, stderr=errors))
            errors.close()
        for each in running:
            each.wait()
        for path in sorted(Path(folder).glob("*.txt")):
            if not path.with_suffix(".json").exists():
                lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
                print(f"{path.stem}: {lines[-1] if lines else 'no word'}")
        found = best(Path(folder))
    others = [
        entry
        for entry in json.loads(package.read_text(encoding="utf-8"))
        if entry["key"]["architecture"] != f"sm_{major}{minor}"
    ]
    text = json.dumps([*others, *found], indent=1)
    out.write_text(text + "\n", encoding="utf-8")
    print(f"{len(found)} schedules in {out}")


if __name__ == "__main__":
    main()
