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
from hector.ir.function import Value, param_name
from hector.ir.types import Space
from hector.plan import Plan

__all__ = ["check", "execute", "forward_program", "gradients_program"]

_VIEWS = frozenset("reshape slice transpose broadcast".split())


def _owned(result: Value, earlier: Sequence[Value]) -> bool:
    """Whether a result is memory of its own, not of an input, the plan or another result."""
    root = result
    while root.op in _VIEWS:
        root = root.operands[0]
    return root.op not in ("param", "inverse_count") and result not in earlier


def _to_plan(tensor: Tensor, space: Space, plan: Plan) -> Tensor:
    return tensor.index_select(0, plan.edge_order) if space is Space.EDGE else tensor.contiguous()


def _to_user(tensor: Tensor, space: Space, plan: Plan) -> Tensor:
    return tensor.index_select(0, plan.edge_position) if space is Space.EDGE else tensor


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
        The argument.

    Raises
    ------
    ValueError
        If the tensor is on another device, not dense, or has another number of rows.
    """
    assert isinstance(tensor, Tensor)
    where = f"{name}: {'.'.join(item.path)}"
    if device and tensor.device != plan.device and item.type.dtype != SEED:
        raise ValueError(f"{where} is on {tensor.device}, the graph on {plan.device}")
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


def forward_program(
    built: Built, plan: Plan, trace: Trace, tensors: Sequence[Tensor]
) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...], tuple[Tensor, ...]]:
    """Outputs in the user's order, saved values, and the inputs as the programs take them."""
    inputs = tuple(
        _to_plan(tensor, item.type.space, plan)
        for tensor, item in zip(tensors, trace.inputs, strict=True)
    )
    values = built.lowered.forward.results
    results = built.forward.run(plan, inputs)
    count = len(trace.function.results)
    outputs = []
    for i in range(count):
        output = _to_user(results[i], values[i].type.space, plan)
        alone = values[i].type.space is Space.EDGE or _owned(values[i], values[:i])
        outputs.append(output.contiguous() if alone else output.clone())
    return tuple(outputs), results[count:], inputs


def gradients_program(
    built: Built, plan: Plan, trace: Trace, values: dict[str, Tensor], *, ordered: bool = True
) -> dict[str, Tensor]:
    """Gradients by input name, in the user's order of rows.

    Parameters
    ----------
    built : Built
    plan : Plan
    trace : Trace
    values : dict of str to Tensor
        What the backward program reads, by parameter name; emptied, to free memory early.
    ordered : bool
        Whether inputs and gradients are in the plan's order of rows already.

    Returns
    -------
    dict of str to Tensor
    """
    program, lowered = built.backward, built.lowered
    assert program is not None
    assert lowered.backward is not None
    args = []
    for param in lowered.backward.params:
        name = param_name(param)
        moved = ordered or name.startswith("saved_")
        value = values.pop(name)
        args.append(value if moved else _to_plan(value, param.type.space, plan))
    values.clear()
    results = program.run(plan, args)
    found: dict[str, Tensor] = {}
    for name, result in zip(lowered.reached, results, strict=True):
        space = next(item.type.space for item in trace.inputs if item.name == name)
        found[name] = _to_user(result, space, plan)
    return found


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
    """A built forward program with its backward program."""

    @staticmethod
    def forward(
        ctx: Any, built: Built, plan: Plan, trace: Trace, *tensors: Tensor
    ) -> tuple[Tensor, ...]:
        outputs, saved, inputs = forward_program(built, plan, trace, tensors)
        backward = built.lowered.backward
        assert backward is not None
        at_hand = {item.name: value for item, value in zip(trace.inputs, inputs, strict=True)}
        at_hand |= {f"saved_{i}": value for i, value in enumerate(saved)}
        read = [param_name(param) for param in backward.params]
        ctx.built, ctx.plan, ctx.trace = built, plan, trace
        ctx.names = [name for name in read if name in at_hand]
        # The user's own tensors are saved beside what is read, so that autograd notices when one
        # is changed in place between forward and backward.
        used = [i for i, item in enumerate(trace.inputs) if item.name in ctx.names]
        ctx.save_for_backward(*(at_hand[name] for name in ctx.names), *(tensors[i] for i in used))
        inactive = zip(outputs, built.lowered.active, strict=True)
        ctx.mark_non_differentiable(*(output for output, active in inactive if not active))
        return outputs

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        again = torch.is_grad_enabled()
        built, plan, trace = ctx.built, ctx.plan, ctx.trace
        values = dict(zip(ctx.names, ctx.saved_tensors, strict=False))
        with torch.no_grad():
            for i, grad in enumerate(grads):
                space = trace.function.results[i].type.space
                values[f"grad_{i}"] = _to_plan(grad, space, plan)
            found = gradients_program(built, plan, trace, values)
        if again:
            sources = (*ctx.saved_tensors[len(ctx.names) :], *grads)
            marked = _OnceOnly.apply(  # type: ignore[no-untyped-call]
                len(found), *found.values(), *sources
            )
            found = dict(zip(found, marked, strict=True))
        return (None, None, None, *(found.get(item.name) for item in trace.inputs))


def execute(
    built: Built, plan: Plan, trace: Trace, tensors: Sequence[Tensor]
) -> tuple[Tensor, ...]:
    """Run a built program.

    Parameters
    ----------
    built : Built
    plan : Plan
    trace : Trace
    tensors : sequence of Tensor
        In the order of ``trace.inputs``, rows checked.

    Returns
    -------
    tuple of Tensor
        Attached to autograd where the program was built for gradients.
    """
    if built.backward is None:
        with torch.no_grad():
            return forward_program(built, plan, trace, tensors)[0]
    outputs: tuple[Tensor, ...] = _Program.apply(  # type: ignore[no-untyped-call]
        built, plan, trace, *tensors
    )
    return outputs
