# SPDX-License-Identifier: Apache-2.0
"""Sampled mini-batches on a GPU: see ``mini_batches.py``."""

import mini_batches
import torch

if __name__ == "__main__":
    mini_batches.main(torch.device("cuda"), nodes=40_000, edges=200_000)
