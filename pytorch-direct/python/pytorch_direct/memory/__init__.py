# SPDX-License-Identifier: Apache-2.0
"""Host memory that is registered with the GPU; how tensors look on top of it is `tensor`'s affair."""
