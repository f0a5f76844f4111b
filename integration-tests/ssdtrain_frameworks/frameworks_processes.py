# SPDX-License-Identifier: Apache-2.0
"""Runs cases of ``frameworks_worker.py`` in two processes and returns what each one found."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from frameworks_support import BACKENDS, assert_equal

__all__ = ["Get", "Outcome", "assert_trained_alike", "run_when_asked", "two_processes"]

WORKER = Path(__file__).with_name("frameworks_worker.py")


@dataclass
class Outcome:
    """One process: named tensors of the plain and of the offloaded run, and the last report."""

    plain: dict[str, torch.Tensor] = field(default_factory=dict)
    moved: dict[str, torch.Tensor] = field(default_factory=dict)
    report: dict[str, Any] = field(default_factory=dict)
    error: str = ""

    @property
    def disk(self) -> int:
        """Bytes that the last step moved to the disk."""
        return int(self.report["bytes"]["disk"])


def two_processes(cases: list[str], folder: Path, device: str = "cpu") -> dict[str, list[Outcome]]:
    """Run cases, each plain and offloaded, one after another in the same two processes.

    On ``"cuda"`` each process has a GPU of its own and they talk through NCCL.

    To start Python and PyTorch takes longer than any case. After one that fails the rest is left.
    """
    backend = BACKENDS[device]
    if not dist.is_available() or not dist.is_backend_available(backend):
        pytest.skip(f"this torch has no {backend}")
    spill = folder / "spill"
    spill.mkdir()
    outs = [folder / f"out-{rank}.pt" for rank in range(2)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    environment["FRAMEWORKS_DEVICE"] = device
    processes = [
        subprocess.Popen(
            [sys.executable, WORKER, str(rank), folder / "meet", out, spill, *cases],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment,
        )
        for rank, out in enumerate(outs)
    ]
    outputs = []
    try:
        for process in processes:
            outputs.append(process.communicate(timeout=280)[0])
    finally:
        for process in processes:
            process.kill()
            process.wait()
    assert list(spill.iterdir()) == []
    found: dict[str, list[Outcome]] = {}
    for case in cases:
        found[case] = []
        for rank, out in enumerate(outs):
            assert out.exists(), outputs[rank]
            saved = torch.load(out, map_location="cpu").get(
                case, {"error": f"not run: {outputs[rank][-2000:]}"}
            )
            found[case].append(Outcome(**saved))
    return found


Get = Callable[[list[str], str], list[Outcome]]


def run_when_asked(new_folder: Callable[[], Path], device: str = "cpu") -> Get:
    """``get(cases, case)``: of one of the cases, which are run together at the first call."""
    found: dict[str, list[Outcome]] = {}

    def get(cases: list[str], case: str) -> list[Outcome]:
        if case not in found:
            found.update(two_processes(cases, new_folder(), device))
        return found[case]

    return get


def assert_trained_alike(outcomes: list[Outcome], *, moves: bool = True) -> None:
    """Offloading changed no bit in either process, had no fault, and moved something if it must."""
    assert not any(outcome.error for outcome in outcomes), "\n".join(o.error for o in outcomes)
    for outcome in outcomes:
        assert_equal(outcome.moved, outcome.plain)
        assert outcome.disk > 0 or not moves, outcome.report
        assert outcome.report["faults"] == []
        assert outcome.report["live_bytes"] == {}
