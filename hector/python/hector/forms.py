# SPDX-License-Identifier: Apache-2.0
"""The choices that a program is compiled with, as data; how each is carried out is in passes."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

__all__ = ["ALL_FORMS", "NAMED_FORMS", "Forms"]


@dataclass(frozen=True, order=True)
class Forms:
    """Which optional rewrites run.

    Attributes
    ----------
    fold : bool
        Vectors behind a linear map are folded into its matrices.
    aggregate_first : bool
        Rows are summed over (relation, node) pairs before they are mapped.
    compact_src, compact_dst : bool
        Values of an end point and a relation are computed once for each pair.
    """

    fold: bool = False
    aggregate_first: bool = False
    compact_src: bool = False
    compact_dst: bool = False

    @property
    def pair_routes(self) -> frozenset[str]:
        """The maps to pairs along which values are compacted."""
        wanted = {"edge.src_pair": self.compact_src, "edge.dst_pair": self.compact_dst}
        return frozenset(route for route, chosen in wanted.items() if chosen)

    def __str__(self) -> str:
        chosen = [name for name, value in vars(self).items() if value]
        return ", ".join(chosen) or "per_edge"


ALL_FORMS = tuple(Forms(*choice) for choice in itertools.product((False, True), repeat=4))
"""Every combination, in a fixed order."""

NAMED_FORMS = {
    "per_edge": Forms(),
    "compact": Forms(compact_src=True, compact_dst=True),
    "aggregate_first": Forms(aggregate_first=True),
    "fold": Forms(fold=True),
}
"""Forms that ``hector.compile(forms=...)`` takes by name, beside "auto"."""
