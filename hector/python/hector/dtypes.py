# SPDX-License-Identifier: Apache-2.0
"""The dtypes that values may have: PyTorch's, and what the IR calls them."""

from __future__ import annotations

import torch

__all__ = ["NAMES", "TORCH"]

NAMES = {torch.float64: "f64", torch.float32: "f32", torch.bfloat16: "bf16", torch.float16: "f16"}
"""The IR's name by dtype."""

TORCH = {name: dtype for dtype, name in NAMES.items()}
"""The dtype by its name."""
