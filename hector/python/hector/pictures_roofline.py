# SPDX-License-Identifier: Apache-2.0
"""Draws what was reached beside what a machine can move and compute, on two logarithmic axes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from hector import pictures_svg as svg

__all__ = ["Point", "draw"]

_COLOURS = ("#0969da", "#cf222e", "#1a7f37", "#8250df", "#bc4c00", "#57606a")
_LEFT, _TOP, _WIDTH, _HEIGHT = 64.0, 44.0, 560.0, 360.0


@dataclass(frozen=True)
class Point:
    """One call or kernel.

    Attributes
    ----------
    name : str
        Starts with the word that gives the colour.
    flops, bytes : int
        Of its kernels, as predicted.
    seconds : float
    bound_bytes : int
        What a layer moves that reads each edge's row from memory; 0 for none.
    """

    name: str
    flops: int
    bytes: int
    seconds: float
    bound_bytes: int = 0

    @property
    def intensity(self) -> float:
        """Flops a byte."""
        return self.flops / max(self.bytes, 1)

    @property
    def rate(self) -> float:
        """Bytes a second."""
        return self.bytes / self.seconds


class _Axes:
    """Places of values on logarithmic axes."""

    def __init__(self, points: Sequence[Point], rate: float) -> None:
        across = [p.intensity for p in points if p.flops]
        up = [p.rate for p in points] + [p.bound_bytes / p.seconds for p in points if p.bound_bytes]
        self.left = math.floor(math.log10(min(across, default=0.1)))
        self.right = max(math.ceil(math.log10(max(across, default=10.0))), self.left + 1)
        self.low = math.floor(math.log10(min([*up, rate])))
        self.high = math.ceil(math.log10(max([*up, rate]) * 1.3))

    def x(self, intensity: float) -> float:
        """Where an intensity is; what has no flops stands at the left edge."""
        at = math.log10(intensity) if intensity > 0 else self.left
        return _LEFT + _WIDTH * (at - self.left) / (self.right - self.left)

    def y(self, rate: float) -> float:
        """Where a rate is."""
        return _TOP + _HEIGHT * (self.high - math.log10(rate)) / (self.high - self.low)

    def grid(self) -> list[str]:
        """Lines and numbers at the powers of ten."""
        elements = [svg.box(_LEFT, _TOP, _WIDTH, _HEIGHT, "#ffffff", round_=0)]
        for power in range(self.left, self.right + 1):
            x = self.x(10.0**power)
            elements.append(svg.line(x, _TOP, x, _TOP + _HEIGHT, "#d0d7de", thick=0.5))
            elements.append(svg.text(x, _TOP + _HEIGHT + 14, f"{10.0**power:g}", anchor="middle"))
        for power in range(self.low, self.high + 1):
            y = self.y(10.0**power)
            elements.append(svg.line(_LEFT, y, _LEFT + _WIDTH, y, "#d0d7de", thick=0.5))
            words = f"{10.0 ** (power - 9):g}"
            elements.append(svg.text(_LEFT - 6, y + 3, words, anchor="end"))
        middle = _TOP + _HEIGHT / 2
        elements.append(
            svg.text(_LEFT + _WIDTH / 2, _TOP + _HEIGHT + 30, "flops a byte", anchor="middle")
        )
        elements.append(svg.text(16, middle, "GB/s", anchor="middle", turn=-90))
        return elements


def _roof(axes: _Axes, rate: float, peak: float) -> list[str]:
    """The rate of a copy, and from where products bound, the rate at which they let bytes pass."""
    ridge, right = peak / rate, 10.0**axes.right
    end = min(max(ridge, 10.0**axes.left), right)
    elements = [
        svg.line(_LEFT, axes.y(rate), axes.x(end), axes.y(rate), "#1b1f24", thick=1.6),
        svg.text(_LEFT + 6, axes.y(rate) - 5, f"copy: {rate / 1e9:,.0f} GB/s", bold=True),
    ]
    if ridge < right:
        low = max(peak / right, 10.0**axes.low)
        start, stop = axes.y(min(rate, peak / end)), axes.y(low)
        elements.append(
            svg.line(axes.x(end), start, axes.x(peak / low), stop, "#1b1f24", thick=1.6)
        )
    return elements


def draw(title: str, points: Sequence[Point], rate: float, peak: float) -> str:
    """A roofline picture as SVG.

    Parameters
    ----------
    title : str
    points : sequence of Point
        Numbered in the picture, named beside it.
    rate, peak : float
        Bytes a second of a copy, flops a second of a product.

    Returns
    -------
    str
        Dots are bytes of the kernels over time; rings, the bytes of a layer without any
        intermediate over the same time.
    """
    axes = _Axes(points, rate)
    elements = [svg.text(_LEFT, 24, title, size=13, bold=True), *axes.grid()]
    elements += _roof(axes, rate, peak)
    kinds = list(dict.fromkeys(point.name.split()[0] for point in points))
    x = _LEFT + _WIDTH + 20
    for number, point in enumerate(points, 1):
        colour = _COLOURS[kinds.index(point.name.split()[0]) % len(_COLOURS)]
        at = max(min(axes.x(point.intensity), _LEFT + _WIDTH), _LEFT)
        elements.append(svg.dot(at, axes.y(point.rate), colour, title=point.name))
        elements.append(svg.text(at + 6, axes.y(point.rate) + 3, str(number), size=9))
        if point.bound_bytes:
            bound = axes.y(point.bound_bytes / point.seconds)
            elements.append(svg.line(at, axes.y(point.rate), at, bound, colour, thick=0.5))
            elements.append(svg.dot(at, bound, colour, hollow=True))
        y = _TOP + 12 + 13 * (number - 1)
        words = f"{number}  {point.name}: {point.rate / rate:.2f} of copy"
        elements.append(svg.text(x, y, words, colour=colour))
    low = max(_TOP + _HEIGHT + 40, _TOP + 20 + 13 * len(points))
    note = "dot: bytes of the kernels over time; ring: bytes of the gather bound over the same time"
    elements.append(svg.text(_LEFT, low + 10, note))
    widest = max((len(point.name) for point in points), default=0)
    return svg.document(x + 6 * (widest + 22), low + 24, elements)
