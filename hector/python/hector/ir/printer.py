# SPDX-License-Identifier: Apache-2.0
"""IR to text; the exact inverse of parser."""

from __future__ import annotations

from hector.ir.function import Function, Value, param_name
from hector.ir.ops import Attr

__all__ = ["print_function"]


def _attr(value: Attr) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return "(" + ", ".join(map(str, value)) + ")"
    return value if isinstance(value, str) else repr(value)


def _operation(value: Value, names: dict[Value, str]) -> str:
    operands = ", ".join(names[operand] for operand in value.operands)
    attrs = ", ".join(f"{key} = {_attr(value.attrs[key])}" for key in sorted(value.attrs))
    return f"{value.op}({operands})" + (f" {{{attrs}}}" if attrs else "")


def print_function(function: Function) -> str:
    """The function as text, one operator a line; ``parse`` reads it back.

    Parameters
    ----------
    function : Function

    Returns
    -------
    str
        Values are numbered in program order, parameters keep their names.
    """
    names = {param: f"%{param_name(param)}" for param in function.params}
    for number, op in enumerate(function.ops):
        names[op] = f"%{number}"
    params = ", ".join(f"{names[param]}: {param.type}" for param in function.params)
    lines = [f"func {function.name}({params}) {{"]
    for op in function.ops:
        lines.append(f"  {names[op]} = {_operation(op, names)} : {op.type}")
    lines.append("  return " + ", ".join(names[result] for result in function.results))
    lines.append("}")
    return "\n".join(lines) + "\n"
