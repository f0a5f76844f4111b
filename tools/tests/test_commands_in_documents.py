# SPDX-License-Identifier: Apache-2.0
"""Commands that a reader copies: options that older tools know, names that only we answer for."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("*/README.md"), *(ROOT / "docs").rglob("*.md")])
OURS = r"(?<![\w./-])(datapath-core|pytorch-direct|hector-rgnn|ssdtrain)\b"
BUILT_ON_CORE = r"\./(pytorch-direct|hector|ssdtrain)\b"


def _pip_commands(text: str) -> list[str]:
    return [line for line in re.split(r"[\n`]|&&", text) if re.search(r"\bpip3? +\w+", line)]


def _complaint(command: str) -> str | None:
    if re.search(r" -C\b", command):
        return "pip's -C is younger than Debian 12's pip: write --config-settings"
    if not re.search(r"\bpip3? +(install|wheel|download)\b", command):
        return None
    asks_for_ours = re.search(OURS, command) or re.search(BUILT_ON_CORE, command)
    if asks_for_ours and "--no-index" not in command:
        return "asks an index for one of our names, which are not registered there"
    return None


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_pip_commands_can_be_copied(document: Path) -> None:
    for command in _pip_commands(document.read_text(encoding="utf-8")):
        assert _complaint(command) is None, command


@pytest.mark.parametrize(
    ("command", "good"),
    [
        ("pip install ./core", True),
        ("pip install ./core ./ssdtrain", False),
        ("pip install --find-links dist ssdtrain", False),
        ("pip install 'ssdtrain[lightning]'", False),
        ("pip install --no-index --find-links dist datapath-core ./ssdtrain", True),
        ("pip install --no-index ./core -C cmake.define.X=1", False),
        ("python -m pip show -f datapath-core", True),
    ],
)
def test_what_the_check_finds(command: str, good: bool) -> None:
    assert (_complaint(command) is None) is good


def test_the_sessions_know_no_short_config_settings() -> None:
    assert '"-C"' not in (ROOT / "noxfile.py").read_text(encoding="utf-8")
