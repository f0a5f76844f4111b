# SPDX-License-Identifier: Apache-2.0
"""Sampled mini-batches on the CPU: see ``mini_batches.py``."""

import mini_batches
import torch

if __name__ == "__main__":
    mini_batches.main(torch.device("cpu"), nodes=4_000, edges=30_000)
