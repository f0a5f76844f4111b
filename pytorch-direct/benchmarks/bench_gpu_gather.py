# SPDX-License-Identifier: Apache-2.0
"""Zero-copy gather by a GPU against a yardstick, torch's ways, and the rate of pinned copies.

The limit of each row comes from a yardstick binary, run on the same machine just before, if
``DATAPATH_GATHER_LIMIT`` names one (or ``--limit-binary``): called with the table's GiB, it prints
lines with ``row= N``, ``random X GB/s`` and ``gather Y GB/s``. ``DATAPATH_GATHER_GIB`` lists the
tables' sizes in GiB ("8" by default, "8,48" where the host has the memory).
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import bench_schema
import torch

from datapath_core import PinnedPool
from pytorch_direct import UnifiedTensor, check, gather, gather_model, unified

WIDTHS = (64, 128, 256, 412, 512, 1024, 2048, 3076, 4096)
LIMIT_LINE = re.compile(
    r"^\s*cudaHostAlloc row=\s*(\d+).*random ([\d.]+) GB/s.*gather ([\d.]+) GB/s", re.MULTILINE
)


def options() -> argparse.Namespace:
    """Parse the command line; the yardstick's path may come from the environment."""
    own = argparse.ArgumentParser(add_help=False)
    own.add_argument("--limit-binary", type=Path, default=os.environ.get("DATAPATH_GATHER_LIMIT"))
    own.add_argument("--gib", default=os.environ.get("DATAPATH_GATHER_GIB", "8"))
    mine, rest = own.parse_known_args()
    sys.argv[1:] = rest
    return argparse.Namespace(**vars(mine), **vars(bench_schema.arguments(__doc__)))


def best_seconds(run: Callable[[], object], repeats: int = 5) -> float:
    """Return the GPU's shortest time for a run, after one that is not counted."""
    run()
    times = []
    for _ in range(repeats):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        run()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) / 1e3)
    return min(times)


def yardstick(binary: Path | None, gib: int) -> dict[int, tuple[float, float]]:
    """Return (random, ordered) GB/s by row width, as the yardstick measures them now."""
    if binary is None:
        return {}
    done = subprocess.run([str(binary), str(gib)], capture_output=True, text=True, check=True)
    found = {int(width): (float(a), float(b)) for width, a, b in LIMIT_LINE.findall(done.stdout)}
    if not found:
        raise RuntimeError(f"{binary} printed no figures that are understood:\n{done.stdout}")
    return found


def copy_rate() -> float:
    """Return the rate of a pinned copy to the GPU in GB/s."""
    host = torch.empty(1 << 30, dtype=torch.uint8, pin_memory=True)
    device = torch.empty_like(host, device="cuda")
    return host.numel() / best_seconds(lambda: device.copy_(host, non_blocking=True)) / 1e9


def make_table(kind: str, nbytes: int) -> tuple[UnifiedTensor, float]:
    """Return memory with a pattern, unified, and the seconds that registering it took.

    "pinned memory" is core's, on huge pages; "memory in place" is an ordinary tensor's, on pages of
    4 KiB, of which a GPU needs more translations for the same bytes.
    """
    if kind == "pinned memory":
        memory = torch.from_dlpack(PinnedPool(nbytes, device="cuda").allocate(nbytes))
    else:
        memory = torch.empty(nbytes, dtype=torch.uint8)
    words = memory.view(torch.int64)
    step = 1 << 27
    for begin in range(0, words.numel(), step):
        end = min(words.numel(), begin + step)
        torch.arange(begin, end, out=words[begin:end])
    start = time.perf_counter()
    table = unified(memory)
    seconds = time.perf_counter() - start
    if not table.is_registered:
        raise RuntimeError(f"the table could not be pinned: {table._registration.reason}")
    return table, seconds


def centric(table: torch.Tensor, ids: torch.Tensor) -> float:
    """Return the seconds of the CPU's way: index_select into pinned memory, then a copy."""
    shape = (ids.numel(), table.shape[1])
    staged = torch.empty(shape, dtype=table.dtype, pin_memory=True)
    device = torch.empty(shape, dtype=table.dtype, device="cuda")
    times = []
    for _ in range(3):
        torch.cuda.synchronize()
        start = time.perf_counter()
        torch.index_select(table, 0, ids, out=staged)
        device.copy_(staged, non_blocking=True)
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return min(times)


