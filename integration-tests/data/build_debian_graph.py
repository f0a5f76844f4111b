# SPDX-License-Identifier: Apache-2.0
"""Builds debian_graph.xz from the Debian package index; not for reading it (see debian_graph.py).

Run `apt-get update` first, then `python build_debian_graph.py`. The same index gives the same file.
"""

from __future__ import annotations

import argparse
import re
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from graph_file import write_arrays
from package_index import (
    RELATIONS,
    Stanza,
    dump_available,
    parse_stanzas,
    related_names,
    section_of,
)
from section_tags import MAX_PURITY, MIN_PACKAGES, accuracy_from_tags, honest_tags

__all__ = ["BUCKETS", "SPLIT_PARTS", "build", "main", "word_counts"]

BUCKETS = 4096
"""Words are counted by CRC-32 modulo this; a power of two, so that it folds to smaller widths."""

SPLIT_PARTS = (6, 2, 2)
"""Tenths of the packages for training, validation and test."""


def word_counts(stanza: Stanza) -> dict[int, int]:
    """Return bucket -> count over the words of a package's name and one-line description.

    A word is a run of the letters a-z, lower-cased, of two letters or more; a word of the name
    counts as a different word from the same word in the description.
    """
    counts: dict[int, int] = {}
    for salt, text in (("name:", stanza["Package"]), ("", stanza["Description"])):
        for word in re.findall(r"[a-z]{2,}", text.lower()):
            bucket = zlib.crc32((salt + word).encode("ascii")) % BUCKETS
            counts[bucket] = min(counts.get(bucket, 0) + 1, 255)
    return counts


def _split(name: str) -> int:
    tenth = zlib.crc32(("split:" + name).encode("utf-8")) % sum(SPLIT_PARTS)
    return int(np.searchsorted(np.cumsum(SPLIT_PARTS), tenth, side="right"))


def _numbered(values: Sequence[str]) -> tuple[np.ndarray, int]:
    numbers: dict[str, int] = {}
    each = [numbers.setdefault(value, len(numbers)) for value in values]
    return np.array(each, dtype=np.uint16), len(numbers)


def _rows(rows: Sequence[Sequence[int]]) -> tuple[np.ndarray, np.ndarray]:
    lengths = np.array([len(row) for row in rows], dtype=np.uint16)
    return lengths, np.array([value for row in rows for value in row], dtype=np.uint16)


def _maintainer(stanza: Stanza) -> str:
    # One person writes the name in several ways; the address is the identity. Neither is stored.
    match = re.search(r"<([^>]*)>", stanza["Maintainer"])
    return (match.group(1) if match else stanza["Maintainer"]).lower()


def build(text: str) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Turn the text of `apt-cache dumpavail` into arrays and notes.

    Returns
    -------
    tuple
        Arrays as described in README.md, and counts and measurements for the notes.

    Raises
    ------
    ValueError
        The index is empty or has more packages than 16 bits can number.
    """
    found = {stanza["Package"]: stanza for stanza in parse_stanzas(text) if "Filename" in stanza}
    names = sorted(found)
    if not 0 < len(names) < 2**16:
        raise ValueError(f"{len(names)} packages in the index; 1 to 65535 wanted")
    stanzas = [found[name] for name in names]
    number = {name: position for position, name in enumerate(names)}

    sections = [section_of(stanza) for stanza in stanzas]
    section_names = sorted(set(sections))
    split = np.array([_split(name) for name in names], dtype=np.uint8)

    words = [sorted(word_counts(stanza).items()) for stanza in stanzas]
    word_lengths, word_buckets = _rows([[bucket for bucket, _ in row] for row in words])

    tags = [
        frozenset(tag.strip() for tag in stanza.get("Tag", "").split(",") if tag.strip())
        for stanza in stanzas
    ]
    every_tag = sorted(frozenset().union(*tags))
    tag_names = honest_tags(tags, sections)
    tag_number = {tag: position for position, tag in enumerate(tag_names)}
    tag_lengths, tag_ids = _rows(
        [sorted(tag_number[tag] for tag in row if tag in tag_number) for row in tags]
    )

    maintainer, maintainers = _numbered([_maintainer(stanza) for stanza in stanzas])
    source, sources = _numbered(
        [stanza.get("Source", stanza["Package"]).split()[0] for stanza in stanzas]
    )
    arrays = {
        "section": np.array([section_names.index(each) for each in sections], dtype=np.uint8),
        "split": split,
        "word_lengths": word_lengths,
        "word_buckets": word_buckets,
        "word_counts": np.array([count for row in words for _, count in row], dtype=np.uint8),
        "maintainer": maintainer,
        "source": source,
        "tag_lengths": tag_lengths,
        "tag_ids": tag_ids,
    }
    edges = {}
    for relation in RELATIONS:
        rows = [
            sorted(
                {number[name] for name in related_names(stanza.get(relation, "")) if name in number}
                - {number[stanza["Package"]]}
            )
            for stanza in stanzas
        ]
        lengths, targets = _rows(rows)
        arrays[f"{relation}_lengths"], arrays[f"{relation}_targets"] = lengths, targets
        edges[relation] = len(targets)

    train = split == 0
    before = accuracy_from_tags(tags, sections, every_tag, train)
    after = accuracy_from_tags(tags, sections, tag_names, train)
    notes = {
        "buckets": BUCKETS,
        "sections": section_names,
        "tags": tag_names,
        "maintainers": maintainers,
        "sources": sources,
        "relations": list(RELATIONS),
        "counts": {"packages": len(names), "dependency_edges": sum(edges.values()), **edges},
        "tag_leak": {
            "min_packages": MIN_PACKAGES,
            "max_purity": MAX_PURITY,
            "tags_in_index": len(every_tag),
            "tags_kept": len(tag_names),
            "accuracy_from_every_tag": before and round(before[0], 4),
            "accuracy_from_kept_tags": after and round(after[0], 4),
            "majority_of_tagged": before and round(before[1], 4),
        },
    }
    return arrays, notes


def _release() -> dict[str, str]:
    """Return suite -> date of the indexes that apt has, from their Release files."""
    dates = {}
    for path in sorted(Path("/var/lib/apt/lists").glob("*Release")):
        text = path.read_text("utf-8")
        suite = re.search(r"^Codename: (.*)$", text, re.MULTILINE)
        date = re.search(r"^Date: (.*)$", text, re.MULTILINE)
        if suite and date:
            dates[suite.group(1)] = date.group(1)
    return dates


def main(arguments: Sequence[str] | None = None) -> None:
    """Build the file; see ``--help``."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--input", type=Path, help="a saved copy of apt-cache dumpavail")
    parser.add_argument("--release", help="what to note as its origin (default: apt's own files)")
    parser.add_argument("--output", type=Path, default=Path(__file__).with_name("debian_graph.xz"))
    options = parser.parse_args(arguments)
    arrays, notes = build(dump_available(options.input))
    release = options.release or _release()
    write_arrays(options.output, arrays, {"release": release, **notes})
    print(f"{options.output}: {options.output.stat().st_size} bytes, {notes['counts']}")
    print(f"tags: {notes['tag_leak']}")


if __name__ == "__main__":
    main()
