# SPDX-License-Identifier: Apache-2.0
"""Zero-copy gathers by a GPU: by row width, beside the CPU's way, unaligned, beside training.

Sections: ``small`` (a table of ``--small-gib``), ``unaligned``, ``cast``, ``training``, ``cpu``,
``register``, ``large`` (``--large-gib``, left out where the host has not the memory) and ``heat``
(rows laid out by heat). Rates are of payload: rows times their bytes. Every rate comes with a check
of bytes.
"""

from __future__ import annotations

import math
import os
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gather_yardsticks as yard
import measured_rows
import torch
from bench_schema import Row

from pytorch_direct import UnifiedTensor, check, gather, gather_model
from pytorch_direct.cli.measure import copy_rate, gather_rate, host_table, rows_of
from pytorch_direct.timing import seconds

SECTIONS = ("small", "unaligned", "cast", "training", "cpu", "register", "large", "heat")
SMALL_TARGETS = {64: 0.3, 128: 0.6, 256: 0.9, 512: 0.9, 1024: 0.9, 2048: 0.9, 4096: 0.9}
LARGE_TARGETS = {64: None, 128: None, 256: None, 512: 0.5, 1024: 0.9, 4096: 0.9}
# GB/s of a table of 48 GiB ordered by a bare kernel, on the machine of the targets (one H200).
LARGE_ORDERED = {64: 3.3, 128: 6.9, 256: 14.3}
SHARE = 0.05
"""The share cap: this part of the multiprocessors."""
CAPS = {
    "all multiprocessors": None, "5 % of the multiprocessors": SHARE,
    "3 % of the multiprocessors": 0.03, "2 % of the multiprocessors": 0.02,
}  # fmt: skip


