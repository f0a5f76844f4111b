# SPDX-License-Identifier: Apache-2.0
"""Initial values and typed matrices that the layers share; not what a layer computes."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from hector import functional

__all__ = ["check_decomposition", "composed", "copy_parameters", "glorot", "matrices", "typed"]


def glorot(*parameters: nn.Parameter | None) -> None:
    """Glorot-uniform values from the last two extents (Glorot and Bengio, 2010)."""
    for parameter in parameters:
        if parameter is not None:
            bound = math.sqrt(6 / (parameter.shape[-2] + parameter.shape[-1]))
            nn.init.uniform_(parameter, -bound, bound)


def check_decomposition(
    name: str, k: int, n: int, relations: int, bases: int | None, blocks: int | None
) -> None:
    """Refuse what is no decomposition of (relations, k, n) matrices.

    Raises
    ------
    ValueError
    """
    counts = [count for count in (bases, blocks) if count is not None]
    if min(k, n, relations, *counts) < 1:
        raise ValueError(f"{name}: channels, relations, bases and blocks must be positive")
    if len(counts) == 2:
        raise ValueError(f"{name}: num_bases and num_blocks exclude each other")
    if blocks is not None and (k % blocks or n % blocks):
        raise ValueError(f"{name}: {blocks} blocks do not divide {k} and {n} channels")


def matrices(
    k: int, n: int, relations: int, bases: int | None, blocks: int | None
) -> tuple[nn.Parameter, nn.Parameter | None]:
    """Uninitialised matrices, or what they are made from, and the shares of the bases.

    Returns
    -------
    weight : Parameter, shape (relations, k, n), (bases, k, n) or (relations, blocks, k', n')
    comp : Parameter, shape (relations, bases), or None
    """
    if bases is not None:
        comp = nn.Parameter(torch.empty(relations, bases))
        return nn.Parameter(torch.empty(bases, k, n)), comp
    if blocks is not None:
        return nn.Parameter(torch.empty(relations, blocks, k // blocks, n // blocks)), None
    return nn.Parameter(torch.empty(relations, k, n)), None


def composed(weight: Tensor, comp: Tensor | None) -> Tensor:
    """The matrices that mixtures of bases stand for; others as they are."""
    if comp is None:
        return weight
    bases, k, n = weight.shape
    return (comp @ weight.reshape(bases, k * n)).reshape(comp.shape[0], k, n)


def typed(x: Tensor, weight: Tensor, end: Tensor, rel: Tensor) -> Tensor:
    """Rows of ``x`` at one end of the edges times the matrix of each edge's relation.

    Parameters
    ----------
    x : Tensor, shape (num_nodes, k)
    weight : Tensor, shape (relations, k, n) or (relations, blocks, k', n')
    end, rel
        ``g.src`` or ``g.dst``, and ``g.rel``.

    Returns
    -------
    Tensor, shape (E, n)
    """
    if weight.dim() == 4:
        blocks = x.reshape(x.shape[0], weight.shape[1], weight.shape[2])
        return functional.linear(blocks[end], weight[rel]).flatten(1)
    return functional.linear(x[end], weight[rel])


def copy_parameters(made: nn.Module, source: nn.Module, names: dict[str, str]) -> None:
    """Copy parameters by name, where both sides have them.

    Parameters
    ----------
    made, source : Module
    names : dict of str to str
        Name in ``made`` to name in ``source``.
    """
    with torch.no_grad():
        for name, other in names.items():
            parameter = getattr(made, name)
            if parameter is not None:
                parameter.copy_(getattr(source, other))
