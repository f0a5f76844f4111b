# SPDX-License-Identifier: Apache-2.0
"""The Triton emitter: readable kernels of two families, products and traversals."""

from hector.emit.triton.emitter import TritonEmitter, available

__all__ = ["TritonEmitter", "available"]
