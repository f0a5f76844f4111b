# SPDX-License-Identifier: Apache-2.0
"""The examples of the guide run as they stand, and its script with PyG's loader too."""

from __future__ import annotations

import importlib.util
import re
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "guides" / "pytorch-direct.md"
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PYG = importlib.util.find_spec("torch_geometric") is not None
OURS = "from pytorch_direct import NeighborLoader"
THEIRS = "from torch_geometric.loader import NeighborLoader"


def blocks(language: str) -> list[tuple[int, str]]:
    """Lines and texts of the guide's blocks."""
    if not GUIDE.exists():
        pytest.skip("the documentation is not here")
    text = GUIDE.read_text(encoding="utf-8")
    return [
        (text.count("\n", 0, found.start(2)), found[2])
        for found in BLOCK.finditer(text)
        if found[1] == language
    ]


def run(block: tuple[int, str], names: dict[str, Any]) -> None:
    # Errors name the guide's own lines.
    line, text = block
    exec(compile("\n" * line + text, str(GUIDE), "exec"), names)


def test_the_examples_run_one_after_the_other():
    torch.manual_seed(0)
    names: dict[str, Any] = {"__name__": "guide"}
    found = blocks("python")
    ran = 0
    for block in found:
        # What needs PyG stands by itself, so that the others run without it.
        if "torch_geometric" in block[1] and not PYG:
            continue
        with warnings.catch_warnings():
            # The first one asks for workers, which is what PyG's script does.
            warnings.simplefilter("ignore", UserWarning)
            run(block, names)
        ran += 1
    assert ran >= 8
    assert len(found) >= 10


@pytest.mark.skipif(not PYG, reason="no torch-geometric")
def test_the_one_line_is_the_only_difference():
    if not any(importlib.util.find_spec(name) for name in ("torch_sparse", "pyg_lib")):
        pytest.skip("PyG's loader has no sampler here")
    removed, added = blocks("diff")[0][1].splitlines()
    assert (removed, added) == (f"-{THEIRS}", f"+{OURS}")
    line, script = next(block for block in blocks("python") if OURS in block[1])
    losses = []
    for loader in (OURS, THEIRS):
        torch.manual_seed(0)
        text = re.sub(rf"^{re.escape(OURS)}.*$", loader, script, flags=re.MULTILINE)
        text = text.replace("num_workers=4, pin_memory=True", "num_workers=0")
        assert loader in text
        names: dict[str, Any] = {"__name__": "guide"}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            run((line, text), names)
        losses.append(float(names["loss"].detach()))
    # Other samples, the same law.
    assert losses[0] == pytest.approx(losses[1], rel=0.5)


def test_the_commands_are_those_of_the_command_line():
    from pytorch_direct.cli.command import _parser

    commands = [
        line.split()[1:]
        for _, text in blocks("")
        for line in text.splitlines()
        if line.startswith("pytorch-direct ")
    ]
    assert commands
    for command in commands:
        _parser().parse_args(command)
