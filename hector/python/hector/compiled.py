# SPDX-License-Identifier: Apache-2.0
"""The object that ``hector.compile`` gives: checks arguments, keeps specialisations, calls them."""

from __future__ import annotations

import functools
import inspect
import sys
import warnings
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from hector._errors import unsupported
from hector.compiler import Built, Candidates, rounded
from hector.cost import CPU, GPU
from hector.emit import Emitter
from hector.emit.choice import choose
from hector.execute import Executable, check
from hector.explain import Explanation
from hector.forms import Forms
from hector.frontend.graph import TracedGraph
from hector.frontend.trace import Trace, trace
from hector.graph import Graph
from hector.library import register_program
from hector.passes import node_routes
from hector.plan import Counts, Plan
from hector.ready import Ready

if TYPE_CHECKING:
    from hector.capture import Recipe

__all__ = ["Compiled"]

_MOST_TRACES = 64
"""Kinds of calls that are remembered; past them all are forgotten."""

_KEPT = 8
"""Kinds of calls that are remembered for each graph."""


def _memory(device: torch.device) -> int | None:
    """All memory of a GPU, so that what else is on it now decides nothing; None for a CPU."""
    return torch.cuda.get_device_properties(device).total_memory if device.type == "cuda" else None


_TRACERS = (torch._C._TorchDispatchModeKey.FAKE, torch._C._TorchDispatchModeKey.PROXY)


def _transformed() -> bool:
    """Whether a transform of ``torch.func``, forward differentiation or a tracer is under way."""
    functorch: object = torch._C._functorch.peek_interpreter_stack()
    if functorch is not None or forward_ad._current_level >= 0:
        return True
    return any(torch._C._get_dispatch_mode(key) is not None for key in _TRACERS)


@dataclass(frozen=True)
class _Call:
    """One call's arguments, matched to a trace and checked."""

    trace: Trace
    graph: Graph
    arguments: Mapping[str, object]
    tensors: tuple[Tensor, ...]


