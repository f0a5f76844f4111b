# SPDX-License-Identifier: Apache-2.0
"""Explain compiled layers: the program, forms compared, the choice, kernels, bytes and memory.

A function named as FILE.py:FUNCTION returns (layer, graph, inputs ...), where the layer is a
function, compiled or not, or a module; it is called once unless it is a function. A script is run
as it is, and every compiled function is explained at its first call on graphs of a kind.
"""

from __future__ import annotations

import contextlib
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn

from datapath_core.commands import load_factory
from hector.compiled import Compiled
from hector.entry import compile
from hector.explain import Explanation
from hector.frontend.graph import TracedGraph
from hector.graph import Graph

__all__ = ["explanations", "run", "watched"]

Found = list[tuple[str, Explanation]]


@contextlib.contextmanager
def watched() -> Iterator[Found]:
    """Collect names and explanations of compiled calls that run meanwhile, equal ones once."""
    found: Found = []
    seen: set[tuple[str, str]] = set()
    call = Compiled.__call__

    def explained(self: Compiled, *args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_dynamo_compiling():
            return call(self, *args, **kwargs)
        result = call(self, *args, **kwargs)
        # Inside a trace there is a stand-in for the graph, and nothing runs.
        given = (*args, *kwargs.values())
        traced = any(isinstance(value, TracedGraph) for value in given)
        if not traced and any(isinstance(value, Graph) for value in given):
            account = self.explain(*args, **kwargs)
            if (self.name, account.source) not in seen:
                seen.add((self.name, account.source))
                found.append((self.name, account))
        return result

    Compiled.__call__ = explained  # type: ignore[method-assign]
    try:
        yield found
    finally:
        Compiled.__call__ = call  # type: ignore[method-assign]


def explanations(where: str, arguments: list[str], *, gradients: bool = True) -> Found:
    """Names and explanations of what a function's layer or a script compiles.

    Parameters
    ----------
    where : str
        "FILE.py:FUNCTION", "package.module:FUNCTION" or the path of a script.
    arguments : list of str
        Of a script.
    gradients : bool
        Whether gradients are planned, for tensors that require them.

    Raises
    ------
    ValueError
        If there is no such thing, or nothing compiled was called.
    """
    with torch.set_grad_enabled(gradients), watched() as found:
        if ":" in where:
            return found + _of_factory(where, found)
        path = Path(where)
        if not path.is_file():
            raise ValueError(f"there is no file {where}; FILE.py:FUNCTION names a function")
        before = sys.argv, list(sys.path)
        sys.argv, sys.path[:0] = [where, *arguments], [str(path.resolve().parent)]
        try:
            runpy.run_path(where, run_name="__main__")
        finally:
            sys.argv, sys.path[:] = before
    if not found:
        raise ValueError(f"{where} called no compiled function")
    return found


def _of_factory(where: str, found: Found) -> Found:
    made = load_factory(where)()
    if not isinstance(made, tuple) or len(made) < 2 or not callable(made[0]):
        raise ValueError(f"{where} must return (layer, graph, inputs ...)")
    layer, *inputs = made
    if isinstance(layer, nn.Module):
        layer(*inputs)
        if not found:
            raise ValueError(f"the module of {where} called no compiled function")
        return []
    compiled = layer if isinstance(layer, Compiled) else compile(layer)
    return [(compiled.name, compiled.explain(*inputs))]


def run(
    where: str, arguments: list[str], *, gradients: bool, everything: bool, svg: Path | None
) -> None:
    """Print explanations and draw them; several pictures are numbered.

    Parameters
    ----------
    where, arguments, gradients
        As for ``explanations``.
    everything : bool
        Whether the IR after every pass and the emitted programs are printed too.
    svg : Path or None
        Where pictures go.
    """
    found = explanations(where, arguments, gradients=gradients)
    for number, (name, account) in enumerate(found):
        print(f"# {name}: forms {account.forms}, emitter {account.emitter}")
        print(account if everything else account.summary())
        if svg is not None:
            target = svg if number == 0 else svg.with_stem(f"{svg.stem}-{number + 1}")
            target.write_text(account.svg(), encoding="utf-8")
            print(f"drawn: {target}")
