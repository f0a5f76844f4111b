# SPDX-License-Identifier: Apache-2.0
"""Elements of SVG as text; what is drawn with them is elsewhere."""

from __future__ import annotations

from collections.abc import Iterable
from xml.sax.saxutils import escape

__all__ = ["box", "document", "dot", "line", "path", "text"]

_STYLE = "font-family: ui-sans-serif, system-ui, sans-serif; font-size: 10px; fill: #1b1f24"


def document(width: float, height: float, elements: Iterable[str]) -> str:
    """A whole picture on white."""
    size = f'width="{width:.0f}" height="{height:.0f}"'
    view = f'viewBox="0 0 {width:.0f} {height:.0f}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {view} {size}>'
    ground = '<rect width="100%" height="100%" fill="#ffffff"/>'
    return "\n".join([head, ground, *elements, "</svg>\n"])


def text(
    x: float, y: float, words: str, *, size: int = 10, anchor: str = "start", bold: bool = False,
    colour: str = "#1b1f24", turn: float = 0.0,
) -> str:  # fmt: skip
    """Words at a point of their base line."""
    weight = "; font-weight: 600" if bold else ""
    style = _STYLE.replace("10px", f"{size}px").replace("#1b1f24", colour) + weight
    turned = f' transform="rotate({turn:g} {x:.1f} {y:.1f})"' if turn else ""
    where = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{turned}'
    return f'<text {where} style="{style}">{escape(words)}</text>'


def box(
    x: float, y: float, width: float, height: float, fill: str, *, stroke: str = "#57606a",
    thick: float = 0.7, round_: float = 4.0, title: str = "",
) -> str:  # fmt: skip
    """A box with rounded corners; its title shows under the pointer."""
    shown = f"<title>{escape(title)}</title>" if title else ""
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" '
        f'rx="{round_:g}" fill="{fill}" stroke="{stroke}" stroke-width="{thick:g}">{shown}</rect>'
    )


def line(
    x: float, y: float, x2: float, y2: float, colour: str = "#57606a", *, thick: float = 1.0,
    dashes: str = "",
) -> str:  # fmt: skip
    """A straight line."""
    dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
    return (
        f'<line x1="{x:.1f}" y1="{y:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}" '
        f'stroke-width="{thick:g}"{dashed}/>'
    )


def path(steps: str, colour: str = "#8c959f", *, thick: float = 0.9) -> str:
    """An open curve."""
    return f'<path d="{steps}" fill="none" stroke="{colour}" stroke-width="{thick:g}"/>'


def dot(x: float, y: float, colour: str, *, hollow: bool = False, title: str = "") -> str:
    """A small circle; its title shows under the pointer."""
    shown = f"<title>{escape(title)}</title>" if title else ""
    fill = "#ffffff" if hollow else colour
    return (
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{2.5 if hollow else 3.5}" fill="{fill}" '
        f'stroke="{colour}">{shown}</circle>'
    )
