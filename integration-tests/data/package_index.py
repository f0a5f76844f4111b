# SPDX-License-Identifier: Apache-2.0
"""Reads what `apt-cache dumpavail` prints; not for turning it into numbers."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

__all__ = ["RELATIONS", "Stanza", "dump_available", "parse_stanzas", "related_names", "section_of"]

Stanza = dict[str, str]

RELATIONS = (
    "Depends",
    "Pre-Depends",
    "Recommends",
    "Suggests",
    "Enhances",
    "Conflicts",
    "Breaks",
    "Replaces",
    "Provides",
)
"""The relationship fields of Debian Policy, chapter 7; their order numbers the edge types."""

_FIELD = re.compile(r"^([A-Za-z0-9][A-Za-z0-9-]*):[ \t]*(.*)$")
_NAME = re.compile(r"^[a-z0-9][a-z0-9+.-]+$")


def dump_available(path: Path | None = None) -> str:
    """Return the text of `apt-cache dumpavail`, or of a file that holds it.

    Parameters
    ----------
    path : Path or None
        A saved copy; None runs the command.

    Raises
    ------
    RuntimeError
        apt-cache is absent or failed.
    """
    if path is not None:
        return path.read_text(encoding="utf-8")
    try:
        done = subprocess.run(
            ["apt-cache", "dumpavail"], capture_output=True, check=True, encoding="utf-8"
        )
    except (OSError, subprocess.CalledProcessError) as error:
        raise RuntimeError(
            f"apt-cache dumpavail: {error}; run this on Debian or Ubuntu, "
            "or pass a saved copy with --input"
        ) from error
    return done.stdout


def parse_stanzas(text: str) -> Iterator[Stanza]:
    """Yield each package's fields; continuation lines are joined by one space.

    Raises
    ------
    ValueError
        A line is neither a field nor a continuation; the text names it.
    """
    stanza: Stanza = {}
    field = ""
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            if stanza:
                yield stanza
            stanza, field = {}, ""
        elif line[0] in " \t":
            if not field:
                raise ValueError(f"line {number}: continuation without a field: {line[:60]!r}")
            stanza[field] += " " + line.strip()
        else:
            match = _FIELD.match(line)
            if match is None:
                raise ValueError(f"line {number}: not a field: {line[:60]!r}")
            field = match.group(1)
            stanza[field] = match.group(2).strip()
    if stanza:
        yield stanza


def related_names(value: str) -> list[str]:
    """Return the package names in a relationship field, alternatives included, in order.

    Versions, architectures and build profiles are dropped:
    ``"a (>= 1) | b:any, c [amd64]"`` gives ``["a", "b", "c"]``.
    """
    names = []
    for part in re.split(r"[,|]", value):
        name = re.split(r"[\s(\[<:]", part.strip(), maxsplit=1)[0]
        if _NAME.match(name):
            names.append(name)
    return names


def section_of(stanza: Stanza) -> str:
    """Return the section without the archive area: ``contrib/net`` is ``net``."""
    return stanza["Section"].rsplit("/", maxsplit=1)[-1]
