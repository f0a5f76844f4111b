# SPDX-License-Identifier: Apache-2.0
"""Zero-copy gathers by a GPU: by row width, beside the CPU's way, unaligned, beside training.

``DATAPATH_GATHER_GIB`` lists the tables' sizes in GiB ("8,48" by default, where the host has the
memory). Rates are of payload: rows times their bytes. Every rate comes with a check of bytes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import bench_schema
import gather_yardsticks as yard
import torch

from pytorch_direct import UnifiedTensor, check, gather, gather_model

SMALL_TARGETS = {64: 0.3, 128: 0.6, 256: 0.9, 512: 0.9, 1024: 0.9, 2048: 0.9, 4096: 0.9}
LARGE_TARGETS = {512: 0.5, 1024: 0.9, 2048: 0.9, 4096: 0.9}
# GB/s of a table of 48 GiB ordered by a bare kernel, on the machine of the targets (one H200).
LARGE_ORDERED = {64: 3.3, 128: 6.9, 256: 14.3}
SHARE = 0.05
"""The share cap: this part of the multiprocessors."""


def rate(
    memory: UnifiedTensor, width: int, ids: torch.Tensor | None = None, **options: Any
) -> tuple[float, int]:
    """Return GB/s of rows of `width` bytes and how many rows a batch has; verifies bytes."""
    pitch = options.pop("pitch", None)
    table = yard.rows_of(memory, width, pitch)
    if ids is None:
        count = min(1 << 20, (2 << 30) // width)
        ids = torch.randint(0, table.shape[0], (count,), device="cuda")
    out = torch.empty(ids.numel(), width, dtype=torch.uint8, device="cuda")
    seconds = yard.gpu_seconds(lambda: gather(table, ids, out=out, **options))
    check()
    yard.verify(out, table, ids, f"{width} B")
    return ids.numel() * width / seconds / 1e9, ids.numel()


def row(
    work: str, ours: float, limit: float, target: float | None, name: str = "pinned copy"
) -> bench_schema.Row:
    """Return a row whose target is a part of a limit."""
    found = bench_schema.Row(
        work=work,
        ours=ours,
        unit="GB/s",
        limit=limit,
        limit_name=name,
        ratio=ours / limit,
        target="" if target is None else f">= {target:.0%} of the {name}",
        met=None if target is None else ours >= target * limit,
    )
    print(f"{work}: {ours:.1f} GB/s, {ours / limit:.2f} of {name} {found.target}", flush=True)
    return found


def by_width(
    memory: UnifiedTensor, gib: int, link: float, quick: bool
) -> Iterator[bench_schema.Row]:
    """Uniform random ids at each width, with all multiprocessors and under the share cap."""
    targets = SMALL_TARGETS if gib <= 8 else LARGE_TARGETS
    widths = (64, 1024) if quick else SMALL_TARGETS
    caps = ((None, "all multiprocessors"), (SHARE, f"{SHARE:.0%} of the multiprocessors"))
    for width in widths:
        for share, words in caps if gib <= 8 else caps[:1]:
            found, count = rate(memory, width, sm_share=share)
            work = f"gather of {count} random rows of {width} B from {gib} GiB, {words}"
            if gib > 8 and width in LARGE_ORDERED:
                yield row(work, found, LARGE_ORDERED[width], 1.0, "bare ordered kernel elsewhere")
            else:
                yield row(work, found, link, targets.get(width))


def after_reordering(memory: UnifiedTensor, gib: int) -> Iterator[bench_schema.Row]:
    """The trace of a power law on a table in no order, and on one laid out by heat.

    A table that `reorder_rows` made has the row of rank r at place r; so the same batch is read by
    its ranks.
    """
    for width in (64, 128, 256):
        rows = memory.numel() // width
        ranks = yard.power_law_ranks(rows, 1 << 20)
        before, count = rate(memory, width, yard.scattered(ranks, rows))
        after, _ = rate(memory, width, ranks)
        work = f"gather of {count} rows of {width} B from {gib} GiB by a power law, by heat"
        bound = LARGE_ORDERED[width]
        yield bench_schema.Row(
            work=work,
            ours=after,
            unit="GB/s",
            peer=before,
            peer_name="the same batch before reorder_rows",
            limit=bound,
            limit_name="bare ordered kernel elsewhere, uniform ids",
            ratio=after / bound,
            target=">= 2x the ordered gather" if gib > 8 else "",
            met=after >= 2 * bound if gib > 8 else None,
            note=f"{ranks.unique().numel() / count:.2f} of the batch's ids are distinct",
        )
        print(f"{work}: {after:.1f} GB/s, before {before:.1f}, bare {bound}", flush=True)


def beside_the_cpu(memory: UnifiedTensor) -> bench_schema.Row:
    """4 KiB rows against torch's gather on 16 threads and a copy."""
    ours, count = rate(memory, 4096)
    table = yard.rows_of(memory, 4096)
    ids = torch.randint(0, table.shape[0], (count,))
    threads = min(16, os.cpu_count() or 1)
    peer = count * 4096 / yard.through_cpu(table, ids, threads) / 1e9
    print(f"4 KiB rows: {ours:.1f} GB/s, CPU gather and copy {peer:.1f}", flush=True)
    return bench_schema.Row(
        work=f"gather of {count} random rows of 4096 B, no CPU used",
        ours=ours,
        unit="GB/s",
        peer=peer,
        peer_name=f"torch.index_select on {threads} threads into pinned memory, and a copy",
        ratio=ours / peer,
        target=">= 2.4x the peer",
        met=ours >= 2.4 * peer,
    )


