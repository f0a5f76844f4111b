# SPDX-License-Identifier: Apache-2.0
"""Runs built programs under autograd; translates between the user's and the plan's edge order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from hector._errors import unsupported
from hector.compiler import Built
from hector.frontend.record import SEED
from hector.frontend.trace import Input, Trace
from hector.ir.function import Value, param_name, rooted
from hector.ir.types import Space
from hector.plan import Plan

__all__ = ["Executable", "check"]


def _apart(a: Value, b: Value) -> bool:
    """Whether two results share no element: other memory, or other parts of one value."""
    if rooted(a) is not rooted(b):
        return True
    if a.op != "slice" or b.op != "slice" or a.operands != b.operands:
        return False
    starts, stops = ([each.number(key) for each in (a, b)] for key in ("start", "stop"))
    return a.number("axis") == b.number("axis") and max(starts) >= min(stops)


def _owned(result: Value, earlier: Sequence[Value]) -> bool:
    """Whether a result is memory of its own, not of an input, the plan or another result."""
    given = rooted(result).op in ("param", "inverse_count")
    return not given and all(_apart(result, other) for other in earlier)


def check(name: str, item: Input, tensor: object, plan: Plan, *, device: bool = True) -> Tensor:
    """A tensor of a call, which must fit its graph.

    Parameters
    ----------
    name : str
        Of the function, for messages.
    item : Input
    tensor : object
    plan : Plan
    device : bool
        Whether the device is compared too.

    Returns
    -------
    Tensor
        The argument; its view on the graph's device where it is host memory that has one: a
        ``device_view(device)`` that gives a tensor over the same memory, as those of
        ``pytorch_direct.unified`` do.

    Raises
    ------
    ValueError
        If the tensor is on another device, not dense, or has another number of rows.
    """
    assert isinstance(tensor, Tensor)
    where = f"{name}: {'.'.join(item.path)}"
    if device and tensor.device != plan.device and item.type.dtype != SEED:
        if not hasattr(tensor, "device_view"):
            raise ValueError(f"{where} is on {tensor.device}, the graph on {plan.device}")
        view: Tensor = tensor.device_view(plan.device)
        return check(name, item, view, plan)
    if tensor.layout is not torch.strided:
        raise ValueError(f"{where} must be dense, not {tensor.layout}")
    space = item.type.space
    if space is not Space.WEIGHT:
        rows = plan.counts.rows(space)
        if tensor.shape[0] != rows:
            raise ValueError(
                f"{where} has {tensor.shape[0]} rows; a {space.value.replace('_', ' ')} tensor "
                f"of this graph has exactly {rows}"
            )
    return tensor


class Executable:
    """A built program with what running it needs to know, found out once.

    Parameters
    ----------
    built : Built
    trace : Trace
    """

    def __init__(self, built: Built, trace: Trace) -> None:
        self.built = built
        self.trained = built.backward is not None
        self._forward = built.forward.run
        spaces = {item.name: item.type.space for item in trace.inputs}
        numbers = {item.name: i for i, item in enumerate(trace.inputs)}
        self._edges = [i for i, space in enumerate(spaces.values()) if space is Space.EDGE]
        results = trace.function.results
        made = built.lowered.forward.results
        self._outputs = tuple(
            (value.type.space is Space.EDGE, _owned(value, made[:i]))
            for i, value in enumerate(made[: len(results)])
        )
        self.inactive = [i for i, active in enumerate(built.lowered.active) if not active]
        if built.backward is None or built.lowered.backward is None:
            return
        self._backward = built.backward.run
        self.params = [param_name(param) for param in built.lowered.backward.params]
        spaces |= {f"grad_{i}": result.type.space for i, result in enumerate(results)}
        edges = [name for name in self.params if spaces.get(name) is Space.EDGE]
        self._edge_args = [self.params.index(name) for name in edges]
        self._edge_grads = [self.params.index(name) for name in edges if name not in numbers]
        self.inputs = [numbers[name] for name in self.params if name in numbers]
        """Numbers of the inputs that the backward program reads, in its order."""
        self.saved = [int(name[6:]) for name in self.params if name.startswith("saved_")]
        """Numbers of the saved values that it reads, in its order."""
        at_hand = [
            *(trace.inputs[i].name for i in self.inputs),
            *(f"saved_{i}" for i in self.saved),
        ]
        order = [*at_hand, *(f"grad_{i}" for i in range(len(results)))]
        self.args = [order.index(name) for name in self.params]
        """Place of each of its arguments among those inputs, saved values and all gradients."""
        reached = [numbers[name] for name in built.lowered.reached]
        found = built.lowered.backward.results
        self._reached = [
            (i, trace.inputs[i].type.space is Space.EDGE, _owned(found[at], found[:at]))
            for at, i in enumerate(reached)
        ]

    def forward(
        self, plan: Plan, tensors: Sequence[Tensor]
    ) -> tuple[list[Tensor], tuple[Tensor, ...], list[Tensor]]:
        """Outputs in the user's order, saved values, and the inputs as the programs take them.

        Parameters
        ----------
        plan : Plan
        tensors : sequence of Tensor
            In the order of the trace's inputs.
        """
        inputs = [tensor.contiguous() for tensor in tensors]
        for i in self._edges:
            inputs[i] = tensors[i].index_select(0, plan.edge_order)
        results = self._forward(plan, inputs)
        outputs = []
        for output, (edge, owned) in zip(results, self._outputs, strict=False):
            if edge:
                output = output.index_select(0, plan.edge_position)
            outputs.append(output.contiguous() if edge or owned else output.clone())
        return outputs, results[len(self._outputs) :], inputs

    def backward(
        self, plan: Plan, args: list[Tensor], *, ordered: bool = True
    ) -> list[tuple[int, Tensor]]:
        """Numbers of inputs with their gradients, in the user's order of rows.

        Parameters
        ----------
        plan : Plan
        args : list of Tensor
            What the backward program reads, in the order of its parameters.
        ordered : bool
            Whether inputs are in the plan's order of rows; gradients of outputs never are.
        """
        for i in self._edge_grads if ordered else self._edge_args:
            args[i] = args[i].index_select(0, plan.edge_order)
        results = self._backward(plan, args)
        made = []
        for (i, edge, owned), result in zip(self._reached, results, strict=True):
            if edge:
                result = result.index_select(0, plan.edge_position)
            # Autograd takes gradients as they are, and optimisers change them in place.
            made.append((i, result if edge or owned else result.clone()))
        return made

    def __call__(self, plan: Plan, tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Outputs, attached to autograd where the program was built for gradients.

        Parameters
        ----------
        plan : Plan
        tensors : sequence of Tensor
            In the order of the trace's inputs, rows checked.
        """
        if self.trained:
            outputs: tuple[Tensor, ...] = _Program.apply(  # type: ignore[no-untyped-call]
                self, plan, *tensors
            )
            return outputs
        if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
            with torch.no_grad():
                return tuple(self.forward(plan, tensors)[0])
        return tuple(self.forward(plan, tensors)[0])


