# SPDX-License-Identifier: Apache-2.0
"""Functions that break a compiled graph, marked without importing the compiler."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

__all__ = ["outside_graph"]


def outside_graph(function: Callable[..., Any], reason: str) -> Callable[..., Any]:
    """Return `function` such that ``torch.compile`` leaves its graph to run it.

    ``torch.compiler.disable`` alone would do, but it imports the compiler, which takes seconds, and
    this package must import quickly. The attributes are what it sets on its result; they carry the
    reason to the error of ``fullgraph=True``.
    """

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        return torch.compiler.disable(function)(*args, **kwargs)  # type: ignore[no-untyped-call]

    run._torchdynamo_disable = True  # type: ignore[attr-defined]
    run._torchdynamo_disable_msg = reason  # type: ignore[attr-defined]
    return run
