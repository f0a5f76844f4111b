# SPDX-License-Identifier: Apache-2.0
"""Opens a softmax into the log-sum-exp of each target and the weights, which cost no walk then.

With the log-sum-exp saved, a row of targets, the backward program has the weights of edges again
from their scores: no value of edges need be kept (Dao et al., 2022, section 3.1).
"""

from __future__ import annotations

from hector.ir.function import Builder, Function, Value
from hector.passes.rewrite import rewrite

__all__ = ["normalise"]


def _rule(builder: Builder, op: Value, operands: tuple[Value, ...]) -> Value | None:
    if op.op != "segment_softmax":
        return None
    lse = builder.emit("segment_lse", operands[0], map=op.map())
    return builder.emit("segment_weights", operands[0], lse, map=op.map())


def normalise(function: Function) -> Function:
    """Write every softmax as weights over a log-sum-exp.

    Parameters
    ----------
    function : Function

    Returns
    -------
    Function
    """
    return rewrite(function, _rule)
