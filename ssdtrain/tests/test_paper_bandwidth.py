# SPDX-License-Identifier: Apache-2.0
"""Bandwidths, drive lifetimes, memory and pipelines on paper against counts made by hand."""

from __future__ import annotations

import dataclasses

import pytest

from ssdtrain.paper import Gpu, Setup, Sheet, find_drive, find_gpu, find_model, paper_plan


def at(flops: float) -> Gpu:
    """A GPU that achieves ``flops`` with ``Setup(achieved=1)``."""
    return dataclasses.replace(find_gpu("h200"), flops=flops)


def without_attention(hidden: int, teraflops: float) -> Sheet:
    """One GPT layer whose sequence is too short to count, with dropout: 34 h and 24 h^2."""
    model = find_model("gpt", hidden=hidden, layers=1)
    setup = Setup(achieved=1, sequence=1, dropout=True)
    return paper_plan(model, at(teraflops * 1e12), find_drive("d7-ps1010"), setup)


@pytest.mark.parametrize(
    ("teraflops", "hidden", "expected"),
    [
        (120, 4096, (42, 28, 2.4)),
        (120, 8192, (21, 14, 1.2)),
        (120, 12288, (14, 9.2, 0.8)),
        (120, 16384, (10, 6.9, 0.6)),
        (160, 5120, (44, 30, 2.6)),
        (200, 12288, (23, 15, 1.4)),
        (400, 4096, (138, 92, 8.1)),
        (400, 8192, (69, 46, 4.1)),
        (400, 12288, (46, 31, 2.7)),
        (500, 16384, (43, 29, 2.5)),
    ],
)
def test_write_bandwidth_by_width(
    teraflops: float, hidden: int, expected: tuple[float, float, float]
) -> None:
    sheet = without_attention(hidden, teraflops)
    found = [sheet[name] / 1e9 for name in ("write_forward", "write_half_step", "write_boundary")]
    # The table has two digits; statistics of the softmax are 0.1 %.
    assert found == pytest.approx(list(expected), rel=0.05)
    assert found[0] == pytest.approx(34 / 24 * teraflops * 1e3 / hidden, rel=2e-3)
    assert found[1] == pytest.approx(found[0] * 2 / 3)


@pytest.mark.parametrize(
    ("name", "teraflops", "sequence", "forward", "boundary"),
    [
        ("llama-3-8b", 400, 4096, 119, 7.0),
        ("llama-3-8b", 400, 8192, 111, 6.5),
        ("llama-3-8b", 400, 32768, 79, 4.7),
        ("llama-3-8b", 400, 131072, 37, 2.2),
        ("llama-3-70b", 400, 4096, 62, 3.7),
        ("llama-3-70b", 400, 8192, 60, 3.6),
        ("llama-3-70b", 400, 32768, 49, 2.9),
        ("llama-3-70b", 400, 131072, 29, 1.7),
        ("qwen3-8b", 400, 8192, 112, 7.2),
        ("qwen3-32b", 400, 8192, 84, 3.7),
        ("qwen3-30b-a3b", 250, 8192, 100, 5.7),
    ],
)
def test_write_bandwidth_of_models_at_long_sequences(
    name: str, teraflops: float, sequence: int, forward: float, boundary: float
) -> None:
    sheet = paper_plan(
        find_model(name), at(teraflops * 1e12), None, Setup(achieved=1, sequence=sequence)
    )
    assert sheet["write_forward"] / 1e9 == pytest.approx(forward, rel=0.02)
    assert sheet["write_boundary"] / 1e9 == pytest.approx(boundary, rel=0.03)


@pytest.mark.parametrize(
    ("hidden", "layers", "milliseconds", "gib", "gb_per_second"),
    [(8192, 4, 509.1, 16.0, 101), (12288, 3, 824.8, 18.0, 70), (4096, 4, 133.8, 8.0, None)],
)
def test_measured_blocks(
    hidden: int, layers: int, milliseconds: float, gib: float, gb_per_second: float | None
) -> None:
    """GPT blocks, 16 x 1024 tokens, on one H200: measured bytes, and rate for the forward third."""
    model = find_model("gpt", hidden=hidden, layers=layers)
    trial = paper_plan(model, at(1e12), None, Setup(achieved=1, sequence=1024, micro_batch=16))
    assert trial["micro_batch_bytes"] / 2**30 == pytest.approx(gib, rel=2e-3)
    achieved = trial["forward_seconds"] * 3 / (milliseconds / 1e3) * 1e12
    sheet = paper_plan(model, at(achieved), None, Setup(achieved=1, sequence=1024, micro_batch=16))
    assert sheet["forward_seconds"] == pytest.approx(milliseconds / 3e3)
    if gb_per_second is not None:
        assert sheet["write_forward"] / 1e9 == pytest.approx(gb_per_second, rel=0.01)


