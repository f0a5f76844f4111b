# SPDX-License-Identifier: Apache-2.0
"""gather on the CPU against torch.index_select, by row width and number of threads."""

from __future__ import annotations

import time
from collections.abc import Callable

import bench_schema
import torch

from pytorch_direct import gather


def best_seconds(run: Callable[[], object], repeats: int = 7) -> float:
    """Return the shortest of several runs, after one that is not counted."""
    run()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times)


def main() -> None:
    """Measure one row a width; verify the bytes of each."""
    options = bench_schema.arguments(__doc__)
    table_bytes = (64 if options.quick else 1024) << 20
    rows = []
    threads = torch.get_num_threads()
    for width, dtype in ((64, torch.float32), (128, torch.float32), (412, torch.float32),
                         (1024, torch.float32), (3076, torch.float32), (4096, torch.float32),
                         (256, torch.bfloat16), (4097, torch.uint8)):  # fmt: skip
        elements = width // dtype.itemsize
        table = torch.zeros(table_bytes // width, elements, dtype=dtype)
        table[:] = torch.arange(table.shape[0]).remainder(113).to(dtype)[:, None]
        count = min(1 << 18, (128 << 20) // width)
        ids = torch.randint(0, table.shape[0], (count,))
        out, peer_out = torch.empty(count, elements, dtype=dtype), torch.empty(0, dtype=dtype)
        ours = best_seconds(lambda: gather(table, ids, out=out))  # noqa: B023  (run at once)
        peer = best_seconds(lambda: torch.index_select(table, 0, ids, out=peer_out))  # noqa: B023
        if not torch.equal(out.view(torch.uint8), peer_out.view(torch.uint8)):
            raise RuntimeError(f"rows of {width} bytes came out wrong")
        moved = count * width / 1e9
        rows.append(
            bench_schema.Row(
                work=f"gather of {count} random rows of {width} B ({dtype}) from "
                f"{table_bytes >> 20} MiB, {threads} threads",
                ours=moved / ours,
                unit="GB/s",
                peer=moved / peer,
                peer_name="torch.index_select",
                ratio=peer / ours,
            )
        )
        print(f"{rows[-1].work}: {moved / ours:.2f} GB/s, index_select {moved / peer:.2f} GB/s")
    bench_schema.write(options.json, "pytorch-direct: gather on the CPU", rows)


if __name__ == "__main__":
    main()
