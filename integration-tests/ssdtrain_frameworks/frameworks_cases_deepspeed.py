# SPDX-License-Identifier: Apache-2.0
"""What two processes run under DeepSpeed's engine."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import deepspeed
import torch
from frameworks_support import BACKENDS, DEVICE, Model, batch, seeded
from torch.utils.checkpoint import checkpoint

from ssdtrain.integrations import wrap_forward

Tensors = dict[str, torch.Tensor]


def _train(
    rank: int,
    off: Any,
    stage: int,
    *,
    wrapped: bool = False,
    checkpointed: bool = False,
    **more: Any,
) -> Tensors:
    deepspeed.init_distributed(BACKENDS[DEVICE])
    model = seeded(Model)
    if checkpointed:
        model.around = lambda block, x: checkpoint(block, x, use_reentrant=False)
    engine, *_ = deepspeed.initialize(
        model=model,
        # A torch optimizer: DeepSpeed's own are compiled at first use.
        optimizer=torch.optim.AdamW(model.parameters(), lr=1e-2),
        config={
            "train_micro_batch_size_per_gpu": 2,
            "gradient_accumulation_steps": 2,
            "zero_optimization": {"stage": stage, "stage3_param_persistence_threshold": 0},
            "zero_allow_untested_optimizer": True,
            "gradient_clipping": 1.0,
            **more,
        },
    )
    losses = []
    with wrap_forward(engine, off) if off and wrapped else nullcontext():
        for step in range(4):
            x = batch(10 * step + rank)
            if "bf16" in more:
                x = x.bfloat16()
            with off if off and not wrapped else nullcontext():
                loss = engine(x).float().square().mean()
            engine.backward(loss)
            engine.step()
            losses.append(loss.detach())
    parameters = {}
    for name, parameter in model.named_parameters():
        with deepspeed.zero.GatheredParameters([parameter], enabled=stage == 3):
            parameters[name] = parameter.detach().clone()
    engine.destroy()
    return {"losses": torch.stack(losses), **parameters}


def zero1_bf16(rank: int, off: Any) -> Tensors:
    return _train(rank, off, 1, bf16={"enabled": True})


def zero2(rank: int, off: Any) -> Tensors:
    return _train(rank, off, 2)


def zero2_wrapped_and_checkpointed(rank: int, off: Any) -> Tensors:
    return _train(rank, off, 2, wrapped=True, checkpointed=True)


def zero3(rank: int, off: Any) -> Tensors:
    return _train(rank, off, 3)


def zero3_wrapped(rank: int, off: Any) -> Tensors:
    return _train(rank, off, 3, wrapped=True)
