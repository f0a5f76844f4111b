# SPDX-License-Identifier: Apache-2.0
"""What stands for the graph, and for a module, while a function is traced."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any

import torch
from torch import Tensor, nn

from hector.frontend.index import GraphIndex, RowCount
from hector.frontend.record import Recorder
from hector.frontend.symbol import Symbol
from hector.graph import Graph

__all__ = ["TracedGraph", "TracedModule", "is_plain"]

Path = tuple[str, ...]


class TracedGraph:
    """Gives the index names of ``Graph``, and its names of types, which a trace may depend on.

    Parameters
    ----------
    recorder : Recorder
    graph : Graph
    name : str
        Of the argument.
    guard : callable
        Notes that the traced program depends on a plain value.
    """

    def __init__(
        self, recorder: Recorder, graph: Graph, name: str, guard: Callable[[Path, object], None]
    ) -> None:
        self.recorder = recorder
        self._graph, self._name, self._guard = graph, name, guard

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        """The graph's, for ``isinstance``."""
        return Graph

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
        if name in ("node_type_names", "relation_names", "node_type_counts"):
            value = getattr(self._graph, name)
            self._guard((self._name, name), value)
            return value
        raise self.recorder.refuse(
            f"g.{name}", "use g.src, g.dst, g.rel, g.node_type, g.src_type, g.dst_type"
        )


def is_plain(value: object) -> bool:
    """Whether a trace may be specialised to a value: it has equality and never changes."""
    if isinstance(value, tuple):
        return all(is_plain(item) for item in value)
    plain = bool | int | float | str | torch.dtype | FunctionType | BuiltinFunctionType
    return value is None or isinstance(value, plain)


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

    # Names of its own are mangled: all others are the module's.
    __slots__ = ("__guard", "__lift", "__module", "__path", "__recorder")

    def __init__(
        self,
        recorder: Recorder,
        module: nn.Module,
        path: Path,
        lift: Callable[[Path, Tensor], Symbol],
        guard: Callable[[Path, object], None],
    ) -> None:
        own = {"recorder": recorder, "module": module, "path": path, "lift": lift, "guard": guard}
        for name, value in own.items():
            object.__setattr__(self, f"_TracedModule__{name}", value)

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        """The module's, for ``isinstance``."""
        return type(self.__module)

    def __wrap(self, name: str, value: object) -> Any:
        path = (*self.__path, name)
        if isinstance(value, Tensor):
            return self.__lift(path, value)
        if isinstance(value, nn.Module):
            self.__guard((*path, "__class__"), type(value))
            return TracedModule(self.__recorder, value, path, self.__lift, self.__guard)
        if is_plain(value):
            self.__guard(path, value)
            return value
        raise self.__recorder.refuse(
            f"the attribute {name} of {type(self.__module).__name__} ({type(value).__name__})",
            "use tensors, modules, functions, numbers, strings, None, or tuples of these last four",
        )

    def __getattr__(self, name: str) -> Any:
        kind = type(self.__module)
        if name not in vars(self.__module):
            method = getattr(kind, name, None)
            if isinstance(inspect.getattr_static(kind, name, None), staticmethod | classmethod):
                return method
            if isinstance(method, FunctionType):
                return MethodType(method, self)
        if name == "_modules" and isinstance(self.__module, nn.ModuleDict):
            return {key: self[key] for key in self.__module if len(self)}
        if not hasattr(self.__module, name):
            self.__guard((*self.__path, name), None)
        return self.__wrap(name, getattr(self.__module, name))

    def __setattr__(self, name: str, value: object) -> None:
        raise self.__recorder.refuse(
            f"assignment to self.{name}",
            "later calls run no Python: return the value, and assign it outside",
        )

    def __getitem__(self, key: object) -> Any:
        if isinstance(key, int):
            key = key % max(len(self), 1) if key < 0 else key
        return self.__wrap(str(key), getattr(self.__module, str(key)))

    def __len__(self) -> int:
        count = len(self.__module)
        self.__guard((*self.__path, "__len__"), count)
        return count

    def __iter__(self) -> Iterator[Any]:
        return (self[number] for number in range(len(self)))

    def __contains__(self, key: object) -> bool:
        return len(self) > 0 and key in self.__module

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Trace through the module's ``forward``; its hooks do not run."""
        forward = type(self.__module).forward
        inner = getattr(forward, "function", forward)  # a compiled method is traced through
        return inner(self, *args, **kwargs)
