# SPDX-License-Identifier: Apache-2.0
"""The driver that the passes share: one walk in program order, one rule."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from hector.ir.function import Builder, Function, Value

__all__ = ["Rule", "rewrite"]

Rule: TypeAlias = Callable[[Builder, Value, tuple[Value, ...]], Value | None]


def rewrite(function: Function, rule: Rule) -> Function:
    """Rebuild a function, asking ``rule`` about each operator.

    Parameters
    ----------
    function : Function
    rule : callable
        Takes the builder, the old operator and its new operands; returns the value that takes the
        operator's place (of the same type), or None to keep it.

    Returns
    -------
    Function
        May hold dead operators; parameters are unchanged.

    Raises
    ------
    ValueError
        If a rule returns a value of another type: the rewrite would be wrong.
    """
    builder = Builder(function.name)
    builder.params.extend(function.params)
    new: dict[Value, Value] = {param: param for param in function.params}
    for op in function.ops:
        operands = tuple(new[operand] for operand in op.operands)
        builder.location = op.location
        value = rule(builder, op, operands)
        if value is None:
            value = builder.again(op, operands)
        if value.type != op.type:
            raise ValueError(f"{function.name}: {op.op} was {op.type}, rewritten to {value.type}")
        new[op] = value
    return builder.finish(new[result] for result in function.results)
