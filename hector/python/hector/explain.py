# SPDX-License-Identifier: Apache-2.0
"""The account of a compilation, for people; computes nothing of its own."""

from __future__ import annotations

from hector.compiler import Built
from hector.cost import Cost
from hector.emit.account import Account, account_of
from hector.forms import Forms
from hector.ir.printer import print_function
from hector.plan import Counts

__all__ = ["Explanation"]


class Explanation:
    """What was compiled for one call and why; ``str()`` gives all of it.

    Attributes
    ----------
    forms : Forms
        The forms in use.
    predicted_seconds : dict of Forms to float
        Of every combination that was considered; one entry where the forms were fixed.
    stages : tuple of (str, str)
        Pass name and the IR after it, for passes that changed something.
    bytes, flops : int
        Predicted for forward and backward together.
    emitter : str
        What the programs are written in.
    source : str
        The emitted forward and backward programs.
    """

    def __init__(self, built: Built, counts: Counts) -> None:
        self._built = built
        self.counts = counts
        self.forms: Forms = built.forms
        self.emitter = built.emitter
        self.predicted_seconds = dict(built.costs)
        self.stages = tuple(
            (stage.name, print_function(stage.function)) for stage in built.lowered.stages
        )
        costs = [cost for cost in (built.forward_cost, built.backward_cost) if cost is not None]
        self.bytes = sum(cost.bytes for cost in costs)
        self.flops = sum(cost.flops for cost in costs)
        programs = [built.forward] + ([built.backward] if built.backward is not None else [])
        self.source = "\n".join(program.source for program in programs)

    @property
    def programs(self) -> dict[str, Account]:
        """Kernels and memory of "forward" and, where there is one, "backward", as predicted."""
        lowered = self._built.lowered
        functions = {"forward": lowered.forward, "backward": lowered.backward}
        return {
            name: account_of(self.emitter, function, self.counts)
            for name, function in functions.items()
            if function is not None
        }

    def __str__(self) -> str:
        sections = ["graph: " + ", ".join(f"{k} {v}" for k, v in vars(self.counts).items()) + "\n"]
        sections += [f"== {name}\n{text}" for name, text in self.stages]
        sections.append(self._forms())
        sections.append(_table("forward", self._built.forward_cost))
        if self._built.backward_cost is not None:
            sections.append(_table("backward", self._built.backward_cost))
        sections.append(f"== emitted programs ({self.emitter})\n{self.source}")
        return "\n".join(sections)

    def _forms(self) -> str:
        lines = ["== forms (predicted seconds, * in use)"]
        for forms, seconds in sorted(self.predicted_seconds.items(), key=lambda item: item[1]):
            lines.append(f"{'*' if forms == self.forms else ' '} {seconds:9.3e}  {forms}")
        return "\n".join(lines) + "\n"


def _table(title: str, cost: Cost) -> str:
    lines = [f"== {title}: {cost.bytes:,} bytes, {cost.flops:,} flops, {cost.seconds:.3e} s"]
    for op in cost.ops:
        if op.bytes:
            lines.append(f"  {op.bytes:>14,} B {op.flops:>16,} flop  {op.op.op} : {op.op.type}")
    return "\n".join(lines) + "\n"
