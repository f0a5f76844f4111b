# SPDX-License-Identifier: Apache-2.0
"""Activation offloading: what backward needs waits in host memory or on disk, not on the GPU.

Entry point: :class:`Offloader`. What it decides is a :class:`Plan`.
"""

from importlib.metadata import PackageNotFoundError, version

from .offloader import Offloader
from .plan import GroupPlan, Plan, Prediction, Where

try:
    __version__ = version("ssdtrain")
except PackageNotFoundError:  # A source tree on the path.
    __version__ = "0+unknown"

__all__ = ["GroupPlan", "Offloader", "Plan", "Prediction", "Where", "__version__"]
