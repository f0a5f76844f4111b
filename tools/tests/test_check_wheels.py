# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import zipfile
from pathlib import Path

import check_wheels

FILES = {
    "ssdtrain/__init__.py": b"",
    "ssdtrain/py.typed": b"",
    "ssdtrain-0.1.0.dist-info/licenses/LICENSE": b"",
}


def _wheel(folder: Path, files: dict[str, bytes], tag: str = "py3-none-any") -> Path:
    path = folder / f"ssdtrain-0.1.0-{tag}.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path


def test_a_complete_wheel_is_good(tmp_path: Path) -> None:
    assert check_wheels.check(_wheel(tmp_path, FILES)) == []


def test_a_missing_marker_file_and_packed_tests_are_named(tmp_path: Path) -> None:
    files = {name: content for name, content in FILES.items() if not name.endswith("py.typed")}
    faults = check_wheels.check(_wheel(tmp_path, {**files, "ssdtrain/tests/test_a.py": b""}))
    assert len(faults) == 2
    assert any("py\\.typed" in fault for fault in faults)
    assert any("ssdtrain/tests/test_a.py" in fault for fault in faults)


def test_a_second_package_at_the_top_is_named(tmp_path: Path) -> None:
    faults = check_wheels.check(_wheel(tmp_path, {**FILES, "python/ssdtrain.py": b""}))
    assert faults == ["more than one package at the top: ['python', 'ssdtrain']"]


def test_a_tag_that_promises_native_code_where_there_is_none_is_named(tmp_path: Path) -> None:
    faults = check_wheels.check(_wheel(tmp_path, FILES, "cp311-cp311-linux_x86_64"))
    assert faults == ["the tag and the contents disagree on native code"]


def test_an_unknown_distribution_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other-0.1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w"):
        pass
    assert check_wheels.check(path) == ["no rule for a distribution called other"]
