# SPDX-License-Identifier: Apache-2.0
"""The examples of the guide and the README run as they stand."""

import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "docs" / "guides" / "hector.md", ROOT / "hector" / "README.md"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_examples_of_a_page_run(page, tmp_path, monkeypatch):
    if not page.exists():
        pytest.skip("the documentation is not here")
    blocks = re.findall(r"^```python\n(.*?)^```$", page.read_text(encoding="utf-8"), re.M | re.S)
    assert blocks
    script = tmp_path / "guide.py"
    script.write_text("\n".join(blocks), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    module = ModuleType("guide")
    monkeypatch.setitem(sys.modules, "guide", module)
    exec(compile(script.read_text(encoding="utf-8"), str(script), "exec"), vars(module))


def test_the_layer_of_the_guide_is_short():
    page = PAGES[0]
    if not page.exists():
        pytest.skip("the documentation is not here")
    first = re.search(r"^```python\n(.*?)^```$", page.read_text(encoding="utf-8"), re.M | re.S)[1]
    assert len(first.strip().splitlines()) < 40
    assert "explain(" in first
    assert "timeit(" in first