def unaligned(memory: UnifiedTensor) -> Iterator[bench_schema.Row]:
    """Rows packed one behind the other, against the same rows that begin at lines of 128 bytes."""
    for width in (412, 3076):
        packed, count = rate(memory, width)
        aligned, _ = rate(memory, width, pitch=-(-width // 128) * 128)
        work = f"gather of {count} random rows of {width} B, packed"
        yield row(work, packed, aligned, 0.9, "rate of the same rows aligned")


def beside_training(memory: UnifiedTensor) -> bench_schema.Row:
    """What a gather on another stream costs matrix products."""
    size, products = 8192, 40
    factor = torch.randn(size, size, device="cuda", dtype=torch.bfloat16)
    product = torch.empty_like(factor)

    def train() -> None:
        for _ in range(products):
            torch.mm(factor, factor, out=product)

    table = yard.rows_of(memory, 1024)
    ids = torch.randint(0, table.shape[0], (1 << 19,), device="cuda")
    out = torch.empty(ids.numel(), 1024, dtype=torch.uint8, device="cuda")
    one = yard.gpu_seconds(lambda: gather(table, ids, out=out, sm_share=SHARE))
    alone = yard.gpu_seconds(train)
    turns = max(1, int(1.5 * alone / one))
    side = torch.cuda.Stream()
    times, rates = [], []
    for _ in range(5):
        torch.cuda.synchronize()
        marks = [torch.cuda.Event(enable_timing=True) for _ in range(4)]
        with torch.cuda.stream(side):
            marks[0].record()
            for _ in range(turns):
                gather(table, ids, out=out, sm_share=SHARE)
            marks[1].record()
        marks[2].record()
        train()
        marks[3].record()
        torch.cuda.synchronize()
        times.append(marks[2].elapsed_time(marks[3]) / 1e3)
        rates.append(turns * out.numel() / marks[0].elapsed_time(marks[1]) / 1e6)
    yard.verify(out, table, ids, "beside training")
    beside = sorted(times)[2]
    taken = beside / alone - 1
    print(f"beside training: {taken:.1%} taken, gather at {sorted(rates)[2]:.1f} GB/s", flush=True)
    return bench_schema.Row(
        work=f"{products} products of {size} x {size} in bfloat16 while gathers of 1 KiB rows run",
        ours=beside * 1e3,
        unit="ms",
        peer=alone * 1e3,
        peer_name="the products alone",
        ratio=taken,
        target="<= 5 % of the time",
        met=taken <= 0.05,
        note=f"the gathers ran at {sorted(rates)[2]:.1f} GB/s on {SHARE:.0%} of multiprocessors",
    )


def host_gib() -> int:
    """Return the memory of the host, or of its control group, in GiB."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = Path("/sys/fs/cgroup/memory.max")
    if limit.exists() and limit.read_text().strip().isdigit():
        total = min(total, int(limit.read_text()))
    return total >> 30


def main() -> None:
    """Measure each table; tables are never pinned at once."""
    chosen = bench_schema.arguments(__doc__)
    sizes = [int(size) for size in os.environ.get("DATAPATH_GATHER_GIB", "8,48").split(",")]
    sizes = [1] if chosen.quick else [size for size in sizes if size + 8 < host_gib()]
    link = yard.copy_rate()
    rows: list[bench_schema.Row] = []
    for gib in sizes:
        memory = yard.pinned_table(gib << 30)
        rows += by_width(memory, gib, link, chosen.quick)
        if gib <= 8:
            rows += unaligned(memory)
            rows.append(beside_the_cpu(memory))
            rows.append(beside_training(memory))
        else:
            rows += after_reordering(memory, gib)
        del memory
        torch.cuda.synchronize()
    gib = 1 if chosen.quick else 8
    seconds = yard.registered_in_place(gib << 30)
    target = "<= 1 s" if gib == 8 else ""
    met = seconds <= 1 if gib == 8 else None
    work = f"register {gib} GiB in place"
    rows.append(bench_schema.Row(work=work, ours=seconds, unit="s", target=target, met=met))
    print(f"{work}: {seconds:.2f} s", flush=True)
    extra = {"model": str(gather_model()), "gpu": torch.cuda.get_device_name()}
    bench_schema.write(chosen.json, "pytorch-direct: gather by the GPU", rows, extra=extra)


if __name__ == "__main__":
    main()
