# SPDX-License-Identifier: Apache-2.0
"""What a program's kernels move and what memory it holds, as predicted; not how either is used."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from hector.cost import function_cost
from hector.ir.function import VIEWS, Function, Value, rooted
from hector.ir.types import ELEMENT_BYTES
from hector.plan import Counts

__all__ = [
    "Account",
    "Kernel",
    "Step",
    "account_of",
    "held",
    "made_bytes",
    "of_torch",
    "value_bytes",
]

_NOTHING = VIEWS | frozenset("const seed inverse_count count_scale".split())


@dataclass(frozen=True)
class Kernel:
    """One kernel, or one operator of PyTorch.

    Attributes
    ----------
    name : str
        As profilers show it, where it is a kernel of ours.
    family : str
        Template, or "operator".
    bytes, flops : int
        Rows read through a map count as often as the map has source rows, from memory.
    launches : int
        At most; second passes count, whether the graph needs them or not.
    ops : tuple of Value
        Its operators in order.
    stored : tuple of Value
        Those of them that are in memory afterwards.
    """

    name: str
    family: str
    bytes: int
    flops: int
    launches: int
    ops: tuple[Value, ...] = ()
    stored: tuple[Value, ...] = ()


@dataclass(frozen=True)
class Account:
    """A program's kernels in order, and the most memory that it holds at a time.

    Attributes
    ----------
    kernels : tuple of Kernel
    memory : int
        Bytes of what the program makes, results included; workspace of kernels left out.
    """

    kernels: tuple[Kernel, ...]
    memory: int

    @property
    def bytes(self) -> int:
        """Of all kernels."""
        return sum(kernel.bytes for kernel in self.kernels)

    @property
    def flops(self) -> int:
        """Of all kernels."""
        return sum(kernel.flops for kernel in self.kernels)

    @property
    def launches(self) -> int:
        """Of all kernels."""
        return sum(kernel.launches for kernel in self.kernels)


@dataclass(frozen=True)
class Step:
    """What one kernel makes in memory, and what it reads from there."""

    made: tuple[Value, ...]
    read: tuple[Value, ...]


def held(steps: Iterable[Step], results: Sequence[Value], counts: Counts) -> int:
    """The most bytes alive at a time when values are freed after their last reader.

    Parameters
    ----------
    steps : iterable of Step
        In order.
    results : sequence of Value
        Are never freed.
    counts : Counts
    """
    steps = list(steps)
    kept = {rooted(result) for result in results}
    last: dict[Value, int] = {}
    for number, step in enumerate(steps):
        for value in (*step.made, *map(rooted, step.read)):
            last[value] = number
    alive = most = 0
    made: set[Value] = set()
    for number, step in enumerate(steps):
        alive += sum(value_bytes(value, counts) for value in step.made)
        made |= set(step.made)
        most = max(most, alive)
        gone = {v for v in made if last[v] == number and v not in kept}
        alive -= sum(value_bytes(value, counts) for value in gone)
        made -= gone
    return most


def value_bytes(value: Value, counts: Counts) -> int:
    """Bytes of a value in memory."""
    return counts.rows(value.type.space) * value.type.width * ELEMENT_BYTES[value.type.dtype]


def made_bytes(function: Function, counts: Counts) -> int:
    """What a function's values would take if none were freed, or passed in registers."""
    return sum(value_bytes(op, counts) for op in function.ops if op.op not in _NOTHING)


def of_torch(function: Function, counts: Counts) -> Account:
    """The account of a fused function that PyTorch runs, operator by operator."""
    kernels = tuple(
        Kernel(cost.op.op, "operator", cost.bytes, cost.flops, 1, (cost.op,), (cost.op,))
        for cost in function_cost(function, counts).ops
        if cost.op.op not in _NOTHING
    )
    steps = [Step((op,), op.operands) for op in function.ops if op.op not in _NOTHING]
    return Account(kernels, held(steps, function.results, counts))


def account_of(emitter: str, function: Function, counts: Counts) -> Account:
    """The account of a fused function's program.

    Parameters
    ----------
    emitter : str
        What the program is written in: "torch" or "triton".
    function : Function
        Fused.
    counts : Counts

    Returns
    -------
    Account
    """
    if emitter == "torch":
        return of_torch(function, counts)
    from hector.emit.triton.account import of_triton

    return of_triton(function, counts)
