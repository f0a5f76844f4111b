# SPDX-License-Identifier: Apache-2.0
"""Checks that a function is well formed; run after every pass, so a bad rewrite stops at once."""

from __future__ import annotations

from hector.ir.function import Function, Value, param_name
from hector.ir.ops import infer

__all__ = ["verify"]


def verify(function: Function) -> Function:
    """Check order, uniqueness and types of a function.

    Parameters
    ----------
    function : Function

    Returns
    -------
    Function
        The argument, so that calls chain.

    Raises
    ------
    ValueError
        If an operand is used before its definition, a value is defined twice, parameter names
        repeat, a stated type is not the operator's, or a result is undefined.
    """
    where = f"IR function {function.name}"
    defined: set[Value] = set()
    names: set[str] = set()
    for param in function.params:
        if param.op != "param" or param_name(param) in names:
            raise ValueError(f"{where}: parameter {param.attrs} is no or a repeated parameter")
        names.add(param_name(param))
        defined.add(param)
    for number, op in enumerate(function.ops):
        if op in defined:
            raise ValueError(f"{where}: value {number} ({op.op}) is defined twice")
        if not all(operand in defined for operand in op.operands):
            raise ValueError(f"{where}: value {number} ({op.op}) uses a value not yet defined")
        try:
            type_ = infer(op.op, tuple(operand.type for operand in op.operands), op.attrs)
        except ValueError as error:
            raise ValueError(f"{where}: value {number}: {error}") from error
        if type_ != op.type:
            raise ValueError(f"{where}: value {number} ({op.op}) is {type_}, not {op.type}")
        defined.add(op)
    if not function.results or not all(result in defined for result in function.results):
        raise ValueError(f"{where}: a result is missing or undefined")
    return function
