# SPDX-License-Identifier: Apache-2.0
"""The PyTorch emitter: readable Python over a handful of kernels; CPU, and reference elsewhere."""

from hector.emit.torch.emitter import TorchEmitter

__all__ = ["TorchEmitter"]
