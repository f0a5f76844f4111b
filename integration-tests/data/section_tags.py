# SPDX-License-Identifier: Apache-2.0
"""Decides which debtags would give the section away; not for reading or storing anything.

A package's section is the label of the task. Debtags are put on packages by people who often say
the same thing twice (`game::arcade` in section `games`), so a tag stays only if it passes three
tests: enough packages carry it, no part of its name is the name of a section, and no section holds
half or more of the packages that carry it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

import numpy as np

__all__ = ["MAX_PURITY", "MIN_PACKAGES", "accuracy_from_tags", "honest_tags"]

MIN_PACKAGES = 5
MAX_PURITY = 0.5

# Words of tag names that mean a section without being its name.
_SAME_AS_SECTION = {
    "c-sharp": "cli-mono",
    "db": "database",
    "debug-symbols": "debug",
    "devel-lib": "libdevel",
    "documentation": "doc",
    "ecma-cli": "cli-mono",
    "ecmascript": "javascript",
    "editor": "editors",
    "font": "fonts",
    "game": "games",
    "interpreter": "interpreters",
    "library": "libs",
    "metapackage": "metapackages",
    "network": "net",
    "r": "gnu-r",
    "rcs": "vcs",
    "shared-lib": "libs",
    "shell": "shells",
}


def _names_a_section(tag: str, sections: set[str]) -> bool:
    parts = re.split(r"::?", tag)
    return any(_SAME_AS_SECTION.get(part, part) in sections for part in parts)


def honest_tags(tags: Sequence[frozenset[str]], sections: Sequence[str]) -> list[str]:
    """Return the tags that do not repeat the section, sorted by name.

    Parameters
    ----------
    tags : sequence of frozenset of str
        Each package's tags.
    sections : sequence of str
        Each package's section, same length.
    """
    carried: Counter[str] = Counter()
    together: Counter[tuple[str, str]] = Counter()
    for names, section in zip(tags, sections, strict=True):
        for name in names:
            carried[name] += 1
            together[name, section] += 1
    largest: Counter[str] = Counter()
    for (name, _), count in together.items():
        largest[name] = max(largest[name], count)
    known = set(sections)
    return sorted(
        name
        for name, count in carried.items()
        if count >= MIN_PACKAGES
        and largest[name] < MAX_PURITY * count
        and not _names_a_section(name, known)
    )


def accuracy_from_tags(
    tags: Sequence[frozenset[str]],
    sections: Sequence[str],
    names: Sequence[str],
    train: np.ndarray,
) -> tuple[float, float] | None:
    """Measure how well tags alone give the section away, on packages that carry any tag.

    A multinomial naive Bayes classifier (smoothing 0.1) is fitted on the training packages.

    Parameters
    ----------
    tags, sections
        As in :func:`honest_tags`.
    names : sequence of str
        The tags that the classifier may look at.
    train : numpy.ndarray
        bool, one per package.

    Returns
    -------
    tuple of float or None
        Accuracy on the other packages, and the share of the most common section among them; None
        where no package on one side of the split carries a tag.
    """
    tagged = np.array([bool(each) for each in tags])
    column = {name: number for number, name in enumerate(names)}
    classes = sorted(set(sections))
    label = np.array([classes.index(section) for section in sections])
    counts = np.zeros((len(tags), len(names)), dtype=np.float32)
    for row, each in enumerate(tags):
        for name in each & column.keys():
            counts[row, column[name]] = 1
    fit, held = tagged & train, tagged & ~train
    if not fit.any() or not held.any():
        return None
    one_hot = np.eye(len(classes), dtype=np.float32)[label[fit]]
    per_class = one_hot.T @ counts[fit] + 0.1
    log_likelihood = np.log(per_class / per_class.sum(axis=1, keepdims=True))
    log_prior = np.log(one_hot.sum(axis=0) + 1e-9)
    guess = (counts[held] @ log_likelihood.T + log_prior).argmax(axis=1)
    majority = np.bincount(label[held]).max() / held.sum()
    return float((guess == label[held]).mean()), float(majority)
