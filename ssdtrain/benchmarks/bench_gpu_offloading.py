# SPDX-License-Identifier: Apache-2.0
"""GPT blocks in bf16, 16 x 1024 tokens: plans beside keep, recompute and others' offloading."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from bench_schema import Row, arguments, write
from strategies import Measured, Strategy, checkpointed, measure, offloader, peers, trl
from torch import nn
from transformer_blocks import make_blocks

TOKENS = 1024
HOST = "48GiB"


@dataclass
class Target:
    """A bound on the slow-down, the peak wanted under it, and how the table words it."""

    slowdown: float
    text: str
    is_met: Callable[[Measured, Measured, Measured], bool]  # ours, keep, full recompute


def cut(fraction: float, slowdown: float) -> Target:
    """Activation peak lower by a fraction, at no more than a slow-down."""

    def is_met(ours: Measured, keep: Measured, recompute: Measured) -> bool:
        return ours.peak <= (1 - fraction) * keep.peak and ours.ms <= (1 + slowdown) * keep.ms

    return Target(slowdown, f"peak -{fraction:.0%} at <= {slowdown:.0%} step time", is_met)


def as_recompute(slowdown: float) -> Target:
    """No more memory than full recomputation, at no more than a slow-down."""

    def is_met(ours: Measured, keep: Measured, recompute: Measured) -> bool:
        return ours.peak <= recompute.peak and ours.ms <= (1 + slowdown) * keep.ms

    text = f"no more memory than full recompute at <= {slowdown:.0%} step time"
    return Target(slowdown, text, is_met)


MODELS = {
    (12288, 3): [cut(0.47, 0.02), cut(0.65, 0.05)],
    (8192, 4): [cut(0.47, 0.03), as_recompute(0.06)],
}


class Workload:
    """A stack of blocks and its input; ``forward(recompute)`` gives the loss."""

    def __init__(self, hidden: int, layers: int, batch: int, tokens: int) -> None:
        torch.manual_seed(0)
        self.model = make_blocks(hidden, layers, "cuda", torch.bfloat16)
        self.name = f"hidden {hidden}, {layers} layers"
        self.hidden, self.tokens = hidden, tokens
        self.resize(batch)

    def resize(self, batch: int) -> None:
        """Another batch."""
        self.batch = batch
        shape = (batch, self.tokens, self.hidden)
        self.x = torch.randn(shape, device="cuda", dtype=torch.bfloat16)

    def forward(self, recompute: bool) -> torch.Tensor:
        """The loss of the present batch."""
        x = self.x
        for block in self.model:
            x = checkpointed(block, x, recompute)
        return x.float().pow(2).mean()

    def run(self, strategy: Strategy) -> Measured:
        """Measure a strategy and say so."""
        found = measure(strategy, self.model, self.forward)
        print(
            f"{self.name}, batch {self.batch}, {found.name}: {found.ms:.1f} ms,"
            f" peak {found.gib:.2f} GiB, loss {found.loss:.6g}",
            flush=True,
        )
        return found


def row(
    work: str, ours: Measured, keep: Measured, target: str = "", met: bool | None = None
) -> Row:
    """One strategy beside keeping: the ratio is that of step times."""
    return Row(
        work=f"{work}: {ours.name}",
        ours=ours.ms,
        unit="ms",
        peer=keep.ms,
        peer_name="keep",
        ratio=ours.ms / keep.ms,
        target=target,
        met=met,
        note=f"peak {ours.gib:.2f} GiB, {1 - ours.peak / keep.peak:+.1%} less than {keep.gib:.2f}"
        + prediction(ours),
    )


def prediction(ours: Measured) -> str:
    """What the planner expected, for the note."""
    errors = prediction_errors(ours)
    if errors is None:
        return ""
    return f"; predicted {errors[0]:+.1%} in time, {errors[1]:+.1%} in peak"


def prediction_errors(ours: Measured) -> tuple[float, float] | None:
    """By which fractions the measured step time and peak exceed the plan's."""
    steering: Any = ours.report.get("steering") or {}
    expected = steering.get("prediction")
    if not expected:
        return None
    peak = ours.peak + ours.resident
    return ours.ms / 1e3 / expected["seconds"] - 1, peak / expected["peak_bytes"] - 1


def predictions(work: str, planned: list[Measured]) -> Row:
    """The worst prediction of a model's plans."""
    errors = [found for ours in planned if (found := prediction_errors(ours)) is not None]
    time = max((abs(error[0]) for error in errors), default=1.0)
    peak = max((abs(error[1]) for error in errors), default=1.0)
    return Row(
        work=f"{work}: worst prediction of {len(errors)} plans, step time",
        ours=100 * time,
        unit="%",
        target="step time within 3 %, peak within 5 %",
        met=time <= 0.03 and peak <= 0.05,
        note=f"peak: {peak:.1%}",
    )


