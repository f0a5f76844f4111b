# SPDX-License-Identifier: Apache-2.0
"""Adam on rows."""

from __future__ import annotations

from typing import Any

import torch

from pytorch_direct.ops.update import State
from pytorch_direct.optim.rows import RowOptimizer, Tables

__all__ = ["SparseAdam"]


class SparseAdam(RowOptimizer):
    """Adam for the rows that a step touched, as ``torch.optim.SparseAdam`` does it.

    The moments of a row move only when it has a gradient ("lazy" Adam).

    Parameters
    ----------
    tables : iterable of UnifiedTensor or of parameter groups
        What to train; see :class:`RowOptimizer`.
    lr : float
        The learning rate.
    betas : tuple of float
        Decays of the two moments, in [0, 1).
    eps : float
        Added to the root of the second moment, above 0.

    Notes
    -----
    D. P. Kingma, J. Ba: "Adam: A Method for Stochastic Optimization", ICLR 2015.
    """

    _state_names = ("exp_avg", "exp_avg_sq")

    def __init__(
        self,
        tables: Tables,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
    ) -> None:
        if not all(0 <= beta < 1 for beta in betas):
            raise ValueError(f"betas must be in [0, 1), but they are {betas}")
        if not eps > 0:
            raise ValueError(f"eps must be above 0, but it is {eps}")
        super().__init__(tables, {"lr": lr, "betas": betas, "eps": eps})

    def _make_state(self, table: torch.Tensor, group: dict[str, Any]) -> None:
        self.state[table] = {
            "step": 0,
            "exp_avg": self._new_state(table),
            "exp_avg_sq": self._new_state(table),
        }

    def _rule(self, table: torch.Tensor, group: dict[str, Any]) -> State:
        state = self.state[table]
        state["step"] += 1
        first, second = group["betas"]
        corrected = (1 - second ** state["step"]) ** 0.5 / (1 - first ** state["step"])
        return State(
            "adam",
            rate=float(group["lr"] * corrected),
            epsilon=group["eps"],
            decays=(1 - first, 1 - second),
            tables=(state["exp_avg"], state["exp_avg_sq"]),
        )
