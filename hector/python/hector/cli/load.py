# SPDX-License-Identifier: Apache-2.0
"""Functions by the name of a file or module and their own."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

__all__ = ["load_factory"]


def load_factory(name: str) -> Callable[[], Any]:
    """The function that "script.py:make" or "package.module:make" names.

    Raises
    ------
    ValueError
        If there is no such file, module or function.
    """
    where, colon, attribute = name.rpartition(":")
    if not colon or not where or not attribute:
        raise ValueError(f"{name!r} names no function: 'script.py:make' or 'module:make' wanted")
    path = Path(where)
    if where.endswith(".py"):
        if not path.is_file():
            raise ValueError(f"there is no file {where}")
        spec = importlib.util.spec_from_file_location(path.stem, path)
        if spec is None or spec.loader is None:
            raise ValueError(f"{where} cannot be imported")
        module = importlib.util.module_from_spec(spec)
        sys.modules.setdefault(path.stem, module)
        # What stands beside a script is imported as if the script were run.
        sys.path.insert(0, str(path.resolve().parent))
        spec.loader.exec_module(module)
    else:
        try:
            module = importlib.import_module(where)
        except ModuleNotFoundError as error:
            raise ValueError(f"no module {where!r}: {error}") from None
    factory = getattr(module, attribute, None)
    if not callable(factory):
        raise ValueError(f"{where} has no function {attribute!r}")
    return factory  # type: ignore[no-any-return]
