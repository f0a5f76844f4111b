# SPDX-License-Identifier: Apache-2.0
"""What two processes run with PyTorch's own kinds of parallelism."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import torch
import torch.distributed as dist
from frameworks_support import DEVICE, WIDTH, Block, Model, batch, gradients, own_device, seeded
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecisionPolicy, fully_shard
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.distributed.pipelining import (
    PipelineStage,
    Schedule1F1B,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
)
from torch.distributed.tensor import DTensor, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)
from torch.utils.checkpoint import checkpoint

from ssdtrain.integrations import wrap_forward

Tensors = dict[str, torch.Tensor]

STEPS = 2
# Enough to be profiled, planned and run under a plan.
PLANNED_STEPS = 10


def _train(model: nn.Module, rank: int, off: Any, steps: int = STEPS) -> Tensors:
    """Each process has data of its own; the context stands around the forward pass."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for step in range(steps):
        optimizer.zero_grad()
        with off or nullcontext():
            loss = model(batch(10 * step + rank)).square().mean()
        loss.backward()
        losses.append(loss.detach())
        found = gradients(model)
        optimizer.step()
    return {"losses": torch.stack(losses), **found}


# ---------------------------------------------------------------------- data parallel


def ddp(rank: int, off: Any) -> Tensors:
    return _train(nn.parallel.DistributedDataParallel(seeded(Model)), rank, off)


def ddp_wrapped(rank: int, off: Any) -> Tensors:
    model = nn.parallel.DistributedDataParallel(seeded(Model))
    with wrap_forward(model, off) if off else nullcontext():
        return _train(model, rank, None)


def ddp_checkpointed(rank: int, off: Any) -> Tensors:
    inner = seeded(Model)
    inner.around = lambda block, x: checkpoint(block, x, use_reentrant=False)
    return _train(nn.parallel.DistributedDataParallel(inner), rank, off)


def ddp_unused_parameters(rank: int, off: Any) -> Tensors:
    """DDP walks the graph from the outputs to find what will get no gradient."""
    inner = seeded(lambda: Model(layers=3))
    inner.around = lambda block, x: x if block is inner.blocks[1] else block(x)
    model = nn.parallel.DistributedDataParallel(inner, find_unused_parameters=True)
    return _train(model, rank, off)


def ddp_accumulation(rank: int, off: Any) -> Tensors:
    model = nn.parallel.DistributedDataParallel(seeded(Model))
    for step in range(3):
        with nullcontext() if step == 2 else model.no_sync():
            with off or nullcontext():
                loss = model(batch(10 * step + rank)).square().mean()
            loss.backward()
    return gradients(model)


# ---------------------------------------------------------------------- sharded


def _sharded(build: Any = Model, **options: Any) -> Model:
    model = seeded(build)
    mesh = init_device_mesh(DEVICE, (2,))
    for block in model.blocks:
        fully_shard(block, mesh=mesh, **options)
    return fully_shard(model, mesh=mesh, **options)


def fsdp2(rank: int, off: Any) -> Tensors:
    return _train(_sharded(), rank, off)


def fsdp2_kept_whole(rank: int, off: Any) -> Tensors:
    return _train(_sharded(reshard_after_forward=False), rank, off)


def fsdp2_mixed_precision(rank: int, off: Any) -> Tensors:
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    return _train(_sharded(mp_policy=policy), rank, off)


def fsdp2_checkpointed(rank: int, off: Any) -> Tensors:
    model = _sharded()
    model.around = lambda block, x: checkpoint(block, x, use_reentrant=False)
    return _train(model, rank, off)


def fsdp2_wrapped_blocks(rank: int, off: Any) -> Tensors:
    """wrap_forward below FSDP's own hooks: a block's gather runs outside, its maths inside."""
    model = _sharded()
    for block in model.blocks:
        if off:
            wrap_forward(block, off)
    return _train(model, rank, None)


def fsdp1(rank: int, off: Any) -> Tensors:
    sharded = FullyShardedDataParallel(
        seeded(Model),
        auto_wrap_policy=ModuleWrapPolicy({Block}),
        device_id=own_device(),
        use_orig_params=True,
    )
    return _train(sharded, rank, off)


# ---------------------------------------------------------------------- tensor parallel


