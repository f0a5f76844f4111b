# SPDX-License-Identifier: Apache-2.0
"""The plan on paper: bytes, bandwidths, drive lifetimes and growth from formulas; measures nothing.

Entry point: :func:`paper_plan`; on the command line ``ssdtrain plan``.
"""

from .devices import Drive, Gpu, find_drive, find_gpu
from .figures import Figure, Sheet
from .models import ModelShape, find_model
from .paper_plan import paper_plan
from .setup import Setup

__all__ = [
    "Drive",
    "Figure",
    "Gpu",
    "ModelShape",
    "Setup",
    "Sheet",
    "find_drive",
    "find_gpu",
    "find_model",
    "paper_plan",
]
