# SPDX-License-Identifier: Apache-2.0
"""What a function's Triton kernels move and hold, kernel by kernel; emits nothing."""

from __future__ import annotations

from hector.cost import function_cost
from hector.emit.account import Account, Kernel, of_torch
from hector.emit.triton.cost import _flops, group_bytes, runs
from hector.emit.triton.emitter import _Module, _unfit
from hector.emit.triton.expand import expand
from hector.emit.triton.groups import Family, Group
from hector.emit.triton.sequence import memory
from hector.ir.function import Function, Value
from hector.plan import Counts

__all__ = ["of_triton"]


def of_triton(function: Function, counts: Counts) -> Account:
    """The account of a fused function that Triton runs.

    Parameters
    ----------
    function : Function
    counts : Counts

    Returns
    -------
    Account
        Of a kernel's ``bytes``: each value once for every map that it is read through; what a
        cache serves counts for the memory whose time it takes.
    """
    if _unfit(function) is not None:
        return of_torch(function, counts)
    module = _Module(function, expand(function), counts, "")
    flops = {cost.op: cost.flops for cost in function_cost(function, counts).ops}
    costing = set(runs(module.expanded, module.groups))
    kernels = []
    for each in module.groups:
        stored = tuple(op for op in each.ops if op in module.stored)
        if each not in costing:
            continue
        if each.family is Family.HOST:
            kernels.append(_operator(each, counts, flops.get(each.ops[0], 0)))
        else:
            kernels.append(_kernel(module, each, stored, counts))
    held = memory(module.expanded, module.groups, module.stored, counts)
    return Account(tuple(kernels), held)


def _kernel(module: _Module, each: Group, stored: tuple[Value, ...], counts: Counts) -> Kernel:
    # A second pass adds up what chunks, or pieces of a target's rows, gave.
    passes = sum(op.op == "outer" for op in each.anchors) + (each.family is Family.TRAVERSAL)
    return Kernel(
        module._kernel_name(each), each.family.value,
        sum(group_bytes(each, frozenset(stored), counts)), _flops(each, counts), 1 + passes,
        tuple(each.ops), stored,
    )  # fmt: skip


def _operator(each: Group, counts: Counts, flops: int) -> Kernel:
    op = each.ops[0]
    moved = sum(group_bytes(each, frozenset({op}), counts))
    return Kernel(f"{op.op} by PyTorch", "operator", moved, flops, 1, (op,), (op,))
