# SPDX-License-Identifier: Apache-2.0
"""How a model is trained: batch, parallelism, precision, and assumptions with their sources."""

from __future__ import annotations

from dataclasses import dataclass, fields

from .constants import CONSTANTS

__all__ = ["Setup"]


@dataclass(frozen=True, slots=True)
class Setup:
    """One training step of one replica.

    Attributes
    ----------
    micro_batch : int
        Sequences in a micro-batch.
    sequence : int
        Tokens in a sequence.
    micro_batches : int
        Of a step, for one pipeline.
    tensor_parallel, pipeline_parallel : int
        GPUs that share a layer, and stages.
    sequence_parallel : bool
        Norms and dropout are split over the tensor-parallel GPUs as well.
    virtual_stages : int
        Pieces of the model that a stage holds (interleaved schedule).
    schedule : {"1f1b", "gpipe"}
        Of the pipeline: how many micro-batches wait at the first stage.
    drives : int
        Drives for each GPU.
    fused_mlp, flash, causal : bool
        Gated activation in one kernel; attention that does not save its scores; attention over
        the past only.
    dropout : bool
    moe_buffers : bool
        Experts' inputs and outputs are copied in the order of experts, and saved.
    head : bool
        The model has an embedding and an output projection; False: its layers alone.
    state_shards : int
        GPUs over which the optimizer's states are split (ZeRO, FSDP).
    achieved, usable, duty, state_bytes, write_amplification, retention_relaxation : float
        See :data:`ssdtrain.paper.constants.CONSTANTS`.

    Raises
    ------
    ValueError
        For a number out of its domain.
    """

    micro_batch: int = 1
    sequence: int = 4096
    micro_batches: int = 1
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    sequence_parallel: bool = False
    virtual_stages: int = 1
    schedule: str = "1f1b"
    drives: int = 1
    fused_mlp: bool = True
    flash: bool = True
    causal: bool = True
    dropout: bool = False
    moe_buffers: bool = False
    head: bool = True
    state_shards: int = 1
    element_bytes: int = int(CONSTANTS["element_bytes"].value)
    achieved: float = CONSTANTS["achieved"].value
    usable: float = CONSTANTS["usable"].value
    duty: float = CONSTANTS["duty"].value
    state_bytes: float = CONSTANTS["state_bytes"].value
    write_amplification: float = CONSTANTS["write_amplification"].value
    retention_relaxation: float = CONSTANTS["retention_relaxation"].value

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.type == "int" and value < 1:
                raise ValueError(f"{field.name} must be 1 or more, is {value}")
            if field.type == "float" and not 0 < value < float("inf"):
                raise ValueError(f"{field.name} must be positive, is {value}")
        for name in ("achieved", "usable", "duty"):
            if getattr(self, name) > 1:
                raise ValueError(f"{name} is a share and must not pass 1, is {getattr(self, name)}")
        if self.write_amplification < 1:
            raise ValueError(f"write_amplification is {self.write_amplification}, 1 is the least")
        if self.schedule not in ("1f1b", "gpipe"):
            raise ValueError(f"schedule must be '1f1b' or 'gpipe', is {self.schedule!r}")
        if self.virtual_stages > 1 and (self.pipeline_parallel == 1 or self.schedule != "1f1b"):
            raise ValueError("virtual_stages belong to a 1f1b pipeline of two stages or more")

    def source(self, constant: str) -> str:
        """Say where a value comes from: the catalogue of constants, or the caller."""
        default = CONSTANTS[constant]
        return default.source if getattr(self, constant) == default.value else "given"
