# SPDX-License-Identifier: Apache-2.0
"""Activation offloading: what backward needs waits in host memory or on disk, not on the GPU.

Entry point: :class:`Offloader`.
"""

from importlib.metadata import PackageNotFoundError, version

from .offloader import Offloader

try:
    __version__ = version("ssdtrain")
except PackageNotFoundError:  # A source tree on the path.
    __version__ = "0+unknown"

__all__ = ["Offloader", "__version__"]
