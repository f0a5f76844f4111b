# SPDX-License-Identifier: Apache-2.0
"""Operators that PyTorch does better together: a product and the bias that is added to it."""

from __future__ import annotations

from hector.ir.function import Function, Value
from hector.ir.types import Space

__all__ = ["join_biases"]


def _bias(product: Value, other: Value, uses: dict[Value, int]) -> Value | None:
    """What is added to a product: a row for each of its types, or one for all; None if neither."""
    if product.op != "linear" or uses[product] != 1 or len(product.type.shape) != 1:
        return None
    kind = product.map("type")
    if kind is None:
        shared = product.operands[1].type.space is Space.WEIGHT
        alike = other.type.space is Space.WEIGHT and other.type.shape == product.type.shape
        return other if shared and alike and other.op != "const" else None
    if other.op == "gather" and other.map() == kind and other.type == product.type:
        return other.operands[0]
    return None


def join_biases(function: Function) -> Function:
    """Add biases in the products themselves.

    Parameters
    ----------
    function : Function
        Fused.

    Returns
    -------
    Function
        With operators ``biased_linear``, whose third operand is the bias: for this emitter only.
    """
    uses = function.uses()
    new: dict[Value, Value] = {}
    ops: list[Value] = []
    for op in function.ops:
        operands = tuple(new.get(operand, operand) for operand in op.operands)
        made = op
        if operands != op.operands:
            made = Value(op.op, operands, op.attrs, op.type, op.location)
        if op.op == "add":
            for product, other in (op.operands, op.operands[::-1]):
                bias = _bias(product, other, uses)
                if bias is not None:
                    x, w = new.get(product, product).operands
                    operands = (x, w, new.get(bias, bias))
                    made = Value("biased_linear", operands, product.attrs, op.type, op.location)
                    break
        new[op] = made
        ops.append(made)
    results = tuple(new.get(result, result) for result in function.results)
    needed: set[Value] = set()
    stack = list(results)
    while stack:
        value = stack.pop()
        if value not in needed:
            needed.add(value)
            stack.extend(value.operands)
    return Function(
        function.name, function.params, tuple(op for op in ops if op in needed), results
    )