def test_shares_that_can_be_hidden() -> None:
    sheet = without_attention(8192, 400)
    assert sheet["hidden_host"] == pytest.approx(55e9 / sheet["write_forward"])
    # One drive of 10 GB/s takes 14 % of 69 GB/s, and 22 % of 46.
    assert sheet["hidden_disk"] == pytest.approx(0.14, abs=0.01)
    assert sheet["hidden_disk_half_step"] == pytest.approx(0.22, abs=0.01)
    assert sheet["hidden_disk_boundary"] == 1
    lean = sheet["lean_layer_bytes"] / sheet["layer_bytes"]
    assert sheet["hidden_host_lean"] == min(1, sheet["hidden_host"] / lean)


def test_drives_share_the_link() -> None:
    model, drive = find_model("llama-3-8b"), find_drive("d7-ps1010")
    one = paper_plan(model, find_gpu("h200"), drive, Setup())
    many = paper_plan(model, find_gpu("h200"), drive, Setup(drives=20))
    assert one["disk_write"] == 10e9
    assert many["disk_write"] == many["link"] == 55e9


@pytest.mark.parametrize(
    ("name", "days"),
    [
        ("980-pro-1tb", (4, 2, 1.4)),
        ("d7-ps1010", (98, 49, 32)),
        ("d7-ps1030", (246, 123, 81)),
        ("d7-p5810", (512, 256, 169)),
        ("p5800x", (2048, 1024, 676)),
    ],
)
def test_lifetimes_at_given_rates(name: str, days: tuple[float, float, float]) -> None:
    """Days at 5 GB/s a third of the day, 10 GB/s so, and 10 GB/s half of it."""
    drive = find_drive(name, write=10e9, read=20e9)
    for rate, duty, expected in zip((5e9, 10e9, 10e9), (0.33, 0.33, 0.5), days, strict=True):
        # Forward is a third of the step: a drive that is written in it alone has that duty.
        slow = dataclasses.replace(drive, write=rate)
        sheet = paper_plan(
            find_model("gpt", hidden=8192, layers=100, vocab=1), at(400e12), slow,
            Setup(achieved=1, sequence=1, duty=duty),
        )  # fmt: skip
        assert sheet["written_per_day"] == pytest.approx(rate / 3 * duty * 86400, rel=1e-3)
        assert sheet["lifetime_days"] / 3 == pytest.approx(expected, rel=0.06)


def test_retention_is_relaxed_only_when_asked() -> None:
    model, gpu, drive = find_model("llama-3-8b"), find_gpu("h200"), find_drive("980-pro-1tb")
    plain = paper_plan(model, gpu, drive)
    relaxed = paper_plan(model, gpu, drive, Setup(retention_relaxation=86))
    worn = paper_plan(model, gpu, drive, Setup(write_amplification=2.5))
    assert plain["retention_relaxation"] == 1
    assert relaxed["lifetime_days"] == pytest.approx(86 * plain["lifetime_days"])
    assert worn["lifetime_days"] == pytest.approx(plain["lifetime_days"] / 2.5)


@pytest.mark.parametrize(("p", "m", "v"), [(1, 8, 1), (4, 8, 1), (8, 16, 1), (4, 8, 2)])
def test_pipeline_bubble_and_waiting_micro_batches(p: int, m: int, v: int) -> None:
    setup = Setup(pipeline_parallel=p, micro_batches=m, virtual_stages=v)
    sheet = paper_plan(find_model("llama-3-70b"), find_gpu("h200"), None, setup)
    if v == 1:
        assert sheet["bubble"] == pytest.approx((p - 1) / (m + p - 1))
        assert sheet["in_flight"] == min(m, p)
    else:
        assert sheet["bubble"] < (p - 1) / (m + p - 1)
        assert sheet["in_flight"] == p * (1 + (p - 1) / (p * v))
    work = 3 * (sheet["forward_seconds"] + sheet["head_seconds"]) * m
    assert sheet["step_seconds"] * (1 - sheet["bubble"]) == pytest.approx(work)


