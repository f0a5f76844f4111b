# SPDX-License-Identifier: Apache-2.0
"""Puts the parts together: a model, a GPU and a drive to one sheet of figures."""

from __future__ import annotations

from .bandwidth import write_bandwidth, write_step, write_wear
from .devices import Drive, Gpu
from .figures import Sheet
from .growth import smallest_pipeline, write_growth
from .layer import write_layer
from .models import ModelShape
from .setup import Setup

__all__ = ["paper_plan"]


def paper_plan(
    model: ModelShape, gpu: Gpu, drive: Drive | None = None, setup: Setup | None = None
) -> Sheet:
    """Work out on paper what offloading a model's activations needs, wears and buys.

    Parameters
    ----------
    model : ModelShape
    gpu : Gpu
    drive : Drive, optional
        Without one, drives are left out.
    setup : Setup, optional

    Returns
    -------
    Sheet
        Figures for one GPU (of a pipeline's first stage), each with its formula and inputs.

    Raises
    ------
    ValueError
        For parallelism that the model cannot be divided by.

    Notes
    -----
    Compute goes at one achieved rate, communication costs nothing, and a micro-batch of any size
    is as efficient: what a machine does is measured by ``ssdtrain rok``. Source: the projections
    of SSDTrain (arXiv 2408.10013), with bytes as in arXiv 2205.05198.
    """
    setup = setup or Setup()
    if model.heads % setup.tensor_parallel:
        raise ValueError(
            f"{model.name}: {model.heads} heads do not divide by {setup.tensor_parallel}"
        )
    if setup.pipeline_parallel * setup.virtual_stages > model.layers:
        raise ValueError(
            f"{model.name}: {model.layers} layers are fewer than the pipeline's"
            f" {setup.pipeline_parallel} x {setup.virtual_stages} stages"
        )
    if setup.moe_buffers and not model.experts:
        raise ValueError(f"{model.name} has no experts, so no buffers for them")
    sheet = Sheet()
    write_layer(sheet, model, setup)
    write_step(sheet, gpu, setup)
    write_bandwidth(sheet, gpu, drive, setup)
    if drive is not None:
        write_wear(sheet, drive, setup)
    write_growth(sheet, gpu, drive, setup)
    smallest_pipeline(sheet, model, gpu, drive, setup)
    return sheet
