# SPDX-License-Identifier: Apache-2.0
"""Bytes, flops and predicted time of a fused function on a graph's counts; decides nothing."""

from __future__ import annotations

from dataclasses import dataclass

from hector.ir.function import VIEWS, Function, Value
from hector.ir.types import ELEMENT_BYTES, MAPS, Type
from hector.plan import Counts

__all__ = ["CPU", "GPU", "Cost", "Machine", "OpCost", "function_cost"]

_FREE = VIEWS | frozenset("const seed inverse_count".split())
_WALKS = frozenset(
    "gather_sum gather_dot segment_sum segment_max segment_softmax segment_lse "
    "segment_weights".split()
)
_INDEX_BYTES = 8


@dataclass(frozen=True)
class Machine:
    """What the model needs to know of a machine.

    Attributes
    ----------
    bandwidth : float
        Bytes a second.
    flops : float
        Multiplications and additions a second in matrix products.
    operator, segment : float
        Seconds that an operator, and each type inside a typed product, costs by itself.
    """

    name: str
    bandwidth: float
    flops: float
    operator: float
    segment: float


CPU = Machine("two-core CPU", bandwidth=8e9, flops=1e11, operator=8e-6, segment=6e-6)
"""A small x86-64 machine. Only ratios between forms matter for decisions."""

GPU = Machine("H200-class GPU", bandwidth=4e12, flops=2e14, operator=4e-6, segment=0.0)
"""A large GPU with products in tf32; an operator costs about one launch."""


@dataclass(frozen=True)
class OpCost:
    """Prediction for one operator: bytes, flops, seconds."""

    op: Value
    bytes: int
    flops: int
    seconds: float


@dataclass(frozen=True)
class Cost:
    """Prediction for a function, operator by operator."""

    ops: tuple[OpCost, ...]

    @property
    def bytes(self) -> int:
        """Bytes read and written, no reuse assumed between operators."""
        return sum(op.bytes for op in self.ops)

    @property
    def flops(self) -> int:
        """Multiplications and additions."""
        return sum(op.flops for op in self.ops)

    @property
    def seconds(self) -> float:
        """Predicted time."""
        return sum(op.seconds for op in self.ops)


def _size(type_: Type, counts: Counts) -> int:
    return counts.rows(type_.space) * type_.width * ELEMENT_BYTES[type_.dtype]


def _read(value: Value, through: str | None, counts: Counts) -> int:
    if value.op == "const":
        return 0
    if through is None:
        return _size(value.type, counts)
    rows = counts.rows(MAPS[through].source)
    return rows * (value.type.width * ELEMENT_BYTES[value.type.dtype] + _INDEX_BYTES)


def _work(op: Value, counts: Counts) -> int:
    """Flops of an operator."""
    if op.op in ("linear", "outer"):
        x = op.operands[0].type
        through = op.map("rows")
        space = MAPS[through].source if through else x.space
        lead = x.width // max(x.shape[-1], 1)
        k, n = op.operands[1].type.shape if op.op == "linear" else op.type.shape
        return 2 * counts.rows(space) * lead * k * n
    if op.op == "keep":
        return 10 * counts.rows(op.type.space) * op.type.width
    if op.op in _WALKS:
        through = op.map("rows") or op.map()
        rows = counts.rows(MAPS[through].source) if through else 0
        return 2 * rows * op.operands[0].type.width
    return counts.rows(op.type.space) * op.type.width


def _op_cost(op: Value, counts: Counts, machine: Machine) -> OpCost:
    if op.op in _FREE:
        return OpCost(op, 0, 0, 0.0)
    maps = [op.map("map") if op.op == "gather" else op.map("rows"), op.map("rows_y")]
    if op.op == "segment_weights":
        maps = [None, op.map()]
    maps += [None] * len(op.operands)
    moved = _size(op.type, counts)
    moved += sum(_read(x, m, counts) for x, m in zip(op.operands, maps, strict=False))
    work = _work(op, counts)
    products = op.op in ("linear", "outer")
    seconds = moved / machine.bandwidth
    if products:
        seconds = max(seconds, work / machine.flops)
    seconds += machine.operator
    if products and op.map("type"):
        seconds += counts.rows(MAPS[str(op.map("type"))].target) * machine.segment
    return OpCost(op, moved, work, seconds)


def function_cost(function: Function, counts: Counts, machine: Machine = CPU) -> Cost:
    """Predict a function's cost.

    Parameters
    ----------
    function : Function
        Fused.
    counts : Counts
    machine : Machine

    Returns
    -------
    Cost
    """
    return Cost(tuple(_op_cost(op, counts, machine) for op in function.ops))
