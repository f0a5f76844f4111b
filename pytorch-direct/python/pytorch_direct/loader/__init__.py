# SPDX-License-Identifier: Apache-2.0
"""Mini-batches of PyG's shape: sampled, fetched and handed over while the model trains."""
