# SPDX-License-Identifier: Apache-2.0
"""``hector.compile``: checks the options; what a call does is in compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, overload

from hector.compiled import Compiled
from hector.emit.choice import EMITTERS
from hector.forms import NAMED_FORMS, Forms

__all__ = ["compile"]


@overload
def compile(
    function: Callable[..., Any],
    *,
    forms: str | Forms = ...,
    emitter: str = ...,
    max_workspace: int | None = ...,
) -> Compiled: ...
@overload
def compile(
    function: None = ...,
    *,
    forms: str | Forms = ...,
    emitter: str = ...,
    max_workspace: int | None = ...,
) -> Callable[[Callable[..., Any]], Compiled]: ...


def compile(
    function: Callable[..., Any] | None = None,
    *,
    forms: str | Forms = "auto",
    emitter: str = "auto",
    max_workspace: int | None = None,
) -> Compiled | Callable[[Callable[..., Any]], Compiled]:
    """Compile a relational model written as plain PyTorch indexing.

    Parameters
    ----------
    function : callable
        A function, or a method of an ``nn.Module``, with one ``Graph`` among its arguments; the
        others are tensors, modules, numbers, strings or None. It is traced at the first call and
        again when ranks, feature extents, dtypes or plain values change.
    forms : "auto", "per_edge", "compact", "aggregate_first", "fold" or Forms
        "auto" lets the cost model choose for each graph; the others fix the choice.
    emitter : "auto", "triton" or "torch"
        What the kernels are written in. "auto" takes Triton for graphs on CUDA, PyTorch elsewhere.
        Under Triton, fp64 and what no template takes is computed by PyTorch; ``explain`` says what.

    max_workspace : int, optional
        Bytes that forward, or backward, may hold beside its inputs, results included, as predicted.
        "auto" chooses among the forms that keep to it, or the one that holds least where none does.
        Default: all memory of the graph's GPU; no limit on a CPU.

    Returns
    -------
    Compiled
        Same arguments, same results up to rounding, differentiable once.

    Raises
    ------
    TypeError
        If ``function`` is not callable, or takes ``*args`` or ``**kwargs``; if ``forms`` or
        ``max_workspace`` is of another type.
    ValueError
        If ``forms`` or ``emitter`` is unknown, or ``max_workspace`` is negative.

    Notes
    -----
    Two calls with the same inputs give the same bits. The method is that of Hector (ASPLOS 2024):
    an inter-operator IR, linear operator reordering and compact materialisation.
    """
    if isinstance(forms, str):
        if forms != "auto" and forms not in NAMED_FORMS:
            known = ", ".join(("auto", *NAMED_FORMS))
            raise ValueError(f"compile: forms={forms!r} is none of {known}")
        chosen = NAMED_FORMS.get(forms)
    elif isinstance(forms, Forms):
        chosen = forms
    else:
        raise TypeError(f"compile: forms must be a str or Forms, not {type(forms).__name__}")
    if max_workspace is not None:
        if isinstance(max_workspace, bool) or not isinstance(max_workspace, int):
            kind = type(max_workspace).__name__
            raise TypeError(f"compile: max_workspace must be an int of bytes, not {kind}")
        if max_workspace < 0:
            raise ValueError(f"compile: max_workspace must not be negative, got {max_workspace}")
    if emitter not in EMITTERS:
        raise ValueError(f"compile: emitter={emitter!r} is none of {', '.join(EMITTERS)}")
    if function is None:
        return lambda inner: compile(
            inner, forms=forms, emitter=emitter, max_workspace=max_workspace
        )
    if not callable(function):
        raise TypeError(f"compile takes a function, not a {type(function).__name__}")
    return Compiled(function, chosen, emitter, max_workspace)
