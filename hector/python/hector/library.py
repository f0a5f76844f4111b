# SPDX-License-Identifier: Apache-2.0
"""Two operators of ``torch.library`` that run any built program, and the plans they find by handle.

A program is named by a hash of its content, a graph by a tensor that holds its number: so traced
graphs hold tensors, sizes and a string, one entry serves equal programs, and new graphs need no
new trace. Eager calls go through execute directly; how Dynamo gets here is in capture.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from hector.compiler import Built
from hector.dtypes import TORCH
from hector.execute import Executable, check
from hector.frontend.trace import Trace
from hector.handles import plan_of
from hector.ir.function import param_name
from hector.ir.printer import print_function
from hector.ir.types import Space, Type

__all__ = ["ROWS", "register_program", "run_backward", "run_forward"]

ROWS = (
    Space.NODE, Space.EDGE, Space.SRC_PAIR, Space.DST_PAIR, Space.RELATION, Space.NODE_TYPE,
)  # fmt: skip
"""The order of the operators' row counts."""


@dataclass(frozen=True)
class _Entry:
    """A program with the places of what its backward reads.

    Attributes
    ----------
    built : Built
    trace : Trace
    executable : Executable
    device : torch.device
    saved : tuple of int
        Index of each saved value among the operator's results: an output, or one behind them.
    extra : tuple of int
        The saved values that are returned behind the outputs.
    """

    built: Built
    trace: Trace
    executable: Executable
    device: torch.device
    saved: tuple[int, ...]
    extra: tuple[int, ...]


_ENTRIES: dict[str, _Entry] = {}


def register_program(built: Built, trace: Trace, device: torch.device) -> str:
    """Make a program known to the operators.

    Parameters
    ----------
    built : Built
    trace : Trace
    device : torch.device

    Returns
    -------
    str
        Its name: equal content, equal name.
    """
    lowered = built.lowered
    functions = [lowered.forward] + ([lowered.backward] if lowered.backward is not None else [])
    text = "\n".join(
        [str(device), str(trace.inputs), *map(print_function, functions), built.forward.source]
        + ([built.backward.source] if built.backward is not None else [])
    )
    name = f"{trace.function.name}_{hashlib.sha256(text.encode()).hexdigest()[:24]}"
    if name not in _ENTRIES:
        count = len(trace.function.results)
        outputs, values = lowered.forward.results[:count], lowered.forward.results[count:]
        saved: list[int] = []
        extra: list[int] = []
        for number, value in enumerate(values):
            if value in outputs and value.type.space is not Space.EDGE:
                saved.append(outputs.index(value))
            else:
                saved.append(count + len(extra))
                extra.append(number)
        _ENTRIES[name] = _Entry(
            built, trace, Executable(built, trace), device, tuple(saved), tuple(extra)
        )
    return name


def _entry(program: str) -> _Entry:
    if program not in _ENTRIES:
        raise RuntimeError(
            f"hector: the program {program} was not made in this process; torch.compile must trace "
            f"the call again"
        )
    return _ENTRIES[program]


def _apart(results: Sequence[Tensor], others: Sequence[Tensor]) -> list[Tensor]:
    """The results as dense tensors that share no memory with each other nor with others."""
    seen = {other.untyped_storage().data_ptr() for other in others}
    made = []
    for result in results:
        where = result.untyped_storage().data_ptr()
        alone = where not in seen or result.numel() == 0
        out = result if alone and result.is_contiguous() else torch.clone(
            result, memory_format=torch.contiguous_format
        )  # fmt: skip
        seen.add(out.untyped_storage().data_ptr())
        made.append(out)
    return made


def _empty(type_: Type, rows: Sequence[int], like: Tensor, device: torch.device) -> Tensor:
    lead = () if type_.space is Space.WEIGHT else (rows[ROWS.index(type_.space)],)
    return like.new_empty((*lead, *type_.shape), dtype=TORCH[type_.dtype], device=device)


