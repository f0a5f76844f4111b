# SPDX-License-Identifier: Apache-2.0
"""Figures that carry the formula they were computed by: the text that is shown is what was run."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

__all__ = ["Figure", "Sheet"]

FUNCTIONS: dict[str, Any] = {
    "__builtins__": {},
    "ceil": math.ceil,
    "floor": math.floor,
    "max": max,
    "min": min,
}


@dataclass(frozen=True, slots=True)
class Figure:
    """A number, its unit, and how it was computed.

    Attributes
    ----------
    name : str
        As other formulas name it.
    value : float
    unit : str
        "B", "B/s", "s", "FLOP" ...; "" for a ratio or a count.
    formula : str
        A Python expression over ``inputs``; empty for a given number.
    inputs : tuple of (str, float)
        What the names in the formula stand for.
    label : str
        For people.
    source : str
        Where a given number or a formula comes from.
    """

    name: str
    value: float
    unit: str
    formula: str
    inputs: tuple[tuple[str, float], ...]
    label: str
    source: str = ""

    def explain(self) -> str:
        """Return name, formula, numbers, value and source as text of two or three lines."""
        value = f"{plain(self.value)} {self.unit}".rstrip()
        lines = [" = ".join(part for part in (self.name, self.formula, value) if part)]
        if self.inputs:
            given = ", ".join(f"{name} = {plain(number)}" for name, number in self.inputs)
            lines.append(f"    with {given}")
        if self.source:
            lines.append(f"    from {self.source}")
        return "\n".join(lines)


class Sheet:
    """Figures in the order in which they were worked out; each may use those before it.

    Raises
    ------
    ValueError
        From :meth:`given` and :meth:`work_out`, for a name that is taken.
    KeyError
        From :meth:`work_out`, for a formula that names what is not there.
    """

    def __init__(self) -> None:
        self._figures: dict[str, Figure] = {}

    def given(self, name: str, value: float, unit: str, label: str, source: str) -> Figure:
        """Write down a number that is not computed here."""
        return self._write(Figure(name, value, unit, "", (), label, source))

    def work_out(
        self, name: str, unit: str, formula: str, label: str, source: str = "", **more: float
    ) -> Figure:
        """Compute a figure from those written before and the numbers in ``more``."""
        code = compile(formula, name, "eval")
        wanted = [word for word in code.co_names if word not in FUNCTIONS]
        inputs = {word: more[word] if word in more else self[word] for word in wanted}
        # The formulas are this package's own text, never a user's.
        value = float(eval(code, FUNCTIONS, inputs))
        return self._write(Figure(name, value, unit, formula, tuple(inputs.items()), label, source))

    def _write(self, figure: Figure) -> Figure:
        if figure.name in self._figures:
            raise ValueError(f"figure {figure.name!r} is on the sheet already")
        self._figures[figure.name] = figure
        return figure

    def __getitem__(self, name: str) -> float:
        if name not in self._figures:
            raise KeyError(f"no figure {name!r} on the sheet")
        return self._figures[name].value

    def __contains__(self, name: object) -> bool:
        return name in self._figures

    def __iter__(self) -> Iterator[Figure]:
        return iter(self._figures.values())

    def figure(self, name: str) -> Figure:
        """Return the figure of that name."""
        return self._figures[name]


def plain(value: float) -> str:
    """Return a number with all digits if it is whole and short, else with six."""
    if math.isfinite(value) and value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    return f"{value:.6g}"
