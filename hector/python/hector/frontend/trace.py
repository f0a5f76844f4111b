# SPDX-License-Identifier: Apache-2.0
"""Traces a function once and says for which later calls the trace holds."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence, Sized
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from hector.dtypes import NAMES
from hector.frontend.graph import TracedGraph, TracedModule, is_plain
from hector.frontend.location import is_own, raised_at
from hector.frontend.lowering import feature_shape, to_ir
from hector.frontend.numbers import TracedInt
from hector.frontend.record import SEED, Call, Recorder, SpaceVar
from hector.frontend.symbol import Symbol
from hector.graph import Graph
from hector.ir.function import Function
from hector.ir.types import Space, Type
from hector.masks import seed_word

__all__ = ["Input", "Trace", "computed_dtype", "fetch", "trace"]

Path = tuple[str, ...]


@dataclass(frozen=True)
class Input:
    """One tensor that the traced program reads.

    Attributes
    ----------
    name : str
        Parameter name in the IR.
    path : tuple of str
        Argument name, then attributes of modules.
    type : Type
    affine : (int, int) or None
        Of a seed given as a Python int: the input is the argument times the first plus the second.
    """

    name: str
    path: Path
    type: Type
    affine: tuple[int, int] | None = None

    def fits(self, value: object) -> bool:
        """Whether a value has this input's dtype and extents; rows are not compared."""
        if not isinstance(value, Tensor):
            return False
        if self.type.dtype == SEED:
            return value.dtype is torch.int64 and value.dim() == 0
        if NAMES.get(computed_dtype(value)) != self.type.dtype:
            return False
        shape = tuple(value.shape)
        if self.type.space is Space.WEIGHT:
            return shape == self.type.shape
        return len(shape) == len(self.type.shape) + 1 and shape[1:] == self.type.shape

    def read(self, arguments: Mapping[str, object]) -> object:
        """The tensor among a call's arguments."""
        value = fetch(arguments, self.path)
        if isinstance(value, Tensor):
            return value.to(computed_dtype(value))
        if self.affine is None or not isinstance(value, int):
            return value
        return torch.tensor(seed_word(value * self.affine[0] + self.affine[1]), device="cpu")


@dataclass(frozen=True, eq=False)
class Trace:
    """A traced function with the conditions under which it may be used again.

    Attributes
    ----------
    function : Function
    inputs : tuple of Input
        In parameter order.
    guards : tuple of (path, value)
        Plain values that the program was specialised to.
    degenerate : tuple of bool
        Which spaces had exactly one row, where broadcasting and rows look alike.
    sequence : bool
        Whether the user's function returned a tuple.
    """

    function: Function
    inputs: tuple[Input, ...]
    guards: tuple[tuple[Path, object], ...]
    degenerate: tuple[bool, ...]
    sequence: bool

    def matches(self, graph: Graph, arguments: Mapping[str, object]) -> bool:
        """Whether a call's arguments are of the kind that was traced; rows are not compared."""
        if self.degenerate != degenerate(graph):
            return False
        for path, expected in self.guards:
            value = fetch(arguments, path)
            if type(value) is not type(expected) or value != expected:
                return False
        for item in self.inputs:
            value = fetch(arguments, item.path)
            if item.affine is not None:
                if type(value) is not int:
                    return False
            elif not item.fits(value):
                return False
        return True


def computed_dtype(tensor: Tensor) -> torch.dtype:
    """The dtype that a tensor is computed in: that of autocast where it is on, but never f64's."""
    kind = tensor.device.type
    low = tensor.dtype in (torch.float32, torch.bfloat16, torch.float16)
    if low and kind in ("cpu", "cuda") and torch.is_autocast_enabled(kind):
        return torch.get_autocast_dtype(kind)
    return tensor.dtype


def degenerate(graph: Graph) -> tuple[bool, ...]:
    """Which of the graph's counts are one, and whether nodes have types."""
    counts = (graph.num_nodes, graph.num_edges, graph.num_relations, graph.num_node_types)
    return (*(count == 1 for count in counts), graph.has_node_types)


def fetch(arguments: Mapping[str, object], path: Path) -> object:
    """The value at a path; None where an attribute is gone."""
    value = arguments[path[0]]
    for name in path[1:]:
        if name == "__len__":
            value = len(value) if isinstance(value, Sized) else None
        else:
            value = getattr(value, name, None)
    return value