def test_all_micro_batches_wait_under_gpipe() -> None:
    setup = Setup(pipeline_parallel=4, micro_batches=16, schedule="gpipe")
    sheet = paper_plan(find_model("llama-3-70b"), find_gpu("h200"), None, setup)
    assert sheet["in_flight"] == 16


def test_freed_memory_makes_micro_batches_grow() -> None:
    setup = Setup(sequence=8192, state_shards=64)
    sheet = paper_plan(find_model("llama-3-8b"), find_gpu("h100"), find_drive("p5800x"), setup)
    fits = {key: sheet[f"{key}_fits"] for key in ("keep", "disk", "host", "host_lean", "recompute")}
    assert fits["keep"] < fits["host"] < fits["host_lean"]
    assert fits["keep"] <= fits["disk"]
    assert fits["keep"] == sheet["room"] // sheet["keep_bytes"]
    assert sheet["keep_rate"] > sheet["recompute_rate"]
    # The update is paid once for more tokens.
    assert sheet["host_best_rate"] > sheet["host_rate"]


def test_freed_memory_shortens_the_pipeline() -> None:
    setup = Setup(
        sequence=8192, tensor_parallel=8, sequence_parallel=True, pipeline_parallel=8,
        micro_batches=16, state_shards=4,
    )  # fmt: skip
    sheet = paper_plan(find_model("llama-3-70b"), find_gpu("h100"), None, setup)
    assert sheet["host_lean_p"] <= sheet["keep_p"] <= 8
    assert sheet["keep_m"] == 16 * sheet["keep_p"] / 8
    p, m = sheet["host_lean_p"], sheet["host_lean_m"]
    assert sheet["host_lean_bubble"] == pytest.approx((p - 1) / (m + p - 1))
    gain = (1 - sheet["host_lean_bubble"]) / (1 - sheet["bubble"])
    assert sheet["host_lean_bubble_gain"] == pytest.approx(gain)


def test_layers_alone_have_no_head() -> None:
    model = find_model("gpt", hidden=8192, layers=4)
    whole = paper_plan(model, find_gpu("h200"))
    alone = paper_plan(model, find_gpu("h200"), None, Setup(head=False))
    assert alone["activation_bytes"] == alone["micro_batch_bytes"] == whole["micro_batch_bytes"]
    head = whole["head_bytes"] * 4096
    assert whole["activation_bytes"] == whole["micro_batch_bytes"] + head
    assert whole["keep_bytes"] == alone["keep_bytes"] + head
    assert alone["gpu_parameters"] == 4 * alone["layer_parameters"]
    assert whole["gpu_parameters"] == alone["gpu_parameters"] + 2 * 50257 * 8192


def test_what_fits_nowhere_is_not_promised() -> None:
    sheet = paper_plan(find_model("llama-3-70b"), find_gpu("rtx-4090"), None, Setup())
    assert sheet["room"] < 0
    assert sheet["host_fits"] == 0
    assert "host_p" not in sheet


@pytest.mark.parametrize(
    ("setup", "text"),
    [
        (Setup(tensor_parallel=3), "heads do not divide"),
        (Setup(pipeline_parallel=64), "fewer than the pipeline"),
        (Setup(moe_buffers=True), "no experts"),
    ],
)
def test_parallelism_that_the_model_does_not_allow(setup: Setup, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        paper_plan(find_model("llama-3-8b"), find_gpu("h200"), None, setup)


@pytest.mark.parametrize(
    "wrong",
    [
        {"micro_batch": 0},
        {"achieved": 1.5},
        {"duty": 0.0},
        {"write_amplification": 0.5},
        {"schedule": "zero"},
        {"virtual_stages": 2},
        {"usable": float("nan")},
    ],
)
def test_setups_out_of_their_domain(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Setup(**wrong)  # type: ignore[arg-type]
