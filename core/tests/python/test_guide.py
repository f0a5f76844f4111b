# SPDX-License-Identifier: Apache-2.0
"""The examples of the guide and the README run as they stand."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PAGES = [ROOT / "docs" / "guides" / "core.md", ROOT / "core" / "README.md"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_examples_of_a_page_run(page: Path, child, folder, monkeypatch) -> None:
    if not page.exists():
        pytest.skip("the documentation is not here")
    blocks = re.findall(r"^```python\n(.*?)^```$", page.read_text(encoding="utf-8"), re.M | re.S)
    assert blocks
    monkeypatch.chdir(folder)
    child("\n".join(blocks))
