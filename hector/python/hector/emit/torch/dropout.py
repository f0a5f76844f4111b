# SPDX-License-Identifier: Apache-2.0
"""Dropout's factors on PyTorch: the masks of the eager function, in the plan's order of rows."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from hector.dtypes import TORCH
from hector.masks import keep_scales
from hector.plan import Plan

__all__ = ["keep"]


def keep(
    plan: Plan, seed: Tensor | int, *, space: str, shape: tuple[int, ...], dtype: str, p: float
) -> Tensor:
    """``1 / (1 - p)`` where an element is kept, else 0.

    Parameters
    ----------
    plan : Plan
    seed : int or Tensor, int64, shape ()
    space : str
        Edges are numbered as the user has them, whatever the plan's order.
    shape : tuple of int
        Of one row; of the whole value in space ``weight``.
    dtype : str
    p : float

    Returns
    -------
    Tensor, shape (rows, *shape), or ``shape`` in space ``weight``
    """
    if space == "weight":
        rows = torch.arange(shape[0], device=plan.device)
        return keep_scales(rows, math.prod(shape[1:]), p, seed, TORCH[dtype]).reshape(shape)
    count = plan.rows(space)
    rows = plan.edge_order if space == "edge" else torch.arange(count, device=plan.device)
    return keep_scales(rows, math.prod(shape), p, seed, TORCH[dtype]).reshape(count, *shape)
