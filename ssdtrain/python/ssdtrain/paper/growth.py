# SPDX-License-Identifier: Apache-2.0
"""What the freed memory buys: larger micro-batches, fewer pipeline stages, more tokens a second."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from .bandwidth import write_bandwidth, write_step
from .constants import CONSTANTS
from .devices import Drive, Gpu
from .figures import Sheet
from .layer import write_layer
from .models import ModelShape
from .setup import Setup

__all__ = ["STRATEGIES", "Strategy", "smallest_pipeline", "strategies", "write_growth"]


@dataclass(frozen=True, slots=True)
class Strategy:
    """A way to treat activations.

    Attributes
    ----------
    key, short, label : str
    resident : str
        Bytes that stay on the GPU for each token of a micro-batch (layers only), as a formula.
    passes : str
        Length of a step's compute in forward passes.
    needs_drive : bool
    """

    key: str
    short: str
    label: str
    resident: str
    passes: str
    needs_drive: bool = False


def _moved(layer: str, share: str) -> str:
    waiting = f"(1 - {share})*{layer}*stage_layers*in_flight"
    return f"{waiting} + {share}*{layer}*min(resident_layers, stage_layers)"


STRATEGIES = (
    Strategy("keep", "keep", "keep", "layer_bytes*stage_layers*in_flight", "(1 + back)"),
    Strategy(
        "recompute",
        "recompute",
        "full recompute",
        "boundary_bytes*stage_layers*in_flight + layer_bytes",
        "(2 + back)",
    ),
    Strategy("host", "host", "offload to host", _moved("layer_bytes", "hidden_host"), "(1 + back)"),
    Strategy(
        "host_lean",
        "host, lean",
        "offload to host, norms and activations again",
        _moved("lean_layer_bytes", "hidden_host_lean") + " + (layer_bytes - lean_layer_bytes)",
        "(1 + back)",
    ),
    Strategy(
        "disk",
        "drives",
        "offload to drives",
        _moved("layer_bytes", "hidden_disk"),
        "(1 + back)",
        True,
    ),
)


def strategies(*, with_drive: bool) -> list[Strategy]:
    """Return all strategies, or those that need no drive."""
    return [strategy for strategy in STRATEGIES if with_drive or not strategy.needs_drive]


def write_growth(sheet: Sheet, gpu: Gpu, drive: Drive | None, setup: Setup) -> None:
    """Write memory, largest micro-batch and tokens a second of each strategy."""
    resident = CONSTANTS["resident_layers"]
    update = CONSTANTS["update_bytes"]
    sheet.given("memory", gpu.memory, "B", "memory of the GPU", gpu.source)
    sheet.given("bandwidth", gpu.bandwidth, "B/s", "of the GPU's memory", gpu.source)
    sheet.given("usable", setup.usable, "", "share of it for tensors", setup.source("usable"))
    sheet.given(
        "state_bytes",
        setup.state_bytes,
        "B",
        "weights, gradients and optimizer, bytes a parameter",
        setup.source("state_bytes"),
    )
    sheet.given("shards", setup.state_shards, "", "GPUs that share these", "given")
    sheet.given("update_bytes", update.value, "B", "update of a parameter", update.source)
    sheet.given("resident_layers", resident.value, "", "layers that stay", resident.source)
    with_head = setup.head and setup.pipeline_parallel == 1
    embedding = "(2 - tied)" if with_head else "1" if setup.head else "0"
    sheet.work_out(
        "gpu_parameters",
        "",
        f"(layer_parameters*stage_layers + {embedding}*head_parameters)/t",
        "parameters on the (first) GPU",
    )
    sheet.work_out("gpu_state", "B", "gpu_parameters*state_bytes/shards", "their bytes on the GPU")
    sheet.work_out("room", "B", "usable*memory - gpu_state", "left for activations")
    sheet.work_out(
        "update_seconds",
        "s",
        "gpu_parameters/shards*update_bytes/bandwidth",
        "weight update, at the rate of the GPU's memory",
    )
    head = " + head_bytes" if with_head else ""
    for strategy in strategies(with_drive=drive is not None):
        key = strategy.key
        sheet.work_out(
            f"{key}_bytes", "B", f"({strategy.resident}{head})*b*s", f"{strategy.label}: peak"
        )
        sheet.work_out(
            f"{key}_fits", "", f"floor(max(0, room)/({key}_bytes/b))",
            f"{strategy.label}: largest micro-batch that fits",
        )  # fmt: skip
        seconds = f"({strategy.passes}*forward_seconds + (1 + back)*head_seconds)*(m + (p - 1)/v)"
        sheet.work_out(
            f"{key}_seconds", "s", f"{seconds} + update_seconds", f"{strategy.label}: step"
        )
        sheet.work_out(
            f"{key}_rate",
            "tokens/s",
            f"m*b*s/{key}_seconds/(p*t)",
            f"{strategy.label}: tokens a second and GPU at the given micro-batch",
        )
        sheet.work_out(
            f"{key}_best_rate",
            "tokens/s",
            f"m*{key}_fits*s/({seconds}*{key}_fits/b + update_seconds)/(p*t)",
            f"{strategy.label}: the same at the largest micro-batch",
            "the update is shared by more tokens; faster kernels on larger batches not counted",
        )


def smallest_pipeline(
    sheet: Sheet, model: ModelShape, gpu: Gpu, drive: Drive | None, setup: Setup
) -> None:
    """Write, for each strategy, the fewest stages that fit, their bubble and what that buys.

    On the same GPUs a pipeline of fewer stages makes more replicas, and each of them does as many
    fewer micro-batches: the tokens of a step stay the same.
    """
    stages = setup.pipeline_parallel
    for strategy in strategies(with_drive=drive is not None):
        key = strategy.key
        for fewer in [n for n in range(1, stages + 1) if stages % n == 0]:
            micro_batches = max(1, setup.micro_batches * fewer // stages)
            trial = dataclasses.replace(
                setup,
                pipeline_parallel=fewer,
                micro_batches=micro_batches,
                virtual_stages=setup.virtual_stages if fewer > 1 else 1,
                state_shards=setup.state_shards
                * (1 if setup.state_shards == 1 else stages // fewer),
            )
            attempt = Sheet()
            write_layer(attempt, model, trial)
            write_step(attempt, gpu, trial)
            write_bandwidth(attempt, gpu, drive, trial)
            write_growth(attempt, gpu, drive, trial)
            if attempt[f"{key}_fits"] >= setup.micro_batch:
                break
        else:
            continue
        label = strategy.label
        sheet.given(f"{key}_p", fewer, "", f"{label}: fewest stages that fit", "tried in turn")
        sheet.given(f"{key}_m", micro_batches, "", f"{label}: micro-batches then", "m*p'/p")
        sheet.work_out(
            f"{key}_bubble",
            "",
            f"(({key}_p - 1)/w)/({key}_m + ({key}_p - 1)/w)",
            f"{label}: pipeline bubble then",
            w=trial.virtual_stages,
        )
        sheet.work_out(
            f"{key}_bubble_gain",
            "",
            f"(1 - {key}_bubble)/(1 - bubble)",
            f"{label}: throughput by the smaller bubble, times",
        )
