# SPDX-License-Identifier: Apache-2.0
"""Ready-made relational layers, compiled."""

from hector.nn.hgt import HGTConv
from hector.nn.rgat import RGATConv
from hector.nn.rgcn import RGCNConv
from hector.nn.sage import HeteroSAGEConv

__all__ = ["HGTConv", "HeteroSAGEConv", "RGATConv", "RGCNConv"]
