# SPDX-License-Identifier: Apache-2.0
"""The sampling kernels of one GPU on its current stream."""

from __future__ import annotations

import torch

from datapath_core.errors import UnsupportedError
from pytorch_direct import _native
from pytorch_direct.memory.registration import require_cuda
from pytorch_direct.sampling.device import Numbers

__all__ = ["CudaKernels"]

#: Enough threads to hide the latency of random reads over the link.
_BLOCKS_PER_MULTIPROCESSOR = 8


class CudaKernels:
    """Launches on the stream that is current when it is made.

    Raises
    ------
    UnsupportedError
        There is no GPU, or this build has no kernels.
    """

    def __init__(self, device: torch.device) -> None:
        require_cuda()
        if not _native.has_cuda:
            raise UnsupportedError(
                "this build of pytorch_direct has no CUDA kernels, since no nvcc was found when it "
                "was built: put nvcc on PATH or set CUDACXX to its path and install it again; or "
                "sample on the CPU, which gives the same result"
            )
        self.device = device
        self.stream = int(torch.cuda.current_stream(device).cuda_stream)
        self._blocks = _BLOCKS_PER_MULTIPROCESSOR * _native.multiprocessors(device.index)

    def insert(self, table: Numbers, numbers: Numbers) -> None:
        """See `Kernels`."""
        where = (self.device.index, self.stream, self._blocks, 0, 0)
        _native.insert_seeds_cuda(table, numbers, where)

    def hop(
        self,
        take: bool,
        relation: _native.Relation,
        rule: _native.SamplingRule,
        parts: tuple[Numbers, Numbers, Numbers, Numbers],
    ) -> None:
        """See `Kernels`."""
        frontier, _, edges, _ = parts
        count = (edges[4] if take else frontier[4]) + 1
        nbytes = _native.sum_workspace_bytes(self.device.index, count)
        workspace = torch.empty(max(nbytes, 1), dtype=torch.uint8, device=self.device)
        where = (self.device.index, self.stream, self._blocks, workspace.data_ptr(), nbytes)
        _native.hop_cuda(take, relation, rule, *parts, where)
