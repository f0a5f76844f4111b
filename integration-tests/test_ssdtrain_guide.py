# SPDX-License-Identifier: Apache-2.0
"""The snippets of guide and README run as they stand, one after the other."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import Any

import pytest
from packages import needed

needed("ssdtrain")

ROOT = Path(__file__).resolve().parents[1]
TEXTS = {ROOT / "docs" / "guides" / "ssdtrain.md": 6, ROOT / "ssdtrain" / "README.md": 1}
"""Texts, and how many snippets each has at least."""

SNIPPET = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.name)
def test_snippets_run(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    text = path.read_text(encoding="utf-8")
    names: dict[str, Any] = {"__name__": "guide"}
    count = 0
    for found in SNIPPET.finditer(text):
        # Errors name the guide's own lines.
        line = text.count("\n", 0, found.start(1))
        exec(compile("\n" * line + found[1], str(path), "exec"), names)
        count += 1
    assert count == text.count("```python") >= TEXTS[path]
