# SPDX-License-Identifier: Apache-2.0
"""What emitted programs call beside their kernels, and how their text becomes a module."""

from __future__ import annotations

import hashlib
import linecache
from collections.abc import Mapping

from torch import Tensor

__all__ = ["by_column", "load"]

_loaded: dict[str, dict[str, object]] = {}


def by_column(w: Tensor) -> Tensor:
    """Contiguous matrices laid out column after column, as a copy."""
    return w.mT.contiguous()


def load(source: str, scope: Mapping[str, object]) -> dict[str, object]:
    """Run a module's text; the same text is run once.

    Parameters
    ----------
    source : str
        Defines kernels and a function that launches them.
    scope : mapping of str to object
        Names that the text uses; the same for every text.

    Returns
    -------
    dict
        The module's names.
    """
    digest = hashlib.sha256(source.encode()).hexdigest()
    if digest not in _loaded:
        name = f"<hector kernels {digest[:16]}>"
        # Triton reads a kernel's text through the file of its function.
        linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
        module: dict[str, object] = {"__name__": f"hector_kernels_{digest[:16]}", **scope}
        exec(compile(source, name, "exec"), module)
        _loaded[digest] = module
    return _loaded[digest]
