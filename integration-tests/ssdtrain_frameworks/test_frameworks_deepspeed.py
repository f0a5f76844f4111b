# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed's ZeRO stages over two processes on the CPU."""

from __future__ import annotations

import pytest
from frameworks_processes import Outcome, assert_trained_alike, two_processes
from packages import needed

needed("deepspeed")

CASES = ["zero1_bf16", "zero2", "zero2_wrapped_and_checkpointed", "zero3", "zero3_wrapped"]


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Outcome]]:
    cases = [f"deepspeed.{case}" for case in CASES]
    return two_processes(cases, tmp_path_factory.mktemp("deepspeed"))


@pytest.mark.parametrize("case", CASES)
def test_zero(case: str, outcomes: dict[str, list[Outcome]]) -> None:
    assert_trained_alike(outcomes[f"deepspeed.{case}"])
