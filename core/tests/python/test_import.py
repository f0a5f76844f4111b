# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json


def test_import_brings_no_torch_no_numpy_and_no_driver(child) -> None:
    done = child(
        """
        import json, sys
        import datapath_core
        maps = open("/proc/self/maps").read()
        threads = len(__import__("os").listdir("/proc/self/task"))
        print(json.dumps({
            "modules": [m for m in ("torch", "numpy", "rich", "tqdm") if m in sys.modules],
            "cuda": "libcuda" in maps or "libcufile" in maps,
            "threads": threads,
        }))
        """
    )
    assert json.loads(done.stdout) == {"modules": [], "cuda": False, "threads": 1}


def test_every_exported_name_is_there() -> None:
    import datapath_core

    for name in datapath_core.__all__:
        assert getattr(datapath_core, name) is not None, name


def test_another_platform_is_refused_with_an_error_that_names_it(child) -> None:
    done = child(
        """
        import os
        os.uname = lambda: ("Windows", "", "", "", "AMD64")
        try:
            import datapath_core
        except ImportError as error:
            print(type(error).__name__, error)
        """
    )
    assert "UnsupportedPlatformError" in done.stdout
    assert "Windows" in done.stdout
    assert "Linux" in done.stdout


def test_rocm_torch_is_refused_without_importing_it(child, folder) -> None:
    package = folder / "torch"
    package.mkdir()
    (package / "__init__.py").write_text("raise SystemExit('torch was imported')")
    (package / "version.py").write_text("cuda = None\nhip: str | None = '6.4.1'\n")
    done = child(
        """
        import sys
        sys.path.insert(0, sys.argv[1])
        try:
            import datapath_core
        except ImportError as error:
            print(error)
        """,
        folder,
    )
    assert "ROCm 6.4.1" in done.stdout


def test_rocm_torch_that_is_imported_already_is_refused(child) -> None:
    done = child(
        """
        import sys, types
        torch = types.ModuleType("torch")
        torch.version = types.SimpleNamespace(hip="6.2", cuda=None)
        sys.modules["torch"] = torch
        try:
            import datapath_core
        except ImportError as error:
            print(error)
        """
    )
    assert "ROCm 6.2" in done.stdout
