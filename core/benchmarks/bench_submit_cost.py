# SPDX-License-Identifier: Apache-2.0
"""The caller's cost of submitting one transfer from Python, on the null device."""

from __future__ import annotations

import numpy as np
import submit_cost
from bench_schema import arguments, write

from datapath_core.testing import null_device


def main() -> None:
    """Measure pinned buffers and numpy arrays as the host's end."""
    options = arguments(__doc__)
    device = null_device()
    memory = device.allocate(4096)
    ends = {
        "pinned buffer to device": (memory, submit_cost.buffer(device)),
        "device to pinned buffer": (submit_cost.buffer(device), memory),
        "numpy array to device": (memory, np.zeros(4096, dtype=np.uint8)),
    }
    rows = submit_cost.rows("null", ends, quick=options.quick)
    write(options.json, "Cost of submitting a transfer from Python", rows)


if __name__ == "__main__":
    main()