class _Tracer:
    """Turns arguments into symbols and keeps inputs and guards."""

    def __init__(self, graph: Graph) -> None:
        self.recorder = Recorder(graph.plan().counts)
        self.graph = graph
        self.inputs: dict[Path, Call] = {}
        self.seeds: dict[Path, tuple[Path, tuple[int, int]]] = {}
        self.guards: dict[Path, object] = {}

    def lift(self, path: Path, tensor: Tensor) -> Symbol:
        """The symbol of a tensor, the same for every use of its path."""
        if path not in self.inputs:
            seed = tensor.dtype is torch.int64 and tensor.dim() == 0
            if tensor.dtype not in NAMES and not seed:
                raise TypeError(
                    f"{'.'.join(path)} is {tensor.dtype}; compiled functions take "
                    f"{', '.join(map(str, NAMES))} (index tensors belong to the Graph)"
                )
            self._input(
                path, tuple(tensor.shape), SpaceVar(), NAMES.get(computed_dtype(tensor), SEED)
            )
        return Symbol(self.recorder, self.inputs[path])

    def _input(self, path: Path, shape: tuple[int, ...], var: SpaceVar, dtype: str) -> Call:
        name = re.sub(r"\W", "_", ".".join(path).removeprefix("self."))
        taken = {call.attrs["name"] for call in self.inputs.values()}
        while name in taken or name.startswith(("grad_", "saved_")):
            name = "in_" + name
        call = self.recorder.call("input", (), shape, var, dtype, name=name)
        self.inputs[path] = call
        return call

    def number(self, name: str, value: int) -> TracedInt:
        """What stands for an integer argument: free as a seed, fixed by any other use."""

        def record(scale: int, offset: int) -> Call:
            path = (name, str(scale), str(offset))
            if path not in self.inputs:
                self.seeds[path] = ((name,), (scale, offset))
                self._input(path, (), SpaceVar(Space.WEIGHT), SEED)
            return self.inputs[path]

        return TracedInt(value, lambda: self.guard((name,), value), record)

    def guard(self, path: Path, value: object) -> None:
        """Note a plain value that the trace depends on."""
        self.guards[path] = value

    def argument(self, name: str, value: object) -> object:
        """What stands for one argument of the call."""
        if value is self.graph:
            return TracedGraph(self.recorder, self.graph, name, self.guard)
        if isinstance(value, Tensor):
            return self.lift((name,), value)
        if isinstance(value, nn.Module):
            self.guard((name, "__class__"), type(value))
            return TracedModule(self.recorder, value, (name,), self.lift, self.guard)
        if type(value) is int:
            return self.number(name, value)
        if is_plain(value):
            self.guard((name,), value)
            return value
        raise TypeError(
            f"argument {name} is a {type(value).__name__}; compiled functions take one Graph, "
            f"tensors, modules, numbers, strings and None"
        )


def _run(function: Callable[..., Any], args: Sequence[object], kwargs: Mapping[str, object]) -> Any:
    """The function on symbols; what it fails with there says which line did."""
    try:
        return function(*args, **kwargs)
    except (AttributeError, TypeError) as error:
        if is_own(error) or not raised_at(error):
            raise
        raise type(error)(
            f"{raised_at(error)}: {error}. This was while hector.compile traced it, when tensors "
            f"and numbers of rows are symbols: what PyTorch does not take of them (a new tensor of "
            f"so many rows, say) is made outside and passed as an argument"
        ) from error


def trace(
    function: Callable[..., Any], graph: Graph, args: tuple[object, ...],
    kwargs: Mapping[str, object], names: Mapping[int, str],
) -> Trace:  # fmt: skip
    """Record a function on symbols.

    Parameters
    ----------
    function : callable
        The user's function.
    graph : Graph
        The one graph among the arguments.
    args, kwargs
        As bound for the call.
    names : mapping of int to str
        Parameter name of each positional argument.

    Returns
    -------
    Trace

    Raises
    ------
    UnsupportedError
        For anything that cannot be compiled; names the source line, the operator and the remedy.
    ValueError, TypeError, IndexError
        For what would fail eagerly too, or for tensors with the wrong number of rows.
    """
    tracer = _Tracer(graph)
    positional = [tracer.argument(names[i], value) for i, value in enumerate(args)]
    keyword = {name: tracer.argument(name, value) for name, value in kwargs.items()}
    with torch.enable_grad():  # so that a no_grad inside the function shows
        returned = _run(function, positional, keyword)
    sequence = isinstance(returned, tuple | list)
    results = tuple(returned) if sequence else (returned,)
    named = getattr(function, "__name__", type(function).__name__)
    for result in results or (returned,):
        if not isinstance(result, Symbol):
            raise TypeError(
                f"{named} returned a {type(result).__name__}; compiled functions "
                f"return a tensor, or a tuple of tensors, computed from their arguments"
            )
    tracer.recorder.settle()
    calls = tracer.recorder.calls
    name = re.sub(r"\W", "_", named)
    traced = to_ir(name if name.isidentifier() else "function", calls, [r._call for r in results])
    inputs = tuple(
        Input(
            call.attrs["name"],
            *(tracer.seeds[path][:1] if path in tracer.seeds else (path,)),
            Type(call.var.resolve(), feature_shape(call), call.dtype),
            tracer.seeds[path][1] if path in tracer.seeds else None,
        )
        for path, call in tracer.inputs.items()
    )
    return Trace(traced, inputs, tuple(tracer.guards.items()), degenerate(graph), sequence)
