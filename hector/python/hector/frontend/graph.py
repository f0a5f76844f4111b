# SPDX-License-Identifier: Apache-2.0
"""What stands for the graph, and for a module, while a function is traced."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import FunctionType, MethodType
from typing import Any

import torch
from torch import Tensor, nn

from hector.frontend.index import GraphIndex, RowCount
from hector.frontend.record import Recorder
from hector.frontend.symbol import Symbol
from hector.graph import Graph

__all__ = ["TracedGraph", "TracedModule", "is_plain"]


class TracedGraph:
    """Gives the index names of ``Graph``."""

    def __init__(self, recorder: Recorder, graph: Graph) -> None:
        self.recorder = recorder
        self._graph = graph

    def __getattr__(self, name: str) -> Any:
        maps = {
            "src": "edge.src", "dst": "edge.dst", "rel": "edge.rel",
            "node_type": "node.type", "src_type": "edge.src_type", "dst_type": "edge.dst_type",
        }  # fmt: skip
        if name in maps:
            if name.endswith("_type") and not self._graph.has_node_types:
                raise ValueError(f"g.{name}: this Graph has no node types; pass node_type=")
            return GraphIndex(maps[name], f"g.{name}", self.recorder)
        if name in ("num_nodes", "num_edges", "num_relations", "num_node_types"):
            return RowCount(self.recorder, getattr(self._graph, name))
        raise self.recorder.refuse(
            f"g.{name}", "use g.src, g.dst, g.rel, g.node_type, g.src_type, g.dst_type"
        )


def is_plain(value: object) -> bool:
    """Whether a trace may be specialised to a value: it has equality and never changes."""
    if isinstance(value, tuple):
        return all(is_plain(item) for item in value)
    return value is None or isinstance(value, bool | int | float | str | torch.dtype)


class TracedModule:
    """A module under trace: tensors become inputs, plain values become guards.

    Parameters
    ----------
    recorder : Recorder
    module : nn.Module
    path : tuple of str
        How to find the module from the call's arguments.
    lift : callable
        Turns a path and a tensor into a symbol.
    guard : callable
        Notes that the traced program depends on a plain value.
    """

    def __init__(
        self,
        recorder: Recorder,
        module: nn.Module,
        path: tuple[str, ...],
        lift: Callable[[tuple[str, ...], Tensor], Symbol],
        guard: Callable[[tuple[str, ...], object], None],
    ) -> None:
        self._recorder, self._module, self._path = recorder, module, path
        self._lift, self._guard = lift, guard

    def _wrap(self, name: str, value: object) -> Any:
        path = (*self._path, name)
        if isinstance(value, Tensor):
            return self._lift(path, value)
        if isinstance(value, nn.Module):
            self._guard((*path, "__class__"), type(value))
            return TracedModule(self._recorder, value, path, self._lift, self._guard)
        if is_plain(value):
            self._guard(path, value)
            return value
        raise self._recorder.refuse(
            f"the attribute {name} of {type(self._module).__name__} ({type(value).__name__})",
            "use tensors, modules, numbers, strings, None, or tuples of these last three",
        )

    def __getattr__(self, name: str) -> Any:
        method = getattr(type(self._module), name, None)
        if isinstance(method, FunctionType):
            return MethodType(method, self)
        return self._wrap(name, getattr(self._module, name))

    def __getitem__(self, key: object) -> Any:
        return self._wrap(str(key), getattr(self._module, str(key)))

    def __len__(self) -> int:
        count = len(self._module)  # type: ignore[arg-type]
        self._guard((*self._path, "__len__"), count)
        return count

    def __iter__(self) -> Iterator[Any]:
        return (self[number] for number in range(len(self)))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Trace through the module's ``forward``; its hooks do not run."""
        forward = type(self._module).forward
        inner = getattr(forward, "function", forward)  # a compiled method is traced through
        return inner(self, *args, **kwargs)
