# SPDX-License-Identifier: Apache-2.0
"""Bytes to move, time to move them in, what link and drives can take, and how long drives last."""

from __future__ import annotations

from .constants import CONSTANTS
from .devices import Drive, Gpu
from .figures import Sheet
from .setup import Setup

__all__ = ["write_bandwidth", "write_step", "write_wear"]

PAPER = "SSDTrain, arXiv 2408.10013"


def write_step(sheet: Sheet, gpu: Gpu, setup: Setup) -> None:
    """Write bytes and seconds of a micro-batch and of a step on one GPU."""
    for name, value, label in (
        ("b", setup.micro_batch, "sequences in a micro-batch"),
        ("m", setup.micro_batches, "micro-batches in a step"),
        ("p", setup.pipeline_parallel, "pipeline stages"),
        ("v", setup.virtual_stages, "pieces of the model on a stage"),
    ):
        sheet.given(name, value, "", label, "given")
    backward = CONSTANTS["backward"]
    sheet.given("back", backward.value, "", "backward pass in forward passes", backward.source)
    sheet.given("peak_flops", gpu.flops, "FLOP/s", "peak of the GPU, dense bf16", gpu.source)
    sheet.given("achieved", setup.achieved, "", "share achieved", setup.source("achieved"))
    sheet.work_out("F", "FLOP/s", "achieved*peak_flops", "achieved by the GPU")
    sheet.work_out("stage_layers", "", "ceil(L/p)", "layers on a stage")
    sheet.work_out(
        "micro_batch_bytes", "B", "layer_bytes*stage_layers*b*s", "activations of a micro-batch"
    )
    if setup.schedule == "gpipe":
        waiting, source = "m", "all micro-batches go forward first"
    elif setup.virtual_stages > 1:
        waiting = "min(m, p)*(1 + (p - 1)/(p*v))"
        source = "interleaved 1F1B: arXiv 2205.05198, section 4.2.3"
    else:
        waiting, source = "min(m, p)", "1F1B, first stage: arXiv 2205.05198, section 4.2.3"
    sheet.work_out("in_flight", "", waiting, "micro-batches that wait on the first stage", source)
    # With several stages the head is not on the first, which holds the most activations.
    with_head = setup.head and setup.pipeline_parallel == 1
    sheet.work_out(
        "activation_bytes",
        "B",
        "micro_batch_bytes*in_flight" + (" + head_bytes*b*s" if with_head else ""),
        "activations on the GPU at most, all kept",
    )
    sheet.work_out("step_bytes", "B", "micro_batch_bytes*m", "activations of all layers in a step")
    sheet.work_out(
        "forward_seconds",
        "s",
        "layer_flops*stage_layers*b*s/F",
        "forward pass of a micro-batch through the layers",
    )
    if with_head:
        sheet.work_out("head_seconds", "s", "head_flops*b*s/F", "output projection, forward")
    else:
        sheet.given("head_seconds", 0, "s", "output projection, forward", "none on this GPU")
    sheet.work_out(
        "bubble",
        "",
        "((p - 1)/v)/(m + (p - 1)/v)",
        "pipeline bubble, share of the step",
        "(p - 1)/(m + p - 1), interleaved: arXiv 2104.04473, section 2.2",
    )
    sheet.work_out(
        "step_seconds",
        "s",
        "(1 + back)*(forward_seconds + head_seconds)*(m + (p - 1)/v)",
        "step without weight update and communication",
    )


