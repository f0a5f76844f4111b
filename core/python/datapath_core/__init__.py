# SPDX-License-Identifier: Apache-2.0
"""Pinned host memory, a CUDA stream scheduler and disk I/O: the data path under the other packages.

Importing it touches no GPU and imports neither torch nor numpy.
"""

from __future__ import annotations

from datapath_core import _platform

_platform.check()

from datapath_core import io, settings  # noqa: E402
from datapath_core._core import __version__, parse_bytes  # noqa: E402
from datapath_core._describe import describe  # noqa: E402
from datapath_core.errors import (  # noqa: E402
    BudgetError,
    CudaError,
    Error,
    IoError,
    OutOfSpaceError,
    UnsupportedError,
)
from datapath_core.memory import Buffer, DeviceView, PinnedPool, register  # noqa: E402
from datapath_core.streams import Scheduler, Ticket  # noqa: E402

__all__ = [
    "BudgetError",
    "Buffer",
    "CudaError",
    "DeviceView",
    "Error",
    "IoError",
    "OutOfSpaceError",
    "PinnedPool",
    "Scheduler",
    "Ticket",
    "UnsupportedError",
    "__version__",
    "describe",
    "io",
    "parse_bytes",
    "register",
    "settings",
]
