# SPDX-License-Identifier: Apache-2.0
"""What a function's Triton kernels move and hold, kernel by kernel; emits nothing."""

from __future__ import annotations

from hector.cost import function_cost
from hector.emit.account import Account, Kernel, Step, held, of_torch
from hector.emit.triton.cost import _flops, _reads, _size
from hector.emit.triton.emitter import _Module, _unfit
from hector.emit.triton.expand import expand
from hector.emit.triton.grouping import Family, Group, registers
from hector.ir.function import Function, Value
from hector.plan import Counts

__all__ = ["of_triton"]

_VIEWS = frozenset("reshape slice transpose broadcast".split())
_LAUNCHES = {Family.OUTER: 2, Family.TRAVERSAL: 2}
"""Those with a second pass: over chunks, or over targets that were cut into pieces."""


def of_triton(function: Function, counts: Counts) -> Account:
    """The account of a fused function that Triton runs.

    Parameters
    ----------
    function : Function
    counts : Counts

    Returns
    -------
    Account
        Of a kernel's ``bytes``: each value once for every map that it is read through.
    """
    if _unfit(function) is not None:
        return of_torch(function, counts)
    module = _Module(function, expand(function), counts, "")
    flops = {cost.op: cost.flops for cost in function_cost(function, counts).ops}
    kernels, steps = [], []
    for each in module.groups:
        stored = tuple(op for op in each.ops if op in module.stored)
        if each.family is not Family.HOST:
            kernels.append(_kernel(module, each, stored, counts))
        elif each.ops[0].op not in _VIEWS:
            stored = (each.ops[0],)
            kernels.append(_operator(each.ops[0], counts, flops.get(each.ops[0], 0)))
        else:
            stored = ()
        steps.append(Step(stored, tuple(_from_memory(each))))
    return Account(tuple(kernels), held(steps, module.expanded.results, counts))


def _from_memory(each: Group) -> list[Value]:
    members = set(each.ops)
    return [
        operand
        for op in each.ops
        for i, operand in enumerate(op.operands)
        if operand not in members or not registers(op, i)
    ]


def _kernel(module: _Module, each: Group, stored: tuple[Value, ...], counts: Counts) -> Kernel:
    written = sum(_size(op.type, counts.rows(op.type.space)) for op in stored)
    return Kernel(
        module._kernel_name(each), each.family.value, _reads(each, counts) + written,
        _flops(each, counts), _LAUNCHES.get(each.family, 1), tuple(each.ops), stored,
    )  # fmt: skip


def _operator(op: Value, counts: Counts, flops: int) -> Kernel:
    moved = sum(_size(x.type, counts.rows(x.type.space)) for x in (op, *op.operands))
    return Kernel(f"{op.op} by PyTorch", "operator", moved, flops, 1, (op,), (op,))
