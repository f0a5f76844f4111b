# SPDX-License-Identifier: Apache-2.0
"""Optimisers for tables in host memory: they read and write the rows that a step touched only.

``loss.backward()`` leaves gradients of the rows that gathers read; ``step()`` adds them up by id,
in one order, and changes each row by one owner: with CUDA ids by a kernel that reads the row and
its state over the link once and writes them once, else on the CPU, with the same bits.
"""

from pytorch_direct.optim.adagrad import SparseAdagrad
from pytorch_direct.optim.adam import SparseAdam
from pytorch_direct.optim.rows import RowOptimizer
from pytorch_direct.optim.sgd import SparseSGD

__all__ = ["RowOptimizer", "SparseAdagrad", "SparseAdam", "SparseSGD"]
