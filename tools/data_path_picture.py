# SPDX-License-Identifier: Apache-2.0
"""Draws docs/images/data-path.svg, the picture of the data path in README and overview."""

from __future__ import annotations

from html import escape
from pathlib import Path

TARGET = Path(__file__).resolve().parent.parent / "docs" / "images" / "data-path.svg"
WIDTH, HEIGHT = 1000, 560
INK, MUTED, PAPER = "#1f2a37", "#5b6776", "#ffffff"
BLUE, GREEN, VIOLET, AMBER = "#2563eb", "#0f8a5f", "#7c3aed", "#c2610c"


def text(
    x: float, y: float, words: str, *, size: int = 14, colour: str = INK, weight: int = 400,
    anchor: str = "middle",
) -> str:  # fmt: skip
    """Return one line of text."""
    return (
        f'<text x="{x}" y="{y}" font-size="{size}" fill="{colour}" font-weight="{weight}" '
        f'text-anchor="{anchor}">{escape(words)}</text>'
    )


def box(x: float, y: float, width: float, height: float, colour: str, *, fill: str) -> str:
    """Return a rounded rectangle."""
    return (
        f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="12" fill="{fill}" '
        f'stroke="{colour}" stroke-width="1.6"/>'
    )


def card(
    x: float, y: float, width: float, height: float, colour: str, fill: str, lines: list[str]
) -> str:
    """Return a box with a title and lines under it."""
    middle = x + width / 2
    parts = [box(x, y, width, height, colour, fill=fill)]
    parts.append(text(middle, y + 27, lines[0], size=17, colour=colour, weight=700))
    for number, line in enumerate(lines[1:]):
        parts.append(text(middle, y + 49 + 19 * number, line, size=13, colour=INK))
    return "".join(parts)


def arrow(points: str, colour: str, *, dashed: bool = False) -> str:
    """Return a line with a head at its end."""
    dash = ' stroke-dasharray="6 5"' if dashed else ""
    return (
        f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2.4"{dash} '
        f'marker-end="url(#head-{colour[1:]})"/>'
    )


def heads() -> str:
    """Return an arrow head for each colour."""
    return "".join(
        f'<marker id="head-{colour[1:]}" viewBox="0 0 10 10" refX="8" refY="5" markerWidth="6" '
        f'markerHeight="6" orient="auto-start-reverse"><path d="M0 0L10 5L0 10z" fill="{colour}"/>'
        "</marker>"
        for colour in (BLUE, GREEN, VIOLET, AMBER, MUTED)
    )


def picture() -> str:
    """Return the whole picture."""
    parts = [
        (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        'font-family="system-ui, -apple-system, Segoe UI, Helvetica, Arial, sans-serif">'),
        ("<title>The data path: three packages decide what moves and when, core decides how, "
        "between GPU memory, host memory and disk</title>"),
        f"<defs>{heads()}</defs>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" rx="16" fill="{PAPER}"/>',
        # What moves, and when.
        text(40, 38, "decide what moves, and when", size=13, colour=MUTED, anchor="start"),
        card(40, 52, 290, 92, BLUE, "#eff5ff", ["pytorch-direct", "features larger than the GPU:",
             "the GPU gathers rows by itself"]),
        card(355, 52, 290, 92, VIOLET, "#f5f0ff", ["hector", "relational layers compiled to",
             "fused kernels, no per-edge weights"]),
        card(670, 52, 290, 92, AMBER, "#fff6ec", ["ssdtrain", "activations leave in forward",
             "and are back in time for backward"]),
        arrow("185,146 185,190", MUTED), arrow("500,146 500,190", MUTED),
        arrow("815,146 815,190", MUTED),
        # How.
        box(40, 194, 920, 96, GREEN, fill="#effaf5"),
        text(64, 223, "datapath-core", size=17, colour=GREEN, weight=700, anchor="start"),
        text(64, 245, "decides how", size=13, colour=MUTED, anchor="start"),
    ]  # fmt: skip
    for x, title, line in (
        (330, "memory", "pinned pool, pinning in place"),
        (570, "streams", "lanes, deadlines, credits"),
        (810, "I/O", "io_uring, threads, GDS"),
    ):
        parts.append(box(x - 108, 210, 216, 64, GREEN, fill=PAPER))
        parts.append(text(x, 237, title, size=15, weight=600))
        parts.append(text(x, 258, line, size=13, colour=MUTED))
    # Where bytes live.
    top = 376
    parts += [
        text(40, 340, "where bytes live", size=13, colour=MUTED, anchor="start"),
        card(40, top, 210, 88, INK, "#f4f6f8", ["GPU memory", "HBM, TB/s", "tens of GiB"]),
        card(395, top, 210, 88, INK, "#f4f6f8", ["host memory", "pinned, tens of GB/s",
             "hundreds of GiB"]),
        card(750, top, 210, 88, INK, "#f4f6f8", ["disk", "NVMe, GB/s a drive", "terabytes"]),
        arrow("393,398 254,398", BLUE), text(323, 388, "gather, load", colour=BLUE, size=13),
        arrow("252,442 391,442", AMBER), text(322, 461, "offload", colour=AMBER, size=13),
        arrow("748,398 609,398", BLUE), text(678, 388, "read", colour=BLUE, size=13),
        arrow("607,442 746,442", AMBER), text(677, 461, "write, spill", colour=AMBER, size=13),
        arrow("855,466 855,512 145,512 145,468", GREEN, dashed=True),
        text(500, 505, "GPUDirect Storage, where the machine has it", colour=GREEN, size=13),
        text(500, 540, "hop by hop, chunk k + 1 moves while chunk k is written; the same code runs "
             "without a GPU", size=13, colour=MUTED),
        "</svg>",
    ]  # fmt: skip
    return "\n".join(parts) + "\n"


if __name__ == "__main__":
    TARGET.parent.mkdir(parents=True, exist_ok=True)
    TARGET.write_text(picture(), encoding="utf-8")
