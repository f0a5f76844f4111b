# SPDX-License-Identifier: Apache-2.0
"""What runs in two processes on the CPU, each process with a GPU of its own, through NCCL."""

from __future__ import annotations

import pytest
from frameworks_processes import Get, assert_trained_alike, run_when_asked
from packages import needed
from test_frameworks_planned import CASES as PLANNED
from test_frameworks_processes import DATA, PIPELINE, SHARDED, TENSOR

pytestmark = [pytest.mark.gpu, pytest.mark.multigpu, pytest.mark.timeout(300)]

DEEPSPEED = ["deepspeed.zero1_bf16", "deepspeed.zero2", "deepspeed.zero3"]
MEGATRON = ["megatron.tensor_parallel_layers", "megatron.pipeline"]


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> Get:
    return run_when_asked(lambda: tmp_path_factory.mktemp("processes"), "cuda")


@pytest.mark.parametrize("case", DATA)
def test_data_parallel(case: str, outcomes: Get) -> None:
    assert_trained_alike(outcomes(DATA, case))


@pytest.mark.parametrize("case", SHARDED)
def test_sharded(case: str, outcomes: Get) -> None:
    assert_trained_alike(outcomes(SHARDED, case))


@pytest.mark.parametrize("case", TENSOR)
def test_tensor_parallel(case: str, outcomes: Get) -> None:
    assert_trained_alike(outcomes(TENSOR, case))


@pytest.mark.parametrize("case", PIPELINE)
def test_pipeline_parallel(case: str, outcomes: Get) -> None:
    assert_trained_alike(outcomes(PIPELINE, case))


@pytest.mark.parametrize("case", PLANNED)
def test_planned(case: str, outcomes: Get) -> None:
    found = outcomes(PLANNED, case)
    assert_trained_alike(found, moves=False)
    assert all(outcome.report["steering"]["mode"] == "planned" for outcome in found)


@pytest.mark.parametrize("case", DEEPSPEED)
def test_deepspeed(case: str, outcomes: Get) -> None:
    needed("deepspeed")
    assert_trained_alike(outcomes(DEEPSPEED, case))


@pytest.mark.parametrize("case", MEGATRON)
def test_megatron(case: str, outcomes: Get) -> None:
    needed("megatron.core")
    assert_trained_alike(outcomes(MEGATRON, case))
