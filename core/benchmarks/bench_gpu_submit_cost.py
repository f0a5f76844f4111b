# SPDX-License-Identifier: Apache-2.0
"""The caller's cost of submitting one transfer from Python, on a GPU."""

from __future__ import annotations

import submit_cost
import torch
from bench_schema import arguments, write


def main() -> None:
    """Measure pinned buffers against a tensor on the GPU, both ways."""
    options = arguments(__doc__)
    tensor = torch.zeros(4096, dtype=torch.uint8, device="cuda:0")
    ends = {
        "pinned buffer to tensor": (tensor, submit_cost.buffer("cuda:0")),
        "tensor to pinned buffer": (submit_cost.buffer("cuda:0"), tensor),
    }
    rows = submit_cost.rows("cuda:0", ends, quick=options.quick)
    write(options.json, "Cost of submitting a transfer from Python, GPU", rows)


if __name__ == "__main__":
    main()
