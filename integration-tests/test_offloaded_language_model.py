# SPDX-License-Identifier: Apache-2.0
"""The example's language model loses nothing by offloading: same bits, less memory."""

from __future__ import annotations

from pathlib import Path

import language_model
import pytest
import torch
from packages import needed
from stdlib_corpus import Corpus

needed("ssdtrain")

# Deep enough for the activations of a step to outweigh the 32 MiB that may be in flight.
SETTINGS = language_model.Settings(
    layers=12, width=64, heads=2, length=128, batch_size=8, steps=3, min_bytes=4096
)


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_same_losses_with_a_lower_peak(tmp_path: Path, device: str) -> None:
    corpus = Corpus(max_bytes=200_000)
    plain_model, plain = language_model.train(corpus, SETTINGS, device=device)
    moved_model, moved = language_model.train(
        corpus, SETTINGS, mode="datapath", device=device, spill=tmp_path
    )
    assert moved.losses == plain.losses
    assert moved.held_out_loss == plain.held_out_loss
    for ours, theirs in zip(moved_model.parameters(), plain_model.parameters(), strict=True):
        assert torch.equal(ours, theirs)
    moved_bytes = moved.offload["bytes"]
    if device == "cpu":
        assert moved_bytes["host"] == 0
    assert moved_bytes["host"] + moved_bytes["disk"] > 0.5 * plain.peak_bytes
    assert moved.peak_bytes < plain.peak_bytes
    assert list(tmp_path.iterdir()) == []
