# SPDX-License-Identifier: Apache-2.0
"""Adagrad on rows."""

from __future__ import annotations

from typing import Any

import torch

from pytorch_direct.ops.update import State
from pytorch_direct.optim.rows import RowOptimizer, Tables

__all__ = ["SparseAdagrad"]


class SparseAdagrad(RowOptimizer):
    """Adagrad for the rows that a step touched, as ``torch.optim.Adagrad`` does it.

    Parameters
    ----------
    tables : iterable of UnifiedTensor or of parameter groups
        What to train; see :class:`RowOptimizer`.
    lr, lr_decay : float
        The learning rate, and how fast it falls: ``lr / (1 + (step - 1) * lr_decay)``.
    initial_accumulator_value : float
        Where the sums of squares begin.
    eps : float
        Added to their roots.

    Notes
    -----
    J. Duchi, E. Hazan, Y. Singer: "Adaptive Subgradient Methods for Online Learning and Stochastic
    Optimization", JMLR 12, 2011.
    """

    _state_names = ("sum",)

    def __init__(
        self,
        tables: Tables,
        lr: float = 1e-2,
        lr_decay: float = 0.0,
        initial_accumulator_value: float = 0.0,
        eps: float = 1e-10,
    ) -> None:
        for name, value in (
            ("lr_decay", lr_decay),
            ("initial_accumulator_value", initial_accumulator_value),
            ("eps", eps),
        ):
            if not value >= 0:
                raise ValueError(f"{name} must not be negative, but it is {value}")
        super().__init__(
            tables,
            {
                "lr": lr,
                "lr_decay": lr_decay,
                "initial_accumulator_value": initial_accumulator_value,
                "eps": eps,
            },
        )

    def _make_state(self, table: torch.Tensor, group: dict[str, Any]) -> None:
        start = float(group["initial_accumulator_value"])
        self.state[table] = {"step": 0, "sum": self._new_state(table, start)}

    def _rule(self, table: torch.Tensor, group: dict[str, Any]) -> State:
        state = self.state[table]
        state["step"] += 1
        rate = group["lr"] / (1 + (state["step"] - 1) * group["lr_decay"])
        return State("adagrad", rate=float(rate), epsilon=group["eps"], tables=(state["sum"],))
