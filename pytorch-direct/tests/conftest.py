# SPDX-License-Identifier: Apache-2.0
"""What the tests share: plenty of dtypes, random bytes, a GPU where one is asked for."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

DTYPES = [
    torch.bool,
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.uint16,
    torch.int32,
    torch.uint32,
    torch.int64,
    torch.uint64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.complex32,
    torch.complex64,
    torch.complex128,
    torch.float8_e4m3fn,
    torch.float8_e5m2,
    torch.float8_e4m3fnuz,
    torch.float8_e5m2fnuz,
    torch.float8_e8m0fnu,
]


@pytest.fixture(params=DTYPES, ids=lambda dtype: str(dtype).removeprefix("torch."))
def dtype(request: pytest.FixtureRequest) -> torch.dtype:
    return request.param


@pytest.fixture
def cuda() -> torch.device:
    if not torch.cuda.is_available():
        pytest.skip("no GPU")
    return torch.device("cuda", torch.cuda.current_device())


@pytest.fixture
def graph_of(cuda: torch.device) -> Callable[[Callable[[], object]], torch.cuda.CUDAGraph]:
    """Record what a function launches. A failure inside does not spoil the tests after it."""

    def record(work: Callable[[], object]) -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        try:
            with torch.cuda.graph(graph):
                work()
        except BaseException:
            # The generator believes for ever that it is being recorded.
            fresh = torch.Generator(device=cuda)
            torch.cuda.default_generators[cuda.index].graphsafe_set_state(
                fresh.graphsafe_get_state()
            )
            raise
        return graph

    return record
