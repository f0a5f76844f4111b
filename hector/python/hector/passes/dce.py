# SPDX-License-Identifier: Apache-2.0
"""Dead code elimination: drops operators that no result depends on."""

from __future__ import annotations

from hector.ir.function import Function, Value

__all__ = ["eliminate_dead"]


def eliminate_dead(function: Function) -> Function:
    """The function without operators that no result depends on; parameters stay."""
    live: set[Value] = set(function.results)
    kept = []
    for op in reversed(function.ops):
        if op in live:
            live.update(op.operands)
            kept.append(op)
    return Function(function.name, function.params, tuple(reversed(kept)), function.results)
