# SPDX-License-Identifier: Apache-2.0
"""Draws programs as layers of boxes, operands above what reads them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from hector import pictures_svg as svg
from hector.emit.account import Kernel
from hector.ir.function import Function, Value, param_name
from hector.ir.types import Space

__all__ = ["Panel", "draw", "kernels_panel", "panel"]

_FILL = {
    Space.NODE: "#cfe8ff", Space.EDGE: "#ffd7d5", Space.SRC_PAIR: "#ffe9b8",
    Space.DST_PAIR: "#fff3c4", Space.RELATION: "#dcf5dd", Space.NODE_TYPE: "#d2f0ea",
    Space.WEIGHT: "#e7e5f5",
}  # fmt: skip
_PASSED = frozenset({"reshape", "broadcast"})
"""Operators that only show their operand in another shape: arrows go past them."""
_UNDRAWN = _PASSED | {"const", "seed", "inverse_count", "count_scale"}
_WIDTH, _HEIGHT, _GAP, _STEP = 124.0, 32.0, 10.0, 50.0
_MARGIN, _TITLE = 16.0, 34.0


@dataclass(frozen=True)
class Panel:
    """One program to draw.

    Attributes
    ----------
    title : str
    values : tuple of Value
        Operands before what reads them; parameters among them.
    kernel : dict of Value to int
        Numbers of kernels; empty where nothing has been grouped.
    stored : frozenset of Value
        Values in memory.
    """

    title: str
    values: tuple[Value, ...]
    kernel: dict[Value, int]
    stored: frozenset[Value]


def panel(title: str, function: Function) -> Panel:
    """A function, operator by operator."""
    values = tuple(value for value in function.ops if value.op not in _UNDRAWN)
    return Panel(title, (*_params(values), *values), {}, frozenset(function.results))


def kernels_panel(title: str, kernels: Sequence[Kernel]) -> Panel:
    """A program as its kernels."""
    kernel: dict[Value, int] = {}
    for number, each in enumerate(kernels, 1):
        kernel |= dict.fromkeys(each.ops, number)
    stored = frozenset(value for each in kernels for value in each.stored)
    values = tuple(value for value in _ordered(kernel) if value.op not in _UNDRAWN)
    return Panel(title, values, kernel, stored)


def _operands(value: Value) -> tuple[Value, ...]:
    """What a value is drawn to read."""
    found: dict[Value, None] = {}
    for operand in value.operands:
        while operand.op in _PASSED:
            operand = operand.operands[0]
        found[operand] = None
    return tuple(found)


def _params(values: Iterable[Value]) -> tuple[Value, ...]:
    found: dict[Value, None] = {}
    for value in values:
        found |= dict.fromkeys(o for o in _operands(value) if o.op == "param")
    return tuple(found)


def _ordered(values: Iterable[Value]) -> list[Value]:
    """The values and all that they read, operands first."""
    order: dict[Value, None] = {}

    def visit(value: Value) -> None:
        if value not in order:
            for operand in value.operands:
                visit(operand)
            order[value] = None

    for value in values:
        visit(value)
    return list(order)


def _layers(values: Sequence[Value]) -> list[list[Value]]:
    """Values by the length of the longest way to them; parameters just above their readers."""
    depth: dict[Value, int] = {}
    for value in values:
        above = [depth[o] for o in _operands(value) if o in depth and o.op != "param"]
        depth[value] = max(above, default=0) + 1
    for value in values:
        if value.op == "param":
            below = [depth[v] for v in values if value in _operands(v)]
            depth[value] = min(below, default=1) - 1
    layers: list[list[Value]] = [[] for _ in range(max(depth.values(), default=0) + 1)]
    for value in values:
        layers[depth[value]].append(value)
    return [layer for layer in layers if layer]


def _places(layers: list[list[Value]]) -> dict[Value, tuple[float, float]]:
    """Upper left corners: each layer in the order of the mean place of what its values touch."""
    centre = {value: float(i) for layer in layers for i, value in enumerate(layer)}
    readers: dict[Value, list[Value]] = {}
    for layer in layers:
        for value in layer:
            for operand in _operands(value):
                readers.setdefault(operand, []).append(value)
    for sweep in range(4):
        for layer in layers if sweep % 2 == 0 else reversed(layers):
            wanted = {}
            for value in layer:
                others = _operands(value) if sweep % 2 == 0 else readers.get(value, ())
                near = [centre[o] for o in others if o in centre]
                wanted[value] = sum(near) / len(near) if near else centre[value]
            layer.sort(key=lambda value: wanted[value])
            middle = sum(wanted.values()) / len(layer)
            for i, value in enumerate(layer):
                centre[value] = middle + i - (len(layer) - 1) / 2
    left = min(centre.values(), default=0.0)
    return {
        value: ((centre[value] - left) * (_WIDTH + _GAP), number * _STEP)
        for number, layer in enumerate(layers)
        for value in layer
    }


def _words(value: Value) -> tuple[str, str]:
    """The two lines in a box."""
    if value.op == "param":
        return param_name(value), str(value.type)
    maps = [value.map(key) for key in ("map", "rows", "type")]
    through = next((name for name in maps if name is not None), None)
    return value.op + (f" {through}" if through else ""), str(value.type)


def _where(value: Value) -> str:
    """The line that a value comes from; pictures travel, so folders are left out."""
    return re.sub(r"^\S*/", "", value.location or "")


def _draw_panel(made: Panel, left: float) -> tuple[list[str], float, float]:
    """Elements, width and height of a panel at a place."""
    places = _places(_layers(made.values))
    arrows, boxes = [], []
    for value in made.values:
        x, y = places[value]
        x, y = left + x, _TITLE + y
        for operand in _operands(value):
            if operand in places:
                from_x, from_y = places[operand]
                from_x, from_y = left + from_x + _WIDTH / 2, _TITLE + from_y + _HEIGHT
                to, half = x + _WIDTH / 2, (y - from_y) / 2
                arrows.append(svg.path(
                    f"M{from_x:.1f} {from_y:.1f} C{from_x:.1f} {from_y + half:.1f} "
                    f"{to:.1f} {y - half:.1f} {to:.1f} {y:.1f}"
                ))  # fmt: skip
        first, second = _words(value)
        number = made.kernel.get(value)
        thick = 2.0 if value in made.stored or value.op == "param" else 0.7
        round_ = 14.0 if value.op == "param" else 4.0
        fill, title = _FILL[value.type.space], f"{first}: {second} {_where(value)}"
        boxes.append(svg.box(x, y, _WIDTH, _HEIGHT, fill, thick=thick, round_=round_, title=title))
        boxes.append(svg.text(x + 6, y + 13, first[:20], bold=True))
        boxes.append(svg.text(x + 6, y + 26, second[:24]))
        if number is not None:
            end = x + _WIDTH - 5
            boxes.append(svg.text(end, y + 13, f"k{number}", anchor="end", colour="#8250df"))
    width = max((x for x, _ in places.values()), default=0.0) + _WIDTH
    height = max((y for _, y in places.values()), default=0.0) + _HEIGHT
    title = svg.text(left, 20, made.title, size=13, bold=True)
    return [title, *arrows, *boxes], width, height


def draw(panels: Sequence[Panel]) -> str:
    """Panels beside each other with a legend, as SVG.

    Parameters
    ----------
    panels : sequence of Panel

    Returns
    -------
    str
    """
    elements: list[str] = []
    left, low = _MARGIN, 0.0
    for each in panels:
        new, width, height = _draw_panel(each, left)
        elements += new
        left += width + 3 * _MARGIN
        low = max(low, height)
    y = _TITLE + low + 2 * _MARGIN
    x = _MARGIN
    for space, fill in _FILL.items():
        elements.append(svg.box(x, y, 12, 12, fill))
        elements.append(svg.text(x + 17, y + 10, space.value))
        x += 76
    elements.append(svg.text(x, y + 10, "thick: in memory; kN: kernel"))
    return svg.document(max(left, x + 190), y + 12 + _MARGIN, elements)
