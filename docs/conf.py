# SPDX-License-Identifier: Apache-2.0
"""Sphinx settings; `nox -s docs` builds with warnings as errors."""

from __future__ import annotations

import ast
import importlib
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent

project = "datapath"
author = "the datapath developers"
copyright = author
release = tomllib.loads((ROOT / "core" / "pyproject.toml").read_text())["project"]["version"]

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build", "benchmarks/gpu"]

myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
# A link to a page that is not there is a warning, and so an error. Two packages have a Graph, and
# attributes are called bytes: a type's bare name in a docstring then has several targets.
suppress_warnings = ["ref.python"]

autodoc_member_order = "bysource"
# The newer implementation drops what autodoc-process-signature returns for native methods.
autodoc_use_legacy_class_based = True
autodoc_typehints = "signature"
napoleon_google_docstring = False
napoleon_numpy_docstring = True
napoleon_use_rtype = False

html_theme = "furo"
html_title = "datapath"
html_static_path: list[str] = []


def _stub_signatures() -> dict[str, tuple[str, str]]:
    """Return parameters and result of all that core's stub declares, by "Class.method" or name."""
    stub = ROOT / "core" / "python" / "datapath_core" / "_core.pyi"
    found = {}
    for node in ast.parse(stub.read_text()).body:
        for function in node.body if isinstance(node, ast.ClassDef) else [node]:
            if not isinstance(function, ast.FunctionDef):
                continue
            if isinstance(node, ast.ClassDef):
                del function.args.args[:1]
            name = f"{node.name}.{function.name}" if function is not node else function.name
            result = ast.unparse(function.returns) if function.returns else ""
            found[name] = (f"({ast.unparse(function.args)})", result)
    return found


_SIGNATURES = _stub_signatures()


def _native_signature(
    app: Any, what: str, name: str, native: Any, *_: Any
) -> tuple[str, str] | None:
    """Give a native function, which carries no signature of its own, the one of the stub."""
    if not name.startswith("datapath_core.") or hasattr(native, "__code__"):
        return None
    place, last = name.rsplit(".", 1)
    if what == "function" and place == "datapath_core":
        return _SIGNATURES.get(last)
    if what != "method":
        return None
    module, owner = place.rsplit(".", 1)
    for base in getattr(importlib.import_module(module), owner).__mro__:
        if last in vars(base):
            return _SIGNATURES.get(f"{base.__name__}.{last}")
    return None


def setup(app: Any) -> None:
    app.connect("autodoc-process-signature", _native_signature)
