# SPDX-License-Identifier: Apache-2.0
"""GPU-centric data access: tensors in host memory that the GPU reads by itself, and gathers.

Start at :func:`unified`, :class:`UnifiedTensor` and :func:`gather`.
"""

from __future__ import annotations

import sys

if sys.platform != "linux":
    raise ImportError(f"pytorch_direct runs on Linux only; this is {sys.platform}")

import torch

if torch.version.hip is not None:
    raise ImportError(
        f"pytorch_direct needs a torch for CUDA or for the CPU; {torch.__version__} is built for "
        "ROCm, whose devices are called cuda but cannot run its kernels"
    )

from pytorch_direct import _native, optim
from pytorch_direct.calibration import calibrate
from pytorch_direct.graph.graph import Graph
from pytorch_direct.layout.reorder import ReorderedTable, reorder_rows
from pytorch_direct.loader.batch import Batch, HeteroBatch
from pytorch_direct.loader.link_neighbor_loader import LinkNeighborLoader
from pytorch_direct.loader.neighbor_loader import NeighborLoader
from pytorch_direct.ops import library as _library  # noqa: F401  (registers the operator)
from pytorch_direct.ops.bad_ids import check
from pytorch_direct.ops.gather import gather
from pytorch_direct.ops.gather_model import GatherModel, gather_model, set_gather_model
from pytorch_direct.ops.scatter_add import scatter_add_
from pytorch_direct.sampling.negative import NegativeSampling
from pytorch_direct.sampling.neighbor_sampler import NeighborSampler
from pytorch_direct.sampling.output import HeteroSamplerOutput, SamplerOutput
from pytorch_direct.synthetic.rmat import rmat, rmat_features
from pytorch_direct.tensor import sharing as _sharing  # noqa: F401  (teaches pickling to processes)
from pytorch_direct.tensor.unified_tensor import UnifiedTensor, unified

__all__ = [
    "Batch",
    "GatherModel",
    "Graph",
    "HeteroBatch",
    "HeteroSamplerOutput",
    "LinkNeighborLoader",
    "NegativeSampling",
    "NeighborLoader",
    "NeighborSampler",
    "ReorderedTable",
    "SamplerOutput",
    "UnifiedTensor",
    "__version__",
    "calibrate",
    "check",
    "cuda_architectures",
    "gather",
    "gather_model",
    "optim",
    "reorder_rows",
    "rmat",
    "rmat_features",
    "scatter_add_",
    "set_gather_model",
    "unified",
]

__version__ = "0.1.0"

cuda_architectures: tuple[str, ...] = tuple(_native.cuda_architectures.split())
"""GPU architectures that this build has kernels for, as CMake writes them: ``("90",)`` are kernels
for compute capability 9.0, and by just-in-time compilation for newer ones. Empty: a build without
nvcc, which gathers on the CPU only."""
