# SPDX-License-Identifier: Apache-2.0
"""Plain stochastic gradient descent on rows."""

from __future__ import annotations

from typing import Any

import torch

from pytorch_direct.ops.update import State
from pytorch_direct.optim.rows import RowOptimizer, Tables

__all__ = ["SparseSGD"]


class SparseSGD(RowOptimizer):
    """``p -= lr * g`` for the rows that a step touched; no momentum.

    Parameters
    ----------
    tables : iterable of UnifiedTensor or of parameter groups
        What to train; see :class:`RowOptimizer`.
    lr : float
        The learning rate.
    """

    def __init__(self, tables: Tables, lr: float = 1e-3) -> None:
        super().__init__(tables, {"lr": lr})

    def _rule(self, table: torch.Tensor, group: dict[str, Any]) -> State:
        return State("sgd", rate=float(group["lr"]))