def at_equal_batch(work: Workload, targets: list[Target], extra: dict[str, Any]) -> list[Row]:
    """All strategies at batch 16."""
    found = {strategy.name: work.run(strategy) for strategy in peers()}
    if (other := trl(work.model)) is not None:
        found[other.name] = work.run(other)
    keep, recompute = found["keep"], found["full recompute"]
    rows = [row(work.name, measured, keep) for measured in found.values()]
    planned = []
    for target in targets:
        name = f"planned, max_slowdown={target.slowdown}"
        strategy = offloader(name, work.model, host=HOST, max_slowdown=target.slowdown)
        ours = work.run(strategy)
        planned.append(ours)
        met = target.is_met(ours, keep, recompute)
        rows.append(row(work.name, ours, keep, target.text, met))
    name = f"planned, max_memory of full recompute ({recompute.gib:.2f} GiB)"
    resident = torch.cuda.memory_allocated() + _gradient_bytes(work.model)
    ours = work.run(offloader(name, work.model, host=HOST, max_memory=recompute.peak + resident))
    planned.append(ours)
    rows.append(row(work.name, ours, keep))
    rows.append(predictions(work.name, planned))
    slow = found["save_on_cpu"]
    rows.append(
        Row(
            work=f"{work.name}: against save_on_cpu(pin_memory=True)",
            ours=ours.ms,
            unit="ms",
            peer=slow.ms,
            peer_name="save_on_cpu",
            ratio=slow.ms / ours.ms,
            target=">= 2x faster, peak no higher than full recompute's",
            met=slow.ms >= 2 * ours.ms and ours.peak <= recompute.peak,
            note=f"peaks: ours {ours.gib:.2f}, save_on_cpu {slow.gib:.2f},"
            f" full recompute {recompute.gib:.2f} GiB",
        )
    )
    for measured in [*found.values(), *planned]:
        if measured.loss != keep.loss:
            raise SystemExit(f"{measured.name}: loss {measured.loss!r}, kept {keep.loss!r}")
        extra[f"{work.name}: {measured.name}"] = {
            "ms": measured.ms,
            "peak": measured.peak,
            "report": measured.report,
        }
    return rows


def at_equal_memory(work: Workload, least: float) -> Row:
    """Each strategy at its best batch within the memory that keeping needs at batch 16."""
    budget = work.run(Strategy("keep")).peak
    base = torch.cuda.memory_allocated() + _gradient_bytes(work.model)
    best: dict[str, tuple[float, int]] = {}
    for batch in (24, 32, 48):
        work.resize(batch)
        strategies = [Strategy("full recompute", recompute=True, settle=1, steps=2)]
        if batch <= 32:
            strategies.append(
                offloader(
                    "planned",
                    work.model,
                    settle=4,
                    steps=3,
                    host="80GiB",
                    max_memory=budget + base,
                )
            )
        for strategy in strategies:
            found = work.run(strategy)
            rate = batch * work.tokens / found.ms * 1e3
            if found.peak <= 1.01 * budget and rate > best.get(found.name, (0.0, 0))[0]:
                best[found.name] = (rate, batch)
    ours, peer = best["planned"], best["full recompute"]
    return Row(
        work=f"{work.name}: each at its best batch in {budget / 2**30:.1f} GiB",
        ours=ours[0],
        unit="tokens/s",
        peer=peer[0],
        peer_name="full recompute",
        ratio=ours[0] / peer[0],
        target=f">= {least:.0%} above full recompute",
        met=ours[0] >= (1 + least) * peer[0],
        note=f"batches {ours[1]} and {peer[1]}",
    )


def over_disk(work: Workload, folder: str) -> Row:
    """The disk alone: it must neither slow the step nor raise the peak."""
    keep = work.run(Strategy("keep"))
    with tempfile.TemporaryDirectory(dir=folder) as spill:
        ours = work.run(
            offloader(
                f"disk tier alone ({folder})",
                work.model,
                spill=spill,
                host=0,
                ssd="32GiB",
                max_slowdown=0.01,
            )
        )
    met = ours.ms <= 1.01 * keep.ms and ours.peak <= keep.peak
    return row(work.name, ours, keep, "slow-down <= 1 %, peak no higher than keep's", met)


def _gradient_bytes(model: nn.Module) -> int:
    missing = [p for p in model.parameters() if p.grad is None]
    return sum(p.numel() * p.element_size() for p in missing)


def main(options: argparse.Namespace) -> None:
    """Run it."""
    rows, extra = [], {}
    for (hidden, layers), targets in MODELS.items():
        if options.quick:
            hidden, layers = hidden // 8, 2
        work = Workload(hidden, layers, 4 if options.quick else 16, TOKENS)
        rows += at_equal_batch(work, targets, extra)
        del work
    work = Workload(1024, 2, 4, TOKENS) if options.quick else Workload(8192, 4, 16, TOKENS)
    for folder in ("/tmp", "/dev/shm"):
        rows.append(over_disk(work, folder))
    del work
    if not options.quick:
        for (hidden, layers), least in (((12288, 3), 0.18), ((8192, 4), 0.12)):
            rows.append(at_equal_memory(Workload(hidden, layers, 16, TOKENS), least))
    write(options.json, "Activation offloading on a GPU", rows, extra=extra)


if __name__ == "__main__":
    main(arguments(__doc__))
