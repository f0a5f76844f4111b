# SPDX-License-Identifier: Apache-2.0
"""Ways to run a model; each takes a ``Model``, changes it, and returns what is to be called."""

from __future__ import annotations

import functools
from typing import Any

import torch
from frameworks_support import Model
from torch import nn
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)

__all__ = [
    "autocast", "checkpointed", "compiled", "compiled_blocks", "plain", "reentrant", "selective"
]  # fmt: skip


def _save_products(context: Any, op: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
    products = {torch.ops.aten.addmm.default, torch.ops.aten.mm.default}
    return CheckpointPolicy.MUST_SAVE if op in products else CheckpointPolicy.PREFER_RECOMPUTE


def plain(model: Model) -> nn.Module:
    return model


def checkpointed(model: Model) -> nn.Module:
    model.around = lambda block, x: checkpoint(block, x, use_reentrant=False)
    return model


def reentrant(model: Model) -> nn.Module:
    model.around = lambda block, x: checkpoint(block, x, use_reentrant=True)
    return model


def selective(model: Model) -> nn.Module:
    contexts = functools.partial(create_selective_checkpoint_contexts, _save_products)
    model.around = lambda block, x: checkpoint(block, x, use_reentrant=False, context_fn=contexts)
    return model


def compiled(model: Model) -> nn.Module:
    return torch.compile(model, backend="aot_eager")


def compiled_blocks(model: Model) -> nn.Module:
    for block in model.blocks:
        block.compile(backend="aot_eager")
    return model


def autocast(model: Model) -> nn.Module:
    device = model.head.weight.device.type
    model.forward = torch.autocast(device, torch.bfloat16)(model.forward)
    return model
