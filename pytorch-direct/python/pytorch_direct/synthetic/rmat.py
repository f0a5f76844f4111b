# SPDX-License-Identifier: Apache-2.0
"""R-MAT graphs and features for them, of any size, the same for the same seed on every machine."""

from __future__ import annotations

import math
import operator

import torch

from pytorch_direct import _native

__all__ = ["rmat", "rmat_features"]

_BLOCK_BYTES = 16 << 20


def rmat(
    num_nodes: int,
    num_edges: int,
    *,
    seed: int,
    a: float = 0.57,
    b: float = 0.19,
    c: float = 0.19,
    scramble: bool = False,
) -> torch.Tensor:
    """Make the edges of a power-law graph by the recursive matrix model.

    Each edge falls into one quadrant of the adjacency matrix, by the probabilities ``a`` (upper
    left), ``b`` (upper right), ``c`` (lower left) and ``1 - a - b - c``, then into one of that
    quadrant's quadrants, and so on to a single cell. Sides of odd length are cut so that the lower
    half is larger by one node, so any number of nodes will do. Duplicate edges and self-loops
    occur, as in the model. The defaults are those of Graph500.

    Parameters
    ----------
    num_nodes, num_edges : int
        Sizes; above 2^31 too. Edges need a node.
    seed : int
        In [0, 2^64). The result depends on the arguments only, not on threads; a graph with more
        edges begins with the edges of one with fewer.
    a, b, c : float
        Probabilities of quadrants; they and what they leave to 1 must not be negative.
    scramble : bool
        Rename the nodes at random. Without it low ids have high degrees.

    Returns
    -------
    torch.Tensor
        ``edge_index``, int64 of shape ``[2, num_edges]``: sources and destinations.

    Raises
    ------
    ValueError
        An argument is out of its domain.

    Notes
    -----
    D. Chakrabarti, Y. Zhan, C. Faloutsos, "R-MAT: A Recursive Model for Graph Mining", SDM 2004,
    section 3. Random numbers are Philox 4x32-10 of (seed, edge, level).
    """
    num_nodes, num_edges = _size(num_nodes, "num_nodes"), _size(num_edges, "num_edges")
    seed = _seed(seed)
    rest = 1.0 - a - b - c
    # The sum of the three may miss 1 by rounding.
    if not all(math.isfinite(p) and p >= 0 for p in (a, b, c)) or rest < -1e-9:
        raise ValueError(
            f"rmat: a, b, c and 1 - a - b - c must not be negative; they are {a}, {b}, {c}, {rest}"
        )
    if num_edges and not num_nodes:
        raise ValueError("rmat: a graph without nodes has no edges")
    edges = torch.empty((2, num_edges), dtype=torch.int64)
    if num_edges:
        sources, destinations = edges[0].data_ptr(), edges[1].data_ptr()
        threads = torch.get_num_threads()
        _native.rmat_edges(
            num_nodes, 0, num_edges, seed, a, b, c, scramble, sources, destinations, threads
        )
    return edges


def rmat_features(
    num_nodes: int, dim: int, *, seed: int, dtype: torch.dtype = torch.float32
) -> torch.Tensor:
    """Make node features: independent, uniform in [-1, 1), the same for the same seed everywhere.

    Parameters
    ----------
    num_nodes, dim : int
        Shape of the result.
    seed : int
        In [0, 2^64); independent of a graph of the same seed.
    dtype : torch.dtype
        A floating-point type. Numbers are made as float32, multiples of 2^-23, then converted.

    Returns
    -------
    torch.Tensor
        Shape ``[num_nodes, dim]`` on the CPU.

    Raises
    ------
    TypeError
        `dtype` is no floating-point type.
    ValueError
        A size or the seed is out of its domain.
    """
    num_nodes, dim = _size(num_nodes, "num_nodes"), _size(dim, "dim")
    seed = _seed(seed)
    if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
        raise TypeError(f"rmat_features: dtype must be a floating-point torch.dtype, not {dtype}")
    features = torch.empty((num_nodes, dim), dtype=dtype)
    flat = features.view(-1)
    threads = torch.get_num_threads()
    if dtype == torch.float32:
        _native.uniform_features(0, flat.numel(), seed, flat.data_ptr(), threads)
        return features
    block = torch.empty(min(flat.numel(), _BLOCK_BYTES // 4), dtype=torch.float32)
    for begin in range(0, flat.numel(), max(1, block.numel())):
        count = min(block.numel(), flat.numel() - begin)
        _native.uniform_features(begin, count, seed, block.data_ptr(), threads)
        flat[begin : begin + count].copy_(block[:count])
    return features


def _size(value: int, what: str) -> int:
    size = operator.index(value)
    if not 0 <= size < 2**62:
        raise ValueError(f"{what} must be at least 0 and below 2^62, not {size}")
    return size


def _seed(value: int) -> int:
    seed = operator.index(value)
    if not 0 <= seed < 2**64:
        raise ValueError(f"seed must be in [0, 2^64), not {seed}")
    return seed
