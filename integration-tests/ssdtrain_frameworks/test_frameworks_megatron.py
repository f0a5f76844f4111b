# SPDX-License-Identifier: Apache-2.0
"""Megatron-core's GPT with its own layers: alone, tensor parallel, in a pipeline."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from frameworks_processes import Outcome, assert_trained_alike, two_processes
from frameworks_support import assert_equal
from packages import needed

pytestmark = pytest.mark.filterwarnings("ignore")

with warnings.catch_warnings(action="ignore"):
    needed("megatron.core")

import frameworks_cases_megatron as cases  # noqa: E402

CASES = ["tensor_parallel_layers", "pipeline"]


@pytest.fixture
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(torch.cuda, "current_device", torch.cuda.current_device)
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/meet", rank=0, world_size=1)
    yield
    cases.parallel_state.destroy_model_parallel()
    dist.destroy_process_group()


def _compare(device: str, offloader: Any, **options: Any) -> None:
    cases._start(device)
    plain = cases.train(device, None, **options)
    cases._start(device)
    moved = cases.train(device, offloader, **options)
    assert_equal(moved, plain)
    assert offloader.report()["bytes"]["disk"] > 0
    assert offloader.report()["faults"] == []


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("norm", ["LayerNorm", "RMSNorm"])
def test_one_process(device: str, norm: str, alone: None, offloader: Any) -> None:
    _compare(device, offloader, normalization=norm)


@pytest.mark.gpu
@pytest.mark.parametrize(
    "options",
    [
        {"recompute_granularity": "selective", "recompute_modules": ["core_attn"]},
        {
            "recompute_granularity": "full",
            "recompute_method": "uniform",
            "recompute_num_layers": 1,
        },
    ],
    ids=["selective", "full"],
)
def test_its_own_recomputation(options: dict[str, Any], alone: None, offloader: Any) -> None:
    """Its checkpointing keeps CUDA's random states, hence only there."""
    _compare("cuda", offloader, **options)


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Outcome]]:
    return two_processes([f"megatron.{case}" for case in CASES], tmp_path_factory.mktemp("two"))


@pytest.mark.parametrize("case", CASES)
def test_two_processes(case: str, outcomes: dict[str, list[Outcome]]) -> None:
    assert_trained_alike(outcomes[f"megatron.{case}"])
