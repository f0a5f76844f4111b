# SPDX-License-Identifier: Apache-2.0
"""Two processes under torch.distributed offload into one directory and train as if they did not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from packages import needed

WORKER = Path(__file__).with_name("two_processes_worker.py")

needed("ssdtrain")
if not dist.is_available() or not dist.is_gloo_available():
    pytest.skip("this torch has no gloo", allow_module_level=True)


def _run(folder: Path, name: str, spill: Path | None) -> list[dict[str, Any]]:
    """Train in two processes; return each one's losses, gradients and bytes on disk."""
    outs = [folder / f"{name}-{rank}.pt" for rank in range(2)]
    command = [sys.executable, str(WORKER)]
    processes = [
        subprocess.Popen(
            [*command, str(rank), str(folder / f"{name}-meet"), str(out)]
            + ([] if spill is None else [str(spill)]),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank, out in enumerate(outs)
    ]
    try:
        for rank, process in enumerate(processes):
            output, _ = process.communicate(timeout=200)
            assert process.returncode == 0, f"process {rank}:\n{output}"
    finally:
        for process in processes:
            process.kill()
            process.wait()
    return [torch.load(out) for out in outs]


def test_offloading_in_both_changes_nothing(tmp_path: Path) -> None:
    spill = tmp_path / "spill"
    spill.mkdir()
    plain = _run(tmp_path, "plain", None)
    moved = _run(tmp_path, "moved", spill)
    for rank in range(2):
        assert moved[rank]["losses"] == plain[rank]["losses"]
        assert moved[rank]["gradients"].keys() == plain[rank]["gradients"].keys()
        for name, gradient in plain[rank]["gradients"].items():
            assert torch.equal(moved[rank]["gradients"][name], gradient), name
        assert min(moved[rank]["offloaded"]) > 0
    # The processes really trained together: other text, same averaged gradients.
    assert moved[0]["losses"] != moved[1]["losses"]
    for name, gradient in moved[0]["gradients"].items():
        assert torch.equal(gradient, moved[1]["gradients"][name]), name
    assert list(spill.iterdir()) == []