class _OnceOnly(torch.autograd.Function):
    """Passes the first ``count`` tensors on and refuses to be differentiated.

    The others are what those depend on: with them in the graph, a second differentiation meets
    this function and raises, instead of finding no path and giving zeros.
    """

    @staticmethod
    def forward(ctx: Any, count: int, *tensors: Tensor) -> tuple[Tensor, ...]:
        return tuple(grad.view_as(grad) for grad in tensors[:count])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        raise unsupported(
            "hector.compile: gradients of gradients are not supported; call the eager function "
            "(compiled.function) where you need them"
        )


class _Program(torch.autograd.Function):
    """A forward program with its backward program."""

    @staticmethod
    def forward(
        ctx: Any, executable: Executable, plan: Plan, *tensors: Tensor
    ) -> tuple[Tensor, ...]:
        outputs, saved, inputs = executable.forward(plan, tensors)
        ctx.executable, ctx.plan, ctx.count = executable, plan, len(tensors)
        # The user's own tensors are saved beside copies of them that are read, so that autograd
        # notices when one is changed in place between forward and backward.
        read = executable.inputs
        copied = [tensors[i] for i in read if inputs[i] is not tensors[i]]
        ctx.save_for_backward(
            *[inputs[i] for i in read], *[saved[i] for i in executable.saved], *copied
        )
        if executable.inactive:
            ctx.mark_non_differentiable(*(outputs[i] for i in executable.inactive))
        return tuple(outputs)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        executable, plan, kept = ctx.executable, ctx.plan, ctx.saved_tensors
        count = len(executable.inputs) + len(executable.saved)
        values = [*kept[:count], *grads]
        gradients: list[Tensor | None] = [None] * ctx.count
        if not torch.is_grad_enabled():
            for i, found in executable.backward(plan, [values[at] for at in executable.args]):
                gradients[i] = found
            return None, None, *gradients
        with torch.no_grad():
            made = executable.backward(plan, [values[at] for at in executable.args])
        # Saved copies have no history; the inputs of the function do.
        marked = _OnceOnly.apply(  # type: ignore[no-untyped-call]
            len(made), *(found for _, found in made), *kept, *grads
        )
        for (i, _), found in zip(made, marked, strict=True):
            gradients[i] = found
        return None, None, *gradients