def measure(
    memory: UnifiedTensor,
    source: str,
    width: int,
    limits: dict[int, tuple[float, float]],
    link: float,
) -> list[bench_schema.Row]:
    """Measure one width: as chosen by the model, ordered, in given order, and with a share cap."""
    used = memory[: memory.numel() // width * width].view(-1, width)
    table = used.view(torch.float32) if width % 4 == 0 else used
    count = min((1 << 30) // width, 1 << 20)
    ids = torch.randint(0, table.shape[0], (count,), device="cuda")
    out = torch.empty(count, table.shape[1], dtype=table.dtype, device="cuda")
    moved = count * width / 1e9
    view = table.device_view()
    peer_out = torch.empty_like(out)
    through_torch = moved / best_seconds(lambda: torch.index_select(view, 0, ids, out=peer_out))
    plain = torch.empty(0, dtype=table.dtype).set_(
        table.untyped_storage(), table.storage_offset(), table.size(), table.stride()
    )
    by_cpu = moved / centric(plain, ids.cpu())
    rows = []
    for name, arguments, limit in (
        ("auto", {}, max(limits.get(width, (0, 0)))),
        ("ordered", {"order": "address"}, limits.get(width, (0, 0))[1]),
        ("given order", {"order": "none"}, limits.get(width, (0, 0))[0]),
        ("auto, a quarter of the multiprocessors", {"sm_share": 0.25}, 0),
    ):
        out.zero_()
        rate = moved / best_seconds(lambda: gather(table, ids, out=out, **arguments))  # noqa: B023
        if not torch.equal(out.view(torch.uint8), peer_out.view(torch.uint8)):
            raise RuntimeError(f"{name}: rows of {width} bytes came out wrong")
        ordered = name == "ordered" and limit > 0 and "pinned" in source
        rows.append(
            bench_schema.Row(
                work=f"gather of {count} random rows of {width} B from {source}, {name}",
                ours=rate,
                unit="GB/s",
                peer=through_torch,
                peer_name="torch.index_select on the device view",
                limit=limit or link,
                limit_name="yardstick" if limit else "pinned copy",
                ratio=rate / (limit or link),
                target=">= 95 % of the limit" if ordered else "",
                met=rate >= 0.95 * limit if ordered else None,
                note=f"CPU gather + pinned copy {by_cpu:.1f} GB/s; pinned copy {link:.1f} GB/s",
            )
        )
        print(f"{rows[-1].work}: {rate:.1f} GB/s, limit {limit or link:.1f}, torch "
              f"{through_torch:.1f}, CPU {by_cpu:.1f}", flush=True)  # fmt: skip
    check()
    return rows


def main() -> None:
    """Measure each table; the yardstick's memory and ours are never pinned at once."""
    chosen = options()
    sizes = [1] if chosen.quick else [int(size) for size in chosen.gib.split(",")]
    widths = (64, 412, 1024) if chosen.quick else WIDTHS
    rows: list[bench_schema.Row] = []
    for gib in sizes:
        limits = yardstick(chosen.limit_binary, gib)
        link = copy_rate()
        for kind in ("pinned memory", "memory in place"):
            table, seconds = make_table(kind, gib << 30)
            if kind == "memory in place":
                rows.append(
                    bench_schema.Row(
                        work=f"register {gib} GiB in place",
                        ours=seconds,
                        unit="s",
                        target="<= 1 s" if gib == 8 else "",
                        met=seconds <= 1 if gib == 8 else None,
                    )
                )
            for width in widths:
                rows += measure(table, f"{gib} GiB of {kind}", width, limits, link)
            del table
    extra = {"model": str(gather_model()), "gpu": torch.cuda.get_device_name()}
    bench_schema.write(chosen.json, "pytorch-direct: gather by the GPU", rows, extra=extra)


if __name__ == "__main__":
    main()
