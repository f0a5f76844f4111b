# SPDX-License-Identifier: Apache-2.0
"""Ready-made relational layers, compiled."""

from hector.nn.rgcn import RGCNConv

__all__ = ["RGCNConv"]
