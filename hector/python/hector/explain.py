# SPDX-License-Identifier: Apache-2.0
"""The account of a compilation, for people; computes nothing of its own."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from hector import pictures_ir
from hector.compiler import Built, lower
from hector.emit.account import Account, account_of
from hector.forms import Forms
from hector.ir.printer import print_function
from hector.passes import node_routes
from hector.plan import Counts

__all__ = ["Considered", "Explanation"]


@dataclass(frozen=True)
class Considered:
    """What the cost model knows of one choice of forms.

    Attributes
    ----------
    forms : Forms
    seconds : float
        Predicted for forward and backward together.
    forward_bytes, backward_bytes : int
        That the kernels move, as predicted.
    memory : int
        Bytes that forward or backward, whichever is more, holds beside its inputs, as predicted.
    in_use : bool
    """

    forms: Forms
    seconds: float
    forward_bytes: int
    backward_bytes: int
    memory: int
    in_use: bool


class Explanation:
    """What was compiled for one call and why; ``str()`` gives all of it.

    Attributes
    ----------
    counts : Counts
        Of the graph.
    forms : Forms
        The forms in use.
    predicted_seconds : dict of Forms to float
        Of every combination that was considered; one entry where the forms were fixed.
    stages : tuple of (str, str)
        Pass name and the IR after it, for passes that changed something.
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
        programs = [built.forward] + ([built.backward] if built.backward is not None else [])
        self.source = "\n".join(program.source for program in programs)

    @functools.cached_property
    def programs(self) -> dict[str, Account]:
        """Kernels and memory of "forward" and, where there is one, "backward", as predicted."""
        lowered = self._built.lowered
        functions = {"forward": lowered.forward, "backward": lowered.backward}
        return {
            name: account_of(self.emitter, function, self.counts)
            for name, function in functions.items()
            if function is not None
        }

    @property
    def bytes(self) -> int:
        """Predicted for forward and backward together."""
        return sum(account.bytes for account in self.programs.values())

    @property
    def flops(self) -> int:
        """Predicted for forward and backward together."""
        return sum(account.flops for account in self.programs.values())

    @property
    def roofline(self) -> float:
        """Predicted share of the time that bytes or flops alone, whichever is more, would take."""
        machine = self._built.machine
        least = max(self.bytes / machine.bandwidth, self.flops / machine.flops)
        predicted = self.predicted_seconds[self.forms]
        return min(least / predicted, 1.0) if predicted else 1.0  # of views nothing runs

    @functools.cached_property
    def considered(self) -> tuple[Considered, ...]:
        """Every choice of forms that was considered, the fastest as predicted first."""
        traced = self._built.lowered.stages[0].function
        wrt, routes = frozenset(self._built.lowered.reached), node_routes(self.counts)
        found = []
        for forms, seconds in self.predicted_seconds.items():
            made = lower(traced, wrt, forms, routes, self.emitter == "triton")
            accounts = [
                None if function is None else account_of(self.emitter, function, self.counts)
                for function in (made.forward, made.backward)
            ]
            forward, backward = (0 if each is None else each.bytes for each in accounts)
            memory = max(each.memory for each in accounts if each is not None)
            used = forms == self.forms
            found.append(Considered(forms, seconds, forward, backward, memory, used))
        return tuple(sorted(found, key=lambda each: (each.seconds, not each.in_use)))

    def summary(self) -> str:
        """The program as written, the forms compared, and kernels, bytes and memory by pass."""
        sections = [
            "graph: " + ", ".join(f"{k} {v:,}" for k, v in vars(self.counts).items()) + "\n",
            f"== as written\n{self.stages[0][1]}",
            self._forms(),
            f"{self.roofline:.2f} of the roofline of a {self._built.machine.name}, as predicted\n",
            *(_table(name, account) for name, account in self.programs.items()),
        ]
        return "\n".join(sections)

    def svg(self) -> str:
        """The IR as written, and what became of it, as a picture.

        Returns
        -------
        str
            SVG. Boxes of one kernel have its number; thick frames are values in memory.
        """
        written = self._built.lowered.stages[0].function
        panels = [pictures_ir.panel("as written", written)]
        for name, account in self.programs.items():
            panels.append(pictures_ir.kernels_panel(f"{name} ({self.emitter})", account.kernels))
        return pictures_ir.draw(panels)

    def __str__(self) -> str:
        head, written, *rest = self.summary().split("== ", 2)
        later = [f"== {name}\n{text}" for name, text in self.stages[1:]]
        emitted = f"== emitted programs ({self.emitter})\n{self.source}"
        first = f"== {written.replace('as written', 'trace', 1)}"
        return "\n".join([head + first, *later, "== " + "".join(rest), emitted])

    def _forms(self) -> str:
        columns = "".join(f"{name:>10}" for name in self.programs)
        lines = [f"== forms: predicted seconds; MB moved{columns}, held at most; * in use"]
        for each in self.considered:
            moved = (each.forward_bytes, each.backward_bytes)[: len(self.programs)]
            cells = "".join(f"{count / 1e6:10.2f}" for count in moved)
            cells += f"{each.memory / 1e6:10.2f}"
            lines.append(f"{'*' if each.in_use else ' '} {each.seconds:9.3e}{cells}  {each.forms}")
        return "\n".join(lines) + "\n"


def _table(title: str, account: Account) -> str:
    counts = f"{len(account.kernels)} kernels, at most {account.launches} launches"
    sizes = f"{account.bytes / 1e6:.2f} MB moved, {account.memory / 1e6:.2f} MB held at most"
    lines = [f"== {title}: {counts}, {sizes}"]
    for kernel in account.kernels:
        lines.append(
            f"  {kernel.bytes / 1e6:10.3f} MB {kernel.flops / 1e6:12.1f} Mflop  "
            f"{kernel.name} ({kernel.family})"
        )
    return "\n".join(lines) + "\n"
