# SPDX-License-Identifier: Apache-2.0
"""Numbers that belong to no catalogue entry, each with its source; options override them."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["CONSTANTS", "LINKS", "Constant"]


@dataclass(frozen=True, slots=True)
class Constant:
    """A default value and where it comes from."""

    value: float
    source: str


CONSTANTS = {
    "achieved": Constant(
        0.40,
        "share of the peak that large training runs reach, 38 to 43 %: arXiv 2407.21783, table 4."
        " Blocks alone, without communication, reached 0.65 on one H200 (8192 wide)",
    ),
    "element_bytes": Constant(2, "16-bit activations (bf16, fp16)"),
    "state_bytes": Constant(
        16, "mixed-precision Adam, bytes a parameter: ZeRO, arXiv 1910.02054, section 3.1"
    ),
    "update_bytes": Constant(
        28,
        "bytes that Adam's update reads and writes a parameter: gradient 2; master weight, mean"
        " and variance 3 x 4 read and 3 x 4 written; weight 2 (states as in arXiv 1910.02054)",
    ),
    "usable": Constant(
        0.90, "assumption: the rest is the CUDA context, communication buffers and fragments"
    ),
    "resident_layers": Constant(
        2, "layers whose activations stay while others move: SSDTrain, arXiv 2408.10013"
    ),
    "backward": Constant(
        2, "backward pass in forward passes: two products for each of forward's, arXiv 2205.05198"
    ),
    "write_amplification": Constant(
        1.0,
        "ratings count the host's writes already (JESD218/219, a random workload of 2.5), so long"
        " sequential writes are charged no less: cautious beside SSDTrain (arXiv 2408.10013),"
        " which takes the 2.5 back",
    ),
    "retention_relaxation": Constant(
        1.0,
        "none: SSDTrain (arXiv 2408.10013) multiplies by 86 for a retention of one day, which no"
        " standard firmware offers and no vendor warrants",
    ),
    "duty": Constant(1.0, "share of the day spent training: all of it"),
}

LINKS = {
    "pcie4": "PCIe 4.0 x16 in practice, a direction; of 31.5 GB/s nominal",
    "pcie5": "PCIe 5.0 x16, pinned copies measured on one H200: 55.4 GB/s a direction",
    "c2c": "NVLink-C2C to the local node, https://github.com/pytorch/pytorch/pull/185417",
}
