# SPDX-License-Identifier: Apache-2.0
"""The guide's code runs as it stands, each framework's part where that is installed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from packages import needed

needed("ssdtrain")

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "guides" / "ssdtrain-frameworks.md"
FIRST, *PARTS = re.findall(r"^```python\n(.*?)^```", GUIDE.read_text(), re.DOTALL | re.MULTILINE)
FRAMEWORKS = ["transformers", "lightning", "accelerate"]


def test_each_framework_has_a_part() -> None:
    assert [name for name, part in zip(FRAMEWORKS, PARTS, strict=True) if name not in part] == []


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", FRAMEWORKS)
def test_part_of_the_guide(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip(name)
    pytest.importorskip("accelerate")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tempfile.mkdtemp", lambda: str(tmp_path))
    names: dict[str, Any] = {}
    exec(FIRST, names)
    assert names["off"].report()["bytes"]["disk"] > 0
    names["handle"].remove()
    step = names["off"].report()["step"]
    exec(PARTS[FRAMEWORKS.index(name)], names)
    report = names["off"].report()
    assert report["step"] > step
    assert report["bytes"]["disk"] > 0
    names["off"].close()
