# SPDX-License-Identifier: Apache-2.0
"""PyTorch's kinds of parallelism over two processes: data, sharded, tensor, pipeline."""

from __future__ import annotations

import pytest
import torch
from frameworks_processes import Get, assert_trained_alike, run_when_asked

DATA = ["ddp", "ddp_wrapped", "ddp_checkpointed", "ddp_unused_parameters", "ddp_accumulation"]
SHARDED = [
    "fsdp2", "fsdp2_kept_whole", "fsdp2_mixed_precision", "fsdp2_checkpointed",
    "fsdp2_wrapped_blocks", "fsdp1",
]  # fmt: skip
TENSOR = ["tensor_parallel", "sequence_parallel", "dtensors_throughout"]
PIPELINE = [
    "gpipe", "one_forward_one_backward", "one_forward_one_backward_by_stage", "interleaved",
]  # fmt: skip


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> Get:
    return run_when_asked(lambda: tmp_path_factory.mktemp("processes"))


@pytest.mark.parametrize("case", DATA)
def test_data_parallel(case: str, outcomes: Get) -> None:
    first, second = outcomes(DATA, case)
    assert_trained_alike([first, second])
    gradients = [name for name in first.moved if name != "losses"]
    # They really trained together: data of their own, averaged gradients.
    assert all(torch.equal(first.moved[name], second.moved[name]) for name in gradients)


@pytest.mark.parametrize("case", SHARDED)
def test_sharded(case: str, outcomes: Get) -> None:
    found = outcomes(SHARDED, case)
    assert_trained_alike(found)
    for outcome in found:
        # Gathered parameters are FSDP's to free and to gather again.
        assert outcome.report["kept_by_reason"].keys() == {"parameter"}


@pytest.mark.parametrize("case", TENSOR)
def test_tensor_parallel(case: str, outcomes: Get) -> None:
    assert_trained_alike(outcomes(TENSOR, case))


@pytest.mark.parametrize("case", TENSOR)
def test_local_parts_of_dtensors_go(case: str, outcomes: Get) -> None:
    for outcome in outcomes(TENSOR, case):
        assert "subclass DTensor" not in outcome.report["kept_by_reason"]


@pytest.mark.parametrize("case", TENSOR)
def test_sharded_weights_are_not_stored(case: str, outcomes: Get) -> None:
    for outcome in outcomes(TENSOR, case):
        assert "alive elsewhere" not in outcome.report["kept_by_reason"]


@pytest.mark.parametrize("case", PIPELINE)
def test_pipeline_parallel(case: str, outcomes: Get) -> None:
    assert_trained_alike(outcomes(PIPELINE, case))