@torch.library.custom_op("hector::forward", mutates_args=())
def run_forward(
    tensors: list[Tensor], graph: Tensor, rows: list[int], program: str
) -> list[Tensor]:
    """Outputs of a program in the user's order of rows, then what its backward reads.

    Parameters
    ----------
    tensors : list of Tensor
        In the order of the trace's inputs.
    graph : Tensor
        Its handle.
    rows : list of int
        Row counts in the order of ``ROWS``.
    program : str
        A name of ``register_program``.

    Returns
    -------
    list of Tensor
    """
    entry, plan = _entry(program), plan_of(graph)
    for item, tensor in zip(entry.trace.inputs, tensors, strict=True):
        if not item.fits(tensor):
            raise ValueError(f"{item.name} is {tuple(tensor.shape)}, the program takes {item.type}")
        check(entry.trace.function.name, item, tensor, plan)
    with torch.no_grad():
        outputs, saved, _ = entry.executable.forward(plan, tensors)
        return _apart([*outputs, *(saved[number] for number in entry.extra)], tensors)


@run_forward.register_fake
def _(tensors: list[Tensor], graph: Tensor, rows: list[int], program: str) -> list[Tensor]:
    entry = _entry(program)
    results = entry.built.lowered.forward.results
    count = len(entry.trace.function.results)
    types = [results[i].type for i in range(count)]
    types += [results[count + number].type for number in entry.extra]
    return [_empty(type_, rows, tensors[0], entry.device) for type_ in types]


@torch.library.custom_op("hector::backward", mutates_args=())
def run_backward(read: list[Tensor], graph: Tensor, rows: list[int], program: str) -> list[Tensor]:
    """Gradients of the reached inputs of a program.

    Parameters
    ----------
    read : list of Tensor
        In the order of the backward program's parameters; inputs and gradients in the user's
        order of rows.
    graph, rows, program
        As for the forward.

    Returns
    -------
    list of Tensor
    """
    entry, plan = _entry(program), plan_of(graph)
    with torch.no_grad():
        made = entry.executable.backward(plan, list(read), ordered=False)
        return _apart([found for _, found in made], read)


@run_backward.register_fake
def _(read: list[Tensor], graph: Tensor, rows: list[int], program: str) -> list[Tensor]:
    entry = _entry(program)
    types = {item.name: item.type for item in entry.trace.inputs}
    return [
        _empty(types[name], rows, read[0], entry.device) for name in entry.built.lowered.reached
    ]


def _keep(ctx: Any, inputs: tuple[Any, ...], output: list[Tensor]) -> None:
    tensors, graph, rows, program = inputs
    entry = _entry(program)
    ctx.set_materialize_grads(False)
    ctx.rows, ctx.program, ctx.count = rows, program, len(tensors)
    backward = entry.built.lowered.backward
    if backward is None:
        return
    at_hand = {item.name: t for item, t in zip(entry.trace.inputs, tensors, strict=True)}
    at_hand |= {f"saved_{i}": output[place] for i, place in enumerate(entry.saved)}
    names = [param_name(param) for param in backward.params]
    ctx.names = [name for name in names if name in at_hand]
    ctx.save_for_backward(graph, *(at_hand[name] for name in ctx.names))


def _differentiate(ctx: Any, grads: Sequence[Tensor | None]) -> Any:
    entry = _entry(ctx.program)
    lowered = entry.built.lowered
    if lowered.backward is None:
        return [None] * ctx.count, None, None, None
    graph, *saved = ctx.saved_tensors
    values = dict(zip(ctx.names, saved, strict=True))
    like = next((t for t in (*grads, *saved) if t is not None), graph)
    for i, result in enumerate(entry.trace.function.results):
        grad = grads[i]
        if grad is None:
            grad = _empty(result.type, ctx.rows, like, entry.device).zero_()
        values[f"grad_{i}"] = grad
    read = [values[param_name(param)] for param in lowered.backward.params]
    made = torch.ops.hector.backward(read, graph, ctx.rows, ctx.program)
    found = dict(zip(lowered.reached, made, strict=True))
    return [found.get(item.name) for item in entry.trace.inputs], None, None, None


run_forward.register_autograd(_differentiate, setup_context=_keep)
