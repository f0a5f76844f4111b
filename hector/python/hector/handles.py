# SPDX-License-Identifier: Apache-2.0
"""Tensors that name plans, so that an operator of ``torch.library`` can be given a graph."""

from __future__ import annotations

import itertools
import weakref

import numpy as np
import torch
from torch import Tensor

from hector.plan import Plan

__all__ = ["handle_of", "plan_of"]

_PLANS: dict[int, Plan] = {}
_NUMBERS = itertools.count()


def handle_of(plan: Plan) -> Tensor:
    """A new handle of a plan, which lives as long as the handle's memory does.

    Parameters
    ----------
    plan : Plan

    Returns
    -------
    Tensor, int64, shape (), on the CPU
        Autograd may keep it longer than the graph.
    """
    number = next(_NUMBERS)
    memory = np.array(number)
    _PLANS[number] = plan
    weakref.finalize(memory, _PLANS.pop, number, None).atexit = False
    with torch.inference_mode(False):  # autograd cannot save what is made in inference mode
        return torch.from_numpy(memory)


def plan_of(handle: Tensor) -> Plan:
    """The plan that a handle names."""
    return _PLANS[int(handle)]
