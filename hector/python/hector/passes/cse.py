# SPDX-License-Identifier: Apache-2.0
"""Common subexpressions: equal operators on equal operands become one value."""

from __future__ import annotations

from hector.ir.function import Builder, Function, Value
from hector.passes.rewrite import rewrite

__all__ = ["eliminate_common"]


def eliminate_common(function: Function) -> Function:
    """The function with each distinct computation done once (every operator is pure)."""
    seen: dict[object, Value] = {}

    def rule(builder: Builder, op: Value, operands: tuple[Value, ...]) -> Value | None:
        key = (op.op, operands, tuple(sorted(op.attrs.items())))
        if key not in seen:
            seen[key] = builder.again(op, operands)
        return seen[key]

    return rewrite(function, rule)
