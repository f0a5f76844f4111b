# SPDX-License-Identifier: Apache-2.0
"""PyG's store interfaces over unified tensors; importing this package needs torch-geometric."""

from pytorch_direct.stores.feature_store import UnifiedFeatureStore
from pytorch_direct.stores.graph_store import HostGraphStore

__all__ = ["HostGraphStore", "UnifiedFeatureStore"]
