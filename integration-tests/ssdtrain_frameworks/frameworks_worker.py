# SPDX-License-Identifier: Apache-2.0
"""One of two processes: runs cases plain and offloaded and saves what came out.

Usage: frameworks_worker.py RANK RENDEZVOUS OUT SPILL CASE... A case is a function of
``frameworks_cases_torch``, or ``NAME.function`` of ``frameworks_cases_NAME``; it takes the rank and
an offloader or None, and returns named tensors. One that ends in ``_planned`` gets the planner.
FRAMEWORKS_DEVICE in the environment says where they run, "cpu" or "cuda".
"""

from __future__ import annotations

import gc
import importlib
import os
import sys
import traceback
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from frameworks_support import BACKENDS, DEVICE

import ssdtrain


def _compare(case: str, rank: int, spill: str) -> dict[str, Any]:
    module, _, name = case.rpartition(".")
    run = getattr(importlib.import_module(f"frameworks_cases_{module or 'torch'}"), name)
    plan = "auto" if name.endswith("_planned") else "all"
    off = ssdtrain.Offloader(spill, 0, "64MiB", min_bytes=1, plan=plan, checks=True, backlog=0)
    with closing(off):
        plain = run(rank, None)
        moved = run(rank, off)
        gc.collect()
        return {"plain": plain, "moved": moved, "report": off.report()}


def main(rank: int, rendezvous: str, out: str, spill: str, cases: list[str]) -> None:
    torch.set_num_threads(1)
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2", LOCAL_WORLD_SIZE="2")
    if DEVICE == "cuda":
        torch.cuda.set_device(rank)
    dist.init_process_group(
        BACKENDS[DEVICE],
        init_method=f"file://{rendezvous}",
        rank=rank,
        world_size=2,
        timeout=timedelta(seconds=200),
    )
    found: dict[str, dict[str, Any]] = {}
    for case in cases:
        try:
            found[case] = _compare(case, rank, spill)
        except Exception:  # noqa: BLE001 - it is reported by the test that asked for the case
            found[case] = {"error": f"process {rank}: {traceback.format_exc()}"}
        torch.save(found, out)
        if "error" in found[case]:
            break  # The other process may be anywhere.
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4], sys.argv[5:])
