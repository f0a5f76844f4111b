# SPDX-License-Identifier: Apache-2.0
"""Rewrites of the IR, one a file; each takes a function and gives a new one."""

from hector.passes.aggregate_first import aggregate_first
from hector.passes.canonicalise import canonicalise
from hector.passes.compact import compact, node_routes
from hector.passes.cse import eliminate_common
from hector.passes.dce import eliminate_dead
from hector.passes.fold import fold
from hector.passes.fuse import fuse
from hector.passes.normalise import normalise
from hector.passes.reuse_sums import reuse_sums

__all__ = [
    "aggregate_first",
    "canonicalise",
    "compact",
    "eliminate_common",
    "eliminate_dead",
    "fold",
    "fuse",
    "node_routes",
    "normalise",
    "reuse_sums",
]