class MLP(nn.Module):
    """Column-wise, then row-wise."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(nn.functional.gelu(self.up(self.norm(x))))


def _tensor_parallel(plan: dict[str, Any], off: Any, steps: int = STEPS) -> Tensors:
    mesh = init_device_mesh(DEVICE, (2,))
    model = seeded(lambda: nn.Sequential(MLP(), MLP()))
    for layer in model:
        parallelize_module(layer, mesh, plan)
    if off and steps > STEPS:
        off.attach(model)
    # One by one: PyTorch's fused step refuses plain tensors beside DTensors.
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=False)
    losses = []
    for step in range(steps):
        optimizer.zero_grad()
        with off or nullcontext():
            y = model(batch(step))
            loss = (y.full_tensor() if isinstance(y, DTensor) else y).square().mean()
        loss.backward()
        losses.append(loss.detach())
        found = gradients(model)
        optimizer.step()
    return {"losses": torch.stack(losses), **found}


def tensor_parallel(rank: int, off: Any) -> Tensors:
    return _tensor_parallel({"up": ColwiseParallel(), "down": RowwiseParallel()}, off)


def dtensors_throughout(rank: int, off: Any) -> Tensors:
    """No module gives a plain tensor back: all that is saved are DTensors."""
    plan = {
        "norm": SequenceParallel(use_local_output=False),
        "up": ColwiseParallel(input_layouts=Shard(1), use_local_output=False),
        "down": RowwiseParallel(output_layouts=Shard(1), use_local_output=False),
    }
    return _tensor_parallel(plan, off)


def sequence_parallel(rank: int, off: Any) -> Tensors:
    plan = {
        "norm": SequenceParallel(),
        "up": ColwiseParallel(input_layouts=Shard(1)),
        "down": RowwiseParallel(output_layouts=Shard(1)),
    }
    return _tensor_parallel(plan, off)


# ---------------------------------------------------------------------- pipeline parallel


def _pipeline(
    kind: Any, rank: int, off: Any, how: str, stages: int = 1, steps: int = STEPS
) -> Tensors:
    """``stages`` a process, six micro-batches; the context around the schedule or each stage."""
    micro_batches = 6
    blocks = seeded(lambda: [Block(dropout=0.0) for _ in range(2 * stages)])
    mine = {index: blocks[index] for index in range(rank, 2 * stages, 2)}
    parts = [PipelineStage(block, index, 2 * stages, own_device()) for index, block in mine.items()]

    def loss_of(y: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return (y - target).square().mean()

    schedule = kind(parts if stages > 1 else parts[0], micro_batches, loss_fn=loss_of)
    if off and how == "stages":
        for block in mine.values():
            wrap_forward(block, off)
    if off and steps > STEPS:
        for block in mine.values():
            off.attach(block)
    found: Tensors = {}
    for step in range(steps):
        losses: list[torch.Tensor] = []
        with off if off and how == "schedule" else nullcontext():
            if rank == 0:
                schedule.step(batch(step, size=12))
            else:
                schedule.step(target=batch(step + 7, size=12), losses=losses)
        for index, loss in enumerate(losses):
            found[f"loss {step} {index}"] = loss.detach()
    for index, block in mine.items():
        found |= {f"{index}.{name}": value for name, value in gradients(block).items()}
    dist.barrier()
    return found


def gpipe(rank: int, off: Any) -> Tensors:
    return _pipeline(ScheduleGPipe, rank, off, "schedule")


def one_forward_one_backward(rank: int, off: Any) -> Tensors:
    return _pipeline(Schedule1F1B, rank, off, "schedule")


def one_forward_one_backward_by_stage(rank: int, off: Any) -> Tensors:
    return _pipeline(Schedule1F1B, rank, off, "stages")


def interleaved(rank: int, off: Any) -> Tensors:
    return _pipeline(ScheduleInterleaved1F1B, rank, off, "schedule", stages=2)


# ---------------------------------------------------------------------- under the planner


def ddp_planned(rank: int, off: Any) -> Tensors:
    model = nn.parallel.DistributedDataParallel(seeded(Model))
    if off:
        off.attach(model)
    return _train(model, rank, off, PLANNED_STEPS)


def fsdp2_planned(rank: int, off: Any) -> Tensors:
    model = _sharded()
    if off:
        off.attach(model)
    return _train(model, rank, off, PLANNED_STEPS)


def tensor_parallel_planned(rank: int, off: Any) -> Tensors:
    plan = {"up": ColwiseParallel(), "down": RowwiseParallel()}
    return _tensor_parallel(plan, off, PLANNED_STEPS)


def one_forward_one_backward_planned(rank: int, off: Any) -> Tensors:
    return _pipeline(Schedule1F1B, rank, off, "schedule", steps=PLANNED_STEPS)


def one_forward_one_backward_by_stage_planned(rank: int, off: Any) -> Tensors:
    return _pipeline(Schedule1F1B, rank, off, "stages", steps=PLANNED_STEPS)
