# SPDX-License-Identifier: Apache-2.0
"""Megatron-core's GPT, on its own and over two processes.

Megatron-core is made for GPUs. On the CPU its own code runs with three things in place of what
needs CUDA: the current device, the device that its schedules name, and the tracker of CUDA's random
states (so there is no dropout).
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import torch
from frameworks_support import DEVICE
from megatron.core import parallel_state, tensor_parallel
from megatron.core.models.gpt import GPTModel
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.pipeline_parallel import get_forward_backward_func
from megatron.core.tensor_parallel import random as megatron_random
from megatron.core.transformer import TransformerConfig
from torch.overrides import TorchFunctionMode

from ssdtrain.integrations import wrap_forward

Tensors = dict[str, torch.Tensor]

TOKENS = 16


class OnTheCpu(TorchFunctionMode):
    """Makes on the CPU what is asked for on ``"cuda"``."""

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        if kwargs.get("device") == "cuda":
            kwargs["device"] = "cpu"
        return function(*args, **kwargs)


def _start(device: str, *, tensor: int = 1, pipeline: int = 1) -> None:
    parallel_state.destroy_model_parallel()
    parallel_state.initialize_model_parallel(
        tensor_model_parallel_size=tensor, pipeline_model_parallel_size=pipeline
    )
    if device == "cpu":
        torch.cuda.current_device = lambda: torch.device("cpu")
        megatron_random.initialize_rng_tracker(inference_rng_tracker=True, force_reset=True)
    else:
        tensor_parallel.model_parallel_cuda_manual_seed(0)


def _model(device: str, **options: Any) -> GPTModel:
    torch.manual_seed(0)
    dropout = 0.0 if device == "cpu" else 0.1
    config = TransformerConfig(
        num_layers=2,
        hidden_size=32,
        num_attention_heads=4,
        num_query_groups=2,
        use_cpu_initialization=True,
        attention_dropout=dropout,
        hidden_dropout=dropout,
        add_bias_linear=False,
        gated_linear_unit=True,
        bias_activation_fusion=False,
        bias_dropout_fusion=False,
        masked_softmax_fusion=False,
        gradient_accumulation_fusion=False,
        pipeline_dtype=torch.float32,
        **options,
    )
    return GPTModel(
        config=config,
        transformer_layer_spec=get_gpt_layer_local_spec(),
        vocab_size=128,
        max_sequence_length=TOKENS,
        pre_process=parallel_state.is_pipeline_first_stage(),
        post_process=parallel_state.is_pipeline_last_stage(),
    ).to(device)


def _inputs(seed: int, device: str) -> dict[str, torch.Tensor]:
    tokens = torch.randint(0, 128, (2, TOKENS), generator=torch.Generator().manual_seed(seed))
    mask = torch.triu(torch.ones(1, 1, TOKENS, TOKENS), 1).bool()
    positions = torch.arange(TOKENS).expand(2, TOKENS)
    inputs = {"input_ids": tokens, "position_ids": positions, "attention_mask": mask}
    return {name: value.to(device) for name, value in {**inputs, "labels": tokens}.items()}


def _gradients(model: torch.nn.Module) -> Tensors:
    return {
        name: p.grad.cpu().clone() for name, p in model.named_parameters() if p.grad is not None
    }


def train(device: str, off: Any, **options: Any) -> Tensors:
    model = _model(device, **options)
    losses = []
    with wrap_forward(model, off) if off else nullcontext():
        for step in range(2):
            loss = model(**_inputs(step, device)).mean()
            loss.backward()
            losses.append(loss.detach().cpu())
    return {"losses": torch.stack(losses), **_gradients(model)}


def tensor_parallel_layers(rank: int, off: Any) -> Tensors:
    _start(DEVICE, tensor=2)
    return train(DEVICE, off, tensor_model_parallel_size=2)


def pipeline(rank: int, off: Any) -> Tensors:
    """One forward, one backward, over six micro-batches.

    What a stage has sent on is emptied in place: the tensor that the graph holds is then another
    memory's.
    """
    _start(DEVICE, pipeline=2)
    model = _model(
        DEVICE,
        pipeline_model_parallel_size=2,
        deallocate_pipeline_outputs=True,
        batch_p2p_sync=False,
    )

    def loss_of(losses: torch.Tensor) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        return losses.mean(), {"loss": losses.detach().mean()}

    def forward(batches: Any, model: GPTModel) -> Any:
        return model(**next(batches)), loss_of

    with off or nullcontext(), OnTheCpu() if DEVICE == "cpu" else nullcontext():
        losses = get_forward_backward_func()(
            forward_step_func=forward,
            data_iterator=iter([_inputs(seed, DEVICE) for seed in range(6)]),
            model=model,
            num_microbatches=6,
            seq_length=TOKENS,
            micro_batch_size=2,
        )
    found = {f"loss {index}": entry["loss"] for index, entry in enumerate(losses)}
    return {**found, **_gradients(model)}