def write_bandwidth(sheet: Sheet, gpu: Gpu, drive: Drive | None, setup: Setup) -> None:
    """Write the rates that are needed, those there are, and the shares that can be hidden."""
    sheet.work_out(
        "write_forward",
        "B/s",
        "micro_batch_bytes/forward_seconds",
        "needed to write all within the forward pass",
    )
    sheet.work_out(
        "write_half_step",
        "B/s",
        "micro_batch_bytes/((1 + back)*forward_seconds/2)",
        "needed to write all within half of the step",
        PAPER,
    )
    sheet.work_out(
        "write_lean",
        "B/s",
        "lean_layer_bytes*stage_layers*b*s/forward_seconds",
        "needed for what is not computed again, within the forward pass",
    )
    sheet.work_out(
        "write_boundary",
        "B/s",
        "boundary_bytes*stage_layers*b*s/forward_seconds",
        "needed for the layers' inputs alone, within the forward pass",
    )
    sheet.given("link", gpu.link, "B/s", "GPU to host, a direction", gpu.link_source)
    sheet.work_out(
        "hidden_host", "", "min(1, link/write_forward)", "share that host memory can take in time"
    )
    sheet.work_out(
        "hidden_host_half_step",
        "",
        "min(1, link/write_half_step)",
        "the same within half of the step",
        PAPER,
    )
    sheet.work_out(
        "hidden_host_lean",
        "",
        "min(1, link/write_lean)",
        "share of what is not computed again that host memory can take in time",
    )
    if setup.pipeline_parallel > 1:
        # The peak is that at the end of the warm-up, which is forward passes alone, so that the
        # shares above hold there too; this is what keeps the pipeline from waiting after it.
        sheet.work_out(
            "write_steady",
            "B/s",
            "micro_batch_bytes/((1 + back)*forward_seconds)",
            "needed in the pipeline's steady state, where writes go on during backward",
        )
    if drive is None:
        return
    sheet.given("drives", setup.drives, "", "drives for each GPU", "given")
    sheet.given("drive_write", drive.write, "B/s", "writes of one drive", drive.source)
    sheet.given("drive_read", drive.read, "B/s", "reads of one drive", drive.source)
    sheet.work_out(
        "disk_write", "B/s", "min(link, drives*drive_write)", "writes of all, through the link"
    )
    sheet.work_out(
        "disk_read", "B/s", "min(link, drives*drive_read)", "reads of all, through the link"
    )
    sheet.work_out(
        "hidden_disk",
        "",
        "min(1, disk_write/write_forward, disk_read*back*forward_seconds/micro_batch_bytes)",
        "share that the drives can take in time, and give back within backward",
    )
    sheet.work_out(
        "hidden_disk_half_step",
        "",
        "min(1, disk_write/write_half_step)",
        "the same within half of the step",
        PAPER,
    )
    sheet.work_out(
        "hidden_disk_boundary",
        "",
        "min(1, disk_write/write_boundary)",
        "share of the layers' inputs that the drives can take in time",
    )


def write_wear(sheet: Sheet, drive: Drive, setup: Setup) -> None:
    """Write bytes a day and days of life, at the share that can be hidden and for inputs alone."""
    for name in ("write_amplification", "retention_relaxation", "duty"):
        label = name.replace("_", " ")
        sheet.given(name, getattr(setup, name), "", label, setup.source(name))
    sheet.given("endurance", drive.endurance, "B", "rated writes of one drive", drive.source)
    sheet.work_out(
        "endurance_all",
        "B",
        "endurance*drives*retention_relaxation/write_amplification",
        "bytes that all drives take",
    )
    sheet.work_out(
        "written_per_day",
        "B",
        "hidden_disk*step_bytes/step_seconds*86400*duty",
        "written in a day to the drives of one GPU",
    )
    sheet.work_out(
        "lifetime_days",
        "days",
        "endurance_all/written_per_day",
        "until the rating is used up",
        f"endurance over bytes a step times steps: {PAPER}",
    )
    sheet.work_out(
        "boundary_per_day",
        "B",
        "hidden_disk_boundary*boundary_bytes*stage_layers*b*s*m"
        "/(step_seconds + forward_seconds*m)*86400*duty",
        "written in a day if only the layers' inputs go, with full recomputation",
    )
    sheet.work_out(
        "boundary_lifetime_days", "days", "endurance_all/boundary_per_day", "until then, so"
    )
