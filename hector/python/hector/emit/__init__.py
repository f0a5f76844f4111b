# SPDX-License-Identifier: Apache-2.0
"""Emitters turn a fused IR function into something that runs; they are leaves of the package.

Nothing above this folder knows a kernel. An emitter is anything that satisfies ``Emitter``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from hector.cost import Machine
from hector.ir.function import Function
from hector.ir.types import Type
from hector.plan import Counts, Plan

__all__ = ["Emitter", "Program"]


@dataclass(frozen=True)
class Program:
    """An emitted function.

    Attributes
    ----------
    run : callable
        Takes the plan and the parameters (edge rows in the plan's order) and gives the results.
    source : str
        What runs, for people to read.
    tensors : tuple of Type
        Types of every tensor that the program creates, workspace of kernels left out.
    """

    run: Callable[[Plan, Sequence[Tensor]], tuple[Tensor, ...]]
    source: str
    tensors: tuple[Type, ...]


class Emitter(Protocol):
    """Makes programs from fused functions.

    Attributes
    ----------
    name : str
    recomputes : bool
        Whether arithmetic on edges costs its kernels less than memory: then backward programs do
        it again, and the weights of a softmax are not saved.
    """

    name: str
    recomputes: bool

    def seconds(self, function: Function, counts: Counts, machine: Machine) -> float:
        """Predicted time of a fused function's program."""
        ...

    def size_class(self, counts: Counts) -> str:
        """Graphs for which this is the same are served by the same programs."""
        ...

    def emit(self, function: Function, counts: Counts) -> Program:
        """The program of one fused function, laid out for graphs of about these counts."""
        ...
