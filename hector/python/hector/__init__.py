# SPDX-License-Identifier: Apache-2.0
"""A compiler for relational graph neural networks written as plain PyTorch indexing."""

from hector import nn
from hector.compiled import Compiled
from hector.entry import compile
from hector.explain import Explanation
from hector.forms import Forms
from hector.functional import aggregate, dropout, edge_softmax, linear
from hector.graph import Graph
from hector.prefetch import prefetch

__version__ = "0.1.0"

__all__ = [
    "Compiled",
    "Explanation",
    "Forms",
    "Graph",
    "aggregate",
    "compile",
    "dropout",
    "edge_softmax",
    "linear",
    "nn",
    "prefetch",
]
