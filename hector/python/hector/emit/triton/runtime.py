# SPDX-License-Identifier: Apache-2.0
"""What emitted programs call beside their kernels, and how their text becomes a module."""

from __future__ import annotations

import hashlib
import linecache
from collections.abc import Mapping

import torch
from torch import Tensor

from hector.plan import Plan

__all__ = ["load", "matrices", "precision", "scratch"]

_loaded: dict[str, dict[str, object]] = {}


def precision() -> str:
    """How products of fp32 matrices round their operands, as PyTorch is told to."""
    return "ieee" if torch.get_float32_matmul_precision() == "highest" else "tf32"


def matrices(w: Tensor, transposed: bool, by_column: bool) -> tuple[Tensor, int, int, int]:
    """A matrix, or one for each type, with its strides (type, row, column).

    Parameters
    ----------
    w : Tensor, shape (types, k, n) or (k, n)
    transposed : bool
        Whether the transposes are meant.
    by_column : bool
        Whether to lay the matrices out column after column where they are not.
    """
    w = w.mT if transposed else w
    if by_column and w.stride(-2) != 1:
        w = w.mT.contiguous().mT
    return w, w.stride(0) if w.dim() == 3 else 0, w.stride(-2), w.stride(-1)


def scratch(rows: int, width: int, plan: Plan) -> Tensor:
    """Room for partial results, fp32."""
    return torch.empty((rows, width), dtype=torch.float32, device=plan.device)


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