class Compiled:
    """A compiled function; made by ``hector.compile``.

    Attributes
    ----------
    function : callable
        What was compiled; call it to run eagerly.
    name : str
        Its name, as messages say it.
    forms : Forms or None
        None lets the cost model choose for each graph.
    emitter : str
        "auto", "triton" or "torch".
    max_workspace : int or None
        Bytes; None for the memory of the graph's device.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        forms: Forms | None = None,
        emitter: str = "auto",
        max_workspace: int | None = None,
    ) -> None:
        functools.update_wrapper(self, function)
        self.name = getattr(function, "__name__", type(function).__name__)
        self.function = function
        self.forms = forms
        self.emitter = emitter
        self.max_workspace = max_workspace
        try:
            self._signature = inspect.signature(function)
        except ValueError:
            raise TypeError(
                f"compile: {self.name} has no signature; wrap it in a function"
            ) from None
        for parameter in self._signature.parameters.values():
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                raise TypeError(
                    f"compile: {self.name} takes {parameter}; name every argument instead"
                )
        parameters = self._signature.parameters.values()
        self._names = tuple(parameter.name for parameter in parameters)
        self._defaults = {p.name: p.default for p in parameters if p.default is not p.empty}
        self._traces: list[Trace] = []
        self._candidates: dict[object, Candidates] = {}
        self._built: dict[object, Built] = {}
        self._sampled: dict[object, list[Counts]] = {}
        self._emitters: dict[torch.device, Emitter] = {}
        self._executables: dict[int, Executable] = {}
        """By the identity of what was built, which they keep."""
        self._ready: weakref.WeakKeyDictionary[Plan, list[Ready]] = weakref.WeakKeyDictionary()

    def __set_name__(self, owner: type, name: str) -> None:
        """Become a plain function of the class, as methods of modules are expected to be."""
        compiled = self

        @functools.wraps(self.function)
        def method(*args: Any, **kwargs: Any) -> Any:
            return compiled(*args, **kwargs)

        vars(method).update(function=self.function, explain=self.explain, compiled=self)
        setattr(owner, name, method)

    def __reduce__(self) -> str | tuple[Any, ...]:
        """By name where an import finds it; else what it was made of, to be traced again."""
        path: str = getattr(self, "__qualname__", self.name)
        found: Any = sys.modules.get(self.__module__)
        for name in path.split("."):
            found = getattr(found, name, None)
        made = (self.function, self.forms, self.emitter, self.max_workspace)
        return path if found is self else (Compiled, made)

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        return self if instance is None else functools.partial(self, instance)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the function on a graph.

        Raises
        ------
        ValueError
            If a node, edge, relation or node-type tensor does not have exactly that many rows, or
            a tensor is not on the graph's device. Raised before anything is computed.
        UnsupportedError
            If the function uses what cannot be compiled.
        """
        if torch.compiler.is_dynamo_compiling():
            from hector.capture import captured  # here, since it brings all of Dynamo along

            return captured(self, self._by_name(args, kwargs))
        if any(isinstance(value, TracedGraph) for value in (*args, *kwargs.values())):
            return self.function(*args, **kwargs)  # called by a function that is being traced
        if _transformed():
            raise unsupported(
                f"{self.name}: torch.func (grad, vmap ..), forward-mode derivatives and tracers "
                f"of operators do not see into compiled functions; call the eager function "
                f"(compiled.function) there, or use torch.compile or torch.export(strict=True)"
            )
        known = self._known(args, kwargs)
        if known is None:
            call = self._match(args, kwargs)
            built = self._specialise(call)
            executable = self._executables.get(id(built))
            if executable is None:
                executable = self._executables[id(built)] = Executable(built, call.trace)
            plan, tensors = call.graph.plan(), call.tensors
            ready = Ready(call.trace, executable, call.graph, call.arguments, tensors)
            calls = self._ready.setdefault(plan, [])
            calls.insert(0, ready)
            del calls[_KEPT:]
        else:
            plan, ready, tensors = known
        outputs = ready.executable(plan, tensors)
        return outputs if ready.sequence else outputs[0]

    def _known(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> tuple[Plan, Ready, tuple[Tensor, ...]] | None:
        """What runs a call that is like one before, with its inputs; None for any other."""
        names = self._names
        if len(args) > len(names) or (kwargs and not kwargs.keys() <= {*names[len(args) :]}):
            return None
        arguments = {**self._defaults, **dict(zip(names, args, strict=False)), **kwargs}
        graphs = [value for value in arguments.values() if isinstance(value, Graph)]
        if len(arguments) != len(names) or len(graphs) != 1:
            return None
        plan = graphs[0].plan()
        for ready in self._ready.get(plan, ()):
            tensors = ready.take(arguments)
            if tensors is not None:
                return plan, ready, tuple(tensors)
        return None

    def _by_name(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments of a call, in code that Dynamo can follow."""
        if len(args) > len(self._names):
            raise TypeError(f"{self.name} takes {len(self._names)} arguments, not {len(args)}")
        return {**self._defaults, **dict(zip(self._names, args, strict=False)), **kwargs}

    def prepare(self, arguments: Mapping[str, object]) -> Recipe:
        """What ``torch.compile`` needs of a call; for capture, not for users.

        Parameters
        ----------
        arguments : mapping of str to object
            Tensors may be on ``meta``.

        Returns
        -------
        Recipe
        """
        from hector.capture import Recipe, watched

        first = [p.name for p in self._signature.parameters.values() if p.kind is p.POSITIONAL_ONLY]
        rest = {name: value for name, value in arguments.items() if name not in first}
        call = self._match(tuple(arguments[name] for name in first), rest, devices=False)
        built = self._specialise(call)
        inputs = tuple(
            (item.path, item.affine, None if item.affine else tensor.dtype, item.type.shape)
            for item, tensor in zip(call.trace.inputs, call.tensors, strict=True)
        )
        return Recipe(
            program=register_program(built, call.trace, call.graph.device),
            inputs=inputs,
            guards=tuple(guard for guard in call.trace.guards if watched(*guard)),
            functions=tuple(
                path
                for path, value in call.trace.guards
                if callable(value) and path[-1] != "__class__"
            ),
            graph=next(name for name, value in arguments.items() if value is call.graph),
            degenerate=call.trace.degenerate,
            active=tuple(built.backward is not None and on for on in built.lowered.active),
            sequence=call.trace.sequence,
        )

    def explain(self, *args: Any, **kwargs: Any) -> Explanation:
        """What a call with these arguments runs, and why; runs nothing.

        Parameters
        ----------
        *args, **kwargs
            As for a call. Gradients are planned for tensors that require them.

        Returns
        -------
        Explanation
            Prints the IR after each pass, the forms with their predicted times, bytes and flops
            of every operator, and the emitted programs.
        """
        call = self._match(args, kwargs)
        return Explanation(self._specialise(call), call.graph.plan().counts)

    def _match(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any], *, devices: bool = True
    ) -> _Call:
        bound = self._signature.bind(*args, **kwargs)
        bound.apply_defaults()
        graphs = {id(v): v for v in bound.arguments.values() if isinstance(v, Graph)}
        if len(graphs) != 1:
            raise TypeError(
                f"{self.name}: compiled functions take exactly one hector.Graph argument, "
                f"not {len(graphs)}"
            )
        (graph,) = graphs.values()
        for known in self._traces:
            if known.matches(graph, bound.arguments):
                found = known
                break
        else:
            names = dict(enumerate(bound.arguments))
            found = trace(self.function, graph, bound.args, bound.kwargs, names)
            self._remember(found)
        tensors = tuple(item.read(bound.arguments) for item in found.inputs)
        plan = graph.plan()
        checked = tuple(
            check(self.name, item, tensor, plan, device=devices)
            for item, tensor in zip(found.inputs, tensors, strict=True)
        )
        return _Call(found, graph, dict(bound.arguments), checked)

    def _remember(self, made: Trace) -> None:
        if len(self._traces) >= _MOST_TRACES:
            before, now = (dict(each.guards) for each in (self._traces[-1], made))
            changed = [".".join(path) for path in now if before.get(path) != now[path]]
            warnings.warn(
                f"{self.name} has been traced {_MOST_TRACES} times; what differed last is "
                f"{', '.join(changed) or 'a shape or dtype'}. A number that changes from call to "
                f"call is better passed as a tensor of no dimension, which needs no new trace",
                stacklevel=4,
            )
            for kept in (self._traces, self._candidates, self._built, self._sampled):
                kept.clear()
            self._executables.clear()
            self._ready.clear()
        self._traces.append(made)

    def _specialise(self, call: _Call) -> Built:
        wrt = frozenset(
            item.name
            for item, tensor in zip(call.trace.inputs, call.tensors, strict=True)
            if torch.is_grad_enabled() and tensor.requires_grad
        )
        device = call.graph.device
        counts = self._decided_for(call.graph, (call.trace, wrt, device))
        key = (call.trace, wrt, device, counts)
        if key not in self._built:
            if device not in self._emitters:
                self._emitters[device] = choose(self.emitter, device)
            routes = node_routes(counts)
            kind = (call.trace, wrt, device, routes)
            if kind not in self._candidates:
                made = Candidates(call.trace.function, wrt, routes, self._emitters[device])
                self._candidates[kind] = made
            machine = GPU if device.type == "cuda" else CPU
            limit = _memory(device) if self.max_workspace is None else self.max_workspace
            self._built[key] = self._candidates[kind].build(counts, self.forms, machine, limit)
        return self._built[key]

    def _decided_for(self, graph: Graph, kind: object) -> Counts:
        """The counts that decide: a sampled graph's are those of the first one like it."""
        counts = rounded(graph.plan().counts)
        if not graph.sampled:
            return counts
        known = self._sampled.setdefault(kind, [])
        for earlier in known:
            if earlier.alike(counts):
                return earlier
        known.append(counts)
        return counts
