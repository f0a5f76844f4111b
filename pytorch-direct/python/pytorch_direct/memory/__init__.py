# SPDX-License-Identifier: Apache-2.0
"""Host memory that is registered with the GPU; the tensors over it are in `tensor`."""