class Bench:
    """Sizes, the device and what several sections share."""

    def __init__(self, options: Any) -> None:
        self.device: torch.device = options.device
        self.quick: bool = options.quick
        self.small = 1 << 24 if self.quick else options.small_gib << 30
        self.large = 1 << 25 if self.quick else options.large_gib << 30
        self.link = copy_rate(self.device, 1 << 24 if self.quick else 1 << 30)
        self.count = 1 << 12 if self.quick else 1 << 20
        self._memory: UnifiedTensor | None = None

    def memory(self, nbytes: int) -> UnifiedTensor:
        """Return host memory of this size; only one is held at a time."""
        if self._memory is None or self._memory.numel() != nbytes:
            self._memory = None
            start = time.perf_counter()
            self._memory = host_table(nbytes, self.device)
            took = time.perf_counter() - start
            print(f"{size(nbytes)} pinned and written: {took:.1f} s", flush=True)
        return self._memory

    def rate(self, nbytes: int, width: int, **options: Any) -> tuple[float, int]:
        """Return bytes a second of a gather from memory of this size, and its number of rows."""
        options = {"count": self.count, **options}
        return gather_rate(self.memory(nbytes), width, self.device, **options)

    def against_link(self, work: str, rate: float, target: float | None, note: str = "") -> Row:
        """Return a row beside the link."""
        target = None if self.quick else target
        return Row(
            work=work, ours=rate / 1e9, unit="GB/s", limit=self.link / 1e9,
            limit_name="pinned copy", ratio=rate / self.link,
            target="" if target is None else f">= {target:.0%} of the pinned copy",
            met=None if target is None else rate >= target * self.link, note=note,
        )  # fmt: skip

    def duplicates(self, width: int, count: int, rate: float) -> str:
        """Say what crossed the link where ids name rows twice, which are read once if that pays."""
        rows = self.small // width
        distinct = -rows * math.expm1(-count / rows) / count
        if distinct > 0.99:
            return ""
        return (
            f"{distinct:.2f} of the ids are distinct; if each row was read once, the link carried "
            f"{distinct * rate / 1e9:.1f} GB/s"
        )

    def small_table(self) -> Iterator[Row]:
        """Uniform random ids at each width, with all multiprocessors and under the share cap."""
        for words, share in list(CAPS.items())[:2]:
            for width, target in SMALL_TARGETS.items():
                rate, count = self.rate(self.small, width, sm_share=share)
                work = (
                    f"gather of {count} random rows of {width} B from {size(self.small)}, {words}"
                )
                yield self.against_link(work, rate, target, self.duplicates(width, count, rate))

    def unaligned(self) -> Iterator[Row]:
        """Rows packed one behind the other, against rows of nearly that width that are aligned."""
        for width, near in ((412, 416), (3076, 3072)):
            packed, count = self.rate(self.small, width)
            aligned, _ = self.rate(self.small, near)
            own, _ = self.rate(self.small, width, pitch=-(-width // 128) * 128)
            yield Row(
                work=f"gather of {count} random rows of {width} B, packed",
                ours=packed / 1e9, unit="GB/s", limit=aligned / 1e9,
                limit_name=f"rows of {near} B", ratio=packed / aligned,
                target=">= 90 % of aligned rows", met=packed >= 0.9 * aligned,
                note=f"the same rows, each beginning at a line of 128 B: {own / 1e9:.1f} GB/s",
            )  # fmt: skip

    def beside_cpu(self) -> Iterator[Row]:
        """4 KiB rows against torch's gather on 16 threads and a copy; time of the CPU."""
        rate, count = self.rate(self.small, 4096)
        table = rows_of(self.memory(self.small), 4096)
        ids = torch.randint(0, table.shape[0], (count,))
        threads = min(16, len(os.sched_getaffinity(0)))
        took, busy = yard.through_cpu(table, ids, threads, self.device)
        peer = count * 4096 / took
        on_device = ids.to(self.device)
        out = torch.empty(count, 4096, dtype=torch.uint8, device=self.device)
        # The call alone: waiting for a result may spin, and is not part of it.
        before = time.process_time()
        for _ in range(10):
            gather(table, on_device, out=out)
        used = (time.process_time() - before) / 10
        yield Row(
            work=f"gather of {count} random rows of 4096 B",
            ours=rate / 1e9, unit="GB/s", peer=peer / 1e9,
            peer_name=f"torch.index_select on {threads} threads into pinned memory, and a copy",
            ratio=rate / peer, target=">= 2.4x the peer", met=rate >= 2.4 * peer,
            note=f"CPU time of a batch {used * 1e3:.3f} ms, the peer's {busy * 1e3:.0f} ms",
        )  # fmt: skip

    def cast(self) -> Iterator[Row]:
        """int8 rows that arrive as bfloat16, scaled, against a gather and a conversion after it."""
        for width in (128, 256, 512):
            table = rows_of(self.memory(self.small).view(torch.int8), width)
            count = min(self.count, table.shape[0])
            ids = torch.randint(0, table.shape[0], (count,), device=self.device)
            out = torch.empty(count, width, dtype=torch.bfloat16, device=self.device)
            fused = seconds(
                lambda: gather(table, ids, out=out, dtype=torch.bfloat16, scale=0.1),  # noqa: B023
                self.device,
            )
            bare = torch.empty(count, width, dtype=torch.int8, device=self.device)
            plain = seconds(lambda: gather(table, ids, out=bare), self.device)  # noqa: B023

            def in_two(table=table, ids=ids, bare=bare, out=out) -> None:  # type: ignore[no-untyped-def]
                gather(table, ids, out=bare)
                out.copy_(bare.float().mul_(0.1))

            after = seconds(in_two, self.device)
            if not torch.equal(out, gather(table, ids, dtype=torch.bfloat16, scale=0.1)):
                raise RuntimeError(f"{width} int8 came out otherwise in one step than in two")
            moved = count * width / 1e9
            yield Row(
                work=f"gather of {count} rows of {width} int8, scaled to bfloat16 on the way",
                ours=moved / fused, unit="GB/s", peer=moved / after,
                peer_name="gather, then convert", limit=moved / plain,
                limit_name="gather of int8 as int8", ratio=plain / fused,
                note="of the link's bytes",
            )  # fmt: skip

    def training(self) -> Iterator[Row]:
        """What a gather on another stream costs training, by share; beside a plain copy's cost."""
        if self.device.type != "cuda":
            print("training: nothing overlaps on the CPU; left out", flush=True)
            return
        side = 256 if self.quick else 8192
        factor = torch.randn(side, side, device=self.device, dtype=torch.bfloat16)
        product = torch.empty_like(factor)

        def products() -> None:
            for _ in range(30):
                torch.mm(factor, factor, out=product)

        nodes, edges = (5_000, 10_000) if self.quick else (400_000, 500_000)
        step = yard.sage_step(nodes, edges, 256, self.device)
        kinds: dict[str, Callable[[], object]] = {
            f"30 products of {side} x {side} in bfloat16": products,
            f"GraphSAGE, 3 layers of 256, {nodes} nodes, {edges} edges, float32": step,
        }
        width = 1024
        table = rows_of(self.memory(self.small), width)
        ids = torch.randint(0, table.shape[0], (self.count // 2,), device=self.device)
        out = torch.empty(ids.numel(), width, dtype=torch.uint8, device=self.device)
        staged = torch.empty(out.shape, dtype=torch.uint8, pin_memory=True)
        for name, train in kinds.items():
            taken, rate = self._taken(train, lambda: out.copy_(staged, non_blocking=True), out)
            floor = f"a pinned copy by the copy engine takes {taken:.1%} at {rate / 1e9:.1f} GB/s"
            for words, share in CAPS.items():
                taken, rate = self._taken(
                    train,
                    lambda share=share: gather(table, ids, out=out, sm_share=share),  # type: ignore[misc]
                    out,
                )
                goal = share == SHARE
                yield Row(
                    work=f"time taken from {name}, by gathers of {width} B rows, {words}",
                    ours=taken * 100, unit="%", ratio=taken,
                    target="<= 5 % of the time" if goal else "",
                    met=taken <= 0.05 if goal else None,
                    note=f"gathers at {rate / 1e9:.1f} GB/s; {floor}",
                )  # fmt: skip
        check(self.device)

    def _taken(
        self, train: Callable[[], object], move: Callable[[], object], out: torch.Tensor
    ) -> tuple[float, float]:
        """Return the share of training's time that moves cost it, and their bytes a second.

        Rounds alone and beside take turns: a GPU that gets warm slows down in both.
        """
        one, alone = seconds(move, self.device, 3), seconds(train, self.device, 3)
        turns = max(2, int(1.5 * alone / one) + 1)
        lone, beside, rates = [], [], []
        stream = torch.cuda.Stream(self.device)
        for _ in range(3 if self.quick else 7):
            lone.append(seconds(train, self.device, 1))
            torch.cuda.synchronize()
            marks = [torch.cuda.Event(enable_timing=True) for _ in range(4)]
            with torch.cuda.stream(stream):
                marks[0].record()
                for _ in range(turns):
                    move()
                marks[1].record()
            marks[2].record()
            train()
            marks[3].record()
            torch.cuda.synchronize()
            beside.append(marks[2].elapsed_time(marks[3]) / 1e3)
            rates.append(turns * out.numel() / marks[0].elapsed_time(marks[1]) * 1e3)
        taken = statistics.median(beside) / statistics.median(lone) - 1
        return taken, statistics.median(rates)

    def register(self) -> Iterator[Row]:
        """Time to register ordinary memory in place."""
        self._memory = None
        took = yard.registered_in_place(self.small, self.device)
        goal = not self.quick and self.small == 8 << 30
        yield Row(
            work=f"register {size(self.small)} in place", ours=took, unit="s",
            target="<= 1 s" if goal else "", met=took <= 1 if goal else None,
        )  # fmt: skip

    def large_table(self) -> Iterator[Row]:
        """Uniform random ids; narrow rows beside the ordered gather of a bare kernel."""
        if self._too_large():
            return
        for width, target in LARGE_TARGETS.items():
            rate, count = self.rate(self.large, width)
            given, _ = self.rate(self.large, width, order="none", duplicates="keep")
            work = f"gather of {count} random rows of {width} B from {size(self.large)}"
            note = f"in the order given {given / 1e9:.1f} GB/s"
            if target is not None or self.large != 48 << 30:
                yield self.against_link(work, rate, target, note)
                continue
            bound = LARGE_ORDERED[width]
            yield Row(
                work=work, ours=rate / 1e9, unit="GB/s", limit=bound,
                limit_name="bare ordered kernel, another run on such a GPU",
                ratio=rate / 1e9 / bound, target=">= the ordered gather",
                met=rate / 1e9 >= bound, note=f"{note}; {rate / self.link:.2f} of the pinned copy",
            )  # fmt: skip

    def by_heat(self) -> Iterator[Row]:
        """The trace of a power law on a table in no order, and on one laid out by heat.

        `reorder_rows` puts the row of rank r at place r; so the same batch is read by its ranks.
        """
        if self._too_large():
            return
        for width in LARGE_ORDERED:
            rows = self.large // width
            ranks = yard.power_law_ranks(rows, self.count, self.device)
            before, count = self.rate(self.large, width, ids=yard.scattered(ranks, rows))
            after, _ = self.rate(self.large, width, ids=ranks)
            merged, _ = self.rate(self.large, width, ids=ranks, duplicates="merge")
            goal = self.large == 48 << 30
            bound = LARGE_ORDERED[width] if goal else None
            distinct = ranks.unique().numel() / count
            yield Row(
                work=f"gather of {count} rows of {width} B from {size(self.large)} by a power law, "
                "laid out by heat",
                ours=after / 1e9, unit="GB/s", peer=before / 1e9,
                peer_name="the same batch, rows in no order", limit=bound,
                limit_name="bare ordered kernel, uniform ids, another run on such a GPU",
                ratio=after / 1e9 / bound if bound else after / before,
                target=">= 2x the ordered gather" if bound else "",
                met=after / 1e9 >= 2 * bound if bound else None,
                note=f"{after / before:.2f}x the rate before; {distinct:.2f} of the ids are "
                f"distinct; duplicates merged: {merged / 1e9:.1f} GB/s; read by rank, as "
                "reorder_rows lays rows out",
            )  # fmt: skip

    def _too_large(self) -> bool:
        if self.large + (8 << 30) <= host_bytes() or self.quick:
            return False
        print(f"no table of {size(self.large)}: the host has {size(host_bytes())}", flush=True)
        return True


def size(nbytes: int) -> str:
    """Return a size in words."""
    return f"{nbytes >> 30} GiB" if nbytes >= 1 << 30 else f"{nbytes >> 20} MiB"


def host_bytes() -> int:
    """Return the memory of the host, or of its control group."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = Path("/sys/fs/cgroup/memory.max")
    if limit.exists() and limit.read_text().strip().isdigit():
        total = min(total, int(limit.read_text()))
    return total


def main() -> None:
    """Run the sections asked for."""
    options = measured_rows.options(__doc__, SECTIONS, small_gib=(int, 8), large_gib=(int, 48))
    results = measured_rows.Results(options.json, "pytorch-direct: gather by the GPU")
    bench = Bench(options)
    results.extra["model"] = str(gather_model())
    results.extra["pinned copy, GB/s"] = bench.link / 1e9
    parts = (
        bench.small_table, bench.unaligned, bench.cast, bench.training, bench.beside_cpu,
        bench.register, bench.large_table, bench.by_heat,
    )  # fmt: skip
    for name, run in zip(SECTIONS, parts, strict=True):
        if name in options.sections:
            results.section(name, run)
    results.finish()


if __name__ == "__main__":
    main()
