# SPDX-License-Identifier: Apache-2.0
"""Loads the Debian package graph as tensors; not for building it (see build_debian_graph.py).

Nodes are numbered packages first, then maintainers, source packages and tags. Only packages have
features and labels.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from graph_file import read_arrays

__all__ = ["DATA", "NODE_TYPES", "DebianGraph", "load"]

DATA = Path(__file__).with_name("debian_graph.xz")
NODE_TYPES = ("package", "maintainer", "source", "tag")
_MEMBERSHIPS = ("maintained-by", "built-from", "tagged")


@dataclass(frozen=True)
class DebianGraph:
    """A heterogeneous graph with one label a package.

    Attributes
    ----------
    features : torch.Tensor
        float32 [num_packages, width]; rows have length 1 (or 0 for a package without words).
    labels : torch.Tensor
        int64 [num_packages], the section.
    train_mask, val_mask, test_mask : torch.Tensor
        bool [num_packages]; every package is in exactly one.
    edge_index : torch.Tensor
        int64 [2, num_edges], sources in row 0 and destinations in row 1.
    edge_type : torch.Tensor
        int64 [num_edges], ascending; relation ``relation_names[r]`` is r. With reverse relations,
        r + num_relations / 2 is the reverse of r.
    node_type : torch.Tensor
        int64 [num_nodes], ascending; an index into :data:`NODE_TYPES`.
    relation_names, class_names, tag_names : tuple of str
        What the numbers mean. Packages, maintainers and source packages have no names here.
    """

    features: torch.Tensor
    labels: torch.Tensor
    train_mask: torch.Tensor
    val_mask: torch.Tensor
    test_mask: torch.Tensor
    edge_index: torch.Tensor
    edge_type: torch.Tensor
    node_type: torch.Tensor
    relation_names: tuple[str, ...]
    class_names: tuple[str, ...]
    tag_names: tuple[str, ...]

    @property
    def num_packages(self) -> int:
        """Number of packages, which are the first nodes."""
        return self.features.shape[0]

    @property
    def num_nodes(self) -> int:
        """Number of nodes of all types."""
        return self.node_type.shape[0]

    @property
    def num_relations(self) -> int:
        """Number of edge types, reverse ones included."""
        return len(self.relation_names)

    @property
    def num_classes(self) -> int:
        """Number of sections."""
        return len(self.class_names)

    def majority_accuracy(self, mask: torch.Tensor) -> float:
        """Return the accuracy on `mask` of always answering the most common training section."""
        common = torch.bincount(self.labels[self.train_mask]).argmax()
        return float((self.labels[mask] == common).double().mean())


def _require(holds: bool, path: Path, what: str) -> None:
    if not holds:
        raise ValueError(f"{path}: {what}; build it again with build_debian_graph.py")


def _row_numbers(lengths: np.ndarray) -> np.ndarray:
    return np.repeat(np.arange(len(lengths), dtype=np.int64), lengths)


def _features(
    arrays: dict[str, np.ndarray], buckets: int, width: int, num_packages: int
) -> torch.Tensor:
    rows = _row_numbers(arrays["word_lengths"])
    columns = arrays["word_buckets"].astype(np.int64) % width
    counts = np.zeros((num_packages, width), dtype=np.float32)
    np.add.at(counts, (rows, columns), arrays["word_counts"].astype(np.float32))
    # Words that most packages share say little: weigh by log inverse document frequency, then
    # give every row length 1 so that long descriptions do not dominate.
    holders = (counts > 0).sum(axis=0)
    weighted = np.log1p(counts) * np.log((1 + num_packages) / (1 + holders)).astype(np.float32)
    norm = np.linalg.norm(weighted, axis=1, keepdims=True)
    return torch.from_numpy(weighted / np.maximum(norm, 1e-12).astype(np.float32))


def _check(path: Path, arrays: dict[str, np.ndarray], notes: dict[str, Any]) -> None:
    num_packages = int(notes["counts"]["packages"])
    per_package = ["section", "split", "word_lengths", "maintainer", "source", "tag_lengths"]
    per_package += [f"{relation}_lengths" for relation in notes["relations"]]
    for name in per_package:
        found = len(arrays[name])
        _require(found == num_packages, path, f"{name} has {found} entries, not {num_packages}")
    bounds = {
        "section": len(notes["sections"]),
        "split": 3,
        "word_buckets": int(notes["buckets"]),
        "maintainer": int(notes["maintainers"]),
        "source": int(notes["sources"]),
        "tag_ids": len(notes["tags"]),
    }
    pairs = [("word_lengths", "word_buckets"), ("word_lengths", "word_counts")]
    pairs.append(("tag_lengths", "tag_ids"))
    for relation in notes["relations"]:
        bounds[f"{relation}_targets"] = num_packages
        pairs.append((f"{relation}_lengths", f"{relation}_targets"))
    for name, bound in bounds.items():
        largest = int(arrays[name].max()) if len(arrays[name]) else -1
        _require(largest < bound, path, f"{name} holds {largest}, the bound is {bound}")
    for lengths, values in pairs:
        total, found = int(arrays[lengths].sum(dtype=np.int64)), len(arrays[values])
        _require(total == found, path, f"{values} has {found} entries, {lengths} add up to {total}")


def load(path: Path = DATA, *, width: int = 256, reverse: bool = True) -> DebianGraph:
    """Read the graph.

    Parameters
    ----------
    path : Path
        The file that build_debian_graph.py wrote.
    width : int
        Columns of the features: a power of two, at most the number of stored buckets (4096).
    reverse : bool
        Whether to add the reverse of every relation as a relation of its own.

    Raises
    ------
    FileNotFoundError
        The file or its description is absent.
    ValueError
        The width is not possible, or the file is damaged or inconsistent.
    """
    arrays, notes = read_arrays(path)
    _check(path, arrays, notes)
    buckets = int(notes["buckets"])
    if width < 1 or width > buckets or width & (width - 1):
        raise ValueError(f"width is {width}; a power of two from 1 to {buckets} wanted")
    num_packages = int(notes["counts"]["packages"])
    first_maintainer = num_packages
    first_source = first_maintainer + int(notes["maintainers"])
    first_tag = first_source + int(notes["sources"])
    sizes = [num_packages, first_source - first_maintainer, first_tag - first_source]
    sizes.append(len(notes["tags"]))

    packages = np.arange(num_packages, dtype=np.int64)
    pairs = [
        (_row_numbers(arrays[f"{name}_lengths"]), arrays[f"{name}_targets"].astype(np.int64))
        for name in notes["relations"]
    ]
    pairs.append((packages, arrays["maintainer"].astype(np.int64) + first_maintainer))
    pairs.append((packages, arrays["source"].astype(np.int64) + first_source))
    tagged = _row_numbers(arrays["tag_lengths"])
    pairs.append((tagged, arrays["tag_ids"].astype(np.int64) + first_tag))
    names = [*notes["relations"], *_MEMBERSHIPS]
    if reverse:
        pairs += [(target, source) for source, target in pairs]
        names += [f"reverse {name}" for name in names]
    edge_index = np.stack([np.concatenate([pair[side] for pair in pairs]) for side in (0, 1)])
    edge_type = np.repeat(np.arange(len(pairs)), [len(source) for source, _ in pairs])

    split = torch.from_numpy(arrays["split"])
    return DebianGraph(
        features=_features(arrays, buckets, width, num_packages),
        labels=torch.from_numpy(arrays["section"].astype(np.int64)),
        train_mask=split == 0,
        val_mask=split == 1,
        test_mask=split == 2,
        edge_index=torch.from_numpy(edge_index),
        edge_type=torch.from_numpy(edge_type.astype(np.int64)),
        node_type=torch.from_numpy(np.repeat(np.arange(len(sizes)), sizes).astype(np.int64)),
        relation_names=tuple(names),
        class_names=tuple(notes["sections"]),
        tag_names=tuple(notes["tags"]),
    )
