# SPDX-License-Identifier: Apache-2.0
"""Cuts a joint function into forward and backward and decides what is saved between them."""

from __future__ import annotations

from hector.ir.function import Builder, Function, Value, param_name
from hector.ir.types import Space
from hector.passes.canonicalise import ROW_LOCAL

__all__ = ["split"]

# Costs nothing once fused into its reader, while saving it would store rows of edges.
_RECOMPUTED = frozenset(
    "gather reshape const inverse_count slice transpose broadcast seed keep".split()
)

_NARROW = 4
"""Elements of a type's row up to which arithmetic on it is done again rather than saved."""


def _from_rows(op: Value) -> bool:
    """Whether a value of edges is arithmetic on what is gathered: nothing to walk for."""
    return op.type.space is Space.EDGE and (op.op in ROW_LOCAL or op.op == "segment_weights")


def _of_types(op: Value) -> bool:
    """Whether a value of types is a few numbers each, or a scaling, which readers do themselves."""
    if op.type.space not in (Space.RELATION, Space.NODE_TYPE) or op.op not in ROW_LOCAL:
        return False
    scaling = op.op == "mul" and min(operand.type.width for operand in op.operands) == 1
    return scaling or all(value.type.width <= _NARROW for value in (op, *op.operands))


def _reachable(results: tuple[Value, ...]) -> set[Value]:
    seen: set[Value] = set()
    stack = list(results)
    while stack:
        value = stack.pop()
        if value not in seen:
            seen.add(value)
            stack.extend(value.operands)
    return seen


def split(joint: Function, outputs: int, recompute: bool = False) -> tuple[Function, Function]:
    """Cut a joint function in two.

    Parameters
    ----------
    joint : Function
        As ``differentiate`` makes it; its last ``outputs`` parameters are the gradients.
    outputs : int
        How many of the first results are the forward's own.
    recompute : bool
        Whether arithmetic on edges is done again rather than its results saved.

    Returns
    -------
    forward : Function
        Returns the outputs, then the saved values ``saved_0``, ...
    backward : Function
        Takes the parameters that it reads by their names, the saved values and the gradients.
    """
    inputs = joint.params[: len(joint.params) - outputs]
    before = _reachable(joint.results[:outputs])
    wanted = _reachable(joint.results[outputs:])
    seeds = joint.params[len(inputs) :]
    after: set[Value] = set(seeds)
    for op in joint.ops:
        if any(operand in after for operand in op.operands):
            after.add(op)

    saved: dict[Value, Value] = {}
    new: dict[Value, Value] = {}
    backward = Builder(f"{joint.name}_backward")
    read = Builder(backward.name)
    for param in inputs:
        if param in wanted:
            new[param] = param
            read.params.append(param)

    def build(op: Value) -> Value:
        """The value inside the backward function: recomputed, or saved by the forward."""
        if op in new:
            return new[op]
        again = op.op in _RECOMPUTED or _of_types(op) or (recompute and _from_rows(op))
        if op in after or op not in before or again:
            new[op] = backward.again(op, [build(operand) for operand in op.operands])
        else:
            new[op] = saved[op] = read.param(f"saved_{len(saved)}", op.type)
        return new[op]

    new.update(zip(seeds, seeds, strict=True))
    for op in joint.ops:
        if op in wanted and op in after:
            build(op)
    results = tuple(build(result) for result in joint.results[outputs:])
    forward = Function(
        joint.name,
        inputs,
        tuple(op for op in joint.ops if op in before),
        (*joint.results[:outputs], *saved),
    )
    used = _reachable(results)
    params = (*(param for param in read.params if param in used), *seeds)
    names = {param_name(param) for param in params}
    assert len(names) == len(params)
    return forward, Function(backward.name, params, tuple(backward.ops), results)
