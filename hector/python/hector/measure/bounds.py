# SPDX-License-Identifier: Apache-2.0
"""Bytes that a relational layer must move, and memory that it may need, from a graph's counts."""

from __future__ import annotations

from hector.forms import Forms
from hector.plan import Counts

__all__ = ["gather_bytes", "memory_bytes"]


def gather_bytes(counts: Counts, width: int, element: int, *, backward: bool) -> int:
    """Bytes of a layer that reads each edge's row from memory and stores nothing in between.

    Forward: a row for each edge, a row written for each node, 4-byte ids of edges and nodes.
    Backward: the same, a row read for each node, and the matrices with their gradients in fp32.

    Parameters
    ----------
    counts : Counts
    width : int
        Elements of a row.
    element : int
        Bytes of an element.
    backward : bool
        Which of the two; training is their sum.
    """
    row = width * element
    forward = (counts.edge + counts.node) * row + 4 * (counts.edge + counts.node)
    if not backward:
        return forward
    return forward + counts.node * row + counts.relation * width * width * (element + 4)


def memory_bytes(
    layer: str, counts: Counts, width: int, heads: int, element: int, forms: Forms, *,
    training: bool,
) -> int:  # fmt: skip
    """Memory that a layer needs beside its inputs when nothing of size edges x width is stored.

    The output; rows of pairs (RGCN: of targets' pairs where it sums first, of sources' else; RGAT:
    rows of sources' pairs and scores of both; HGT: keys, queries and values of nodes, keys and
    messages of sources' pairs); for each node and head the logarithm of the softmax's sum, fp32.
    Training adds the gradient of each of these, of the output and of the inputs.

    Parameters
    ----------
    layer : str
        "RGCN", "RGAT" or "HGT".
    counts : Counts
    width, heads : int
    element : int
        Bytes of an element.
    forms : Forms
    training : bool

    Returns
    -------
    int
    """
    row = width * element
    sources, targets, nodes = counts.src_pair, counts.dst_pair, counts.node
    if layer == "RGCN":
        between = (targets if forms.aggregate_first else sources) * row
        matrices = (counts.relation + 1) * width * row
    elif layer == "RGAT":
        between = sources * row + (sources + targets) * heads * element + nodes * heads * 4
        matrices = counts.relation * width * row
    else:
        between = (3 * nodes + 2 * sources) * row + nodes * heads * 4
        matrices = (2 * counts.relation // heads + 4 * counts.node_type) * width * row
    output = nodes * row
    if not training:
        return output + between
    return 2 * output + 2 * between + nodes * row + matrices
