# SPDX-License-Identifier: Apache-2.0
"""One process of test_two_processes.py: trains under DistributedDataParallel and saves the result.

Usage: two_processes_worker.py RANK RENDEZVOUS OUT [SPILL]. Without SPILL nothing is offloaded.
"""

from __future__ import annotations

import contextlib
import os
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE / "data"), str(HERE.parent / "docs" / "examples")]

import language_model  # noqa: E402
from stdlib_corpus import Corpus  # noqa: E402

SETTINGS = language_model.Settings(
    layers=2, width=32, heads=2, length=32, batch_size=4, steps=5, min_bytes=0
)


def _train(rank: int, offloader: Any) -> dict[str, Any]:
    torch.manual_seed(0)
    model = torch.nn.parallel.DistributedDataParallel(language_model.LanguageModel(SETTINGS))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    corpus = Corpus(max_bytes=100_000)
    losses, offloaded = [], []
    # Each process has its own text, so that the gradients differ before they are averaged.
    for inputs, targets in corpus.batches(SETTINGS.steps, 4, 32, seed=100 + rank):
        optimizer.zero_grad()
        with offloader:
            loss = torch.nn.functional.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        losses.append(loss.item())
        if hasattr(offloader, "report"):
            offloaded.append(offloader.report()["bytes"]["disk"])
    gradients = {name: parameter.grad for name, parameter in model.named_parameters()}
    return {"losses": losses, "gradients": gradients, "offloaded": offloaded}


def main(rank: int, rendezvous: str, out: str, spill: str | None) -> None:
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{rendezvous}",
        rank=rank,
        world_size=2,
        timeout=timedelta(seconds=120),
    )
    try:
        if spill is None:
            result = _train(rank, contextlib.nullcontext())
        else:
            import ssdtrain

            offloader = ssdtrain.Offloader(
                spill=spill, host=0, ssd="64MiB", min_bytes=0, plan="all", backlog=0, checks=True
            )
            with contextlib.closing(offloader):
                result = _train(rank, offloader)
        torch.save(result, out)
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4] if len(sys.argv) > 4 else None)
    # DistributedDataParallel over gloo aborts some processes at their end, torch alone 2 of 50.
    sys.stdout.flush()
    os._exit(0)
