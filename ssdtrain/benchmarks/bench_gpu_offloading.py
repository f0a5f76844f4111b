# SPDX-License-Identifier: Apache-2.0
"""GPT blocks in bf16, 16 x 1024 tokens: plans beside keep, recompute and others' offloading."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bench_schema import Row, arguments
from beside_keep import against, mean, offloading, prediction, prediction_errors
from sections import Results, chosen
from stacks import Stack
from strategies import DEVICE, Measured, Strategy, offloader, peers, trl


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


@dataclass
class Sizes:
    """A model of the tables; `least` is by how much a plan should beat recomputation."""

    hidden: int
    layers: int
    batch: int
    tokens: int
    targets: list[Target]
    least: float

    def __str__(self) -> str:
        return f"hidden {self.hidden}"

    def stack(self) -> Stack:
        """It, on the device."""
        return Stack(self.hidden, self.layers, self.batch, self.tokens)


LARGE = Sizes(12288, 3, 16, 1024, [cut(0.47, 0.02), cut(0.65, 0.05)], 0.18)
SMALL = Sizes(8192, 4, 16, 1024, [cut(0.47, 0.03), as_recompute(0.06)], 0.12)


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
        note=against(ours, keep) + prediction(ours),
    )


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
        note=f"peak: {peak:.1%}; both as predicted before the timed steps",
    )


def at_equal_batch(results: Results, sizes: Sizes) -> None:
    """All strategies at the same batch; keep before and after the others, and its mean."""
    work = sizes.stack()
    found = {strategy.name: work.run(strategy) for strategy in peers()}
    if (other := trl(work.model)) is not None:
        found[other.name] = work.run(other)
    recompute = found["full recompute"]
    planned = []
    for target in sizes.targets:
        name = f"planned, max_slowdown={target.slowdown}"
        arguments = offloading(max_slowdown=target.slowdown)
        planned.append(work.run(offloader(name, work.model, **arguments)))
    name = f"planned, max_memory of full recompute ({recompute.gib:.2f} GiB)"
    arguments = offloading(max_memory=recompute.peak + work.resident())
    planned.append(ours := work.run(offloader(name, work.model, **arguments)))
    keep = mean(found["keep"], work.run(Strategy("keep")))
    rows = [row(work.name, measured, keep) for measured in [keep, *list(found.values())[1:]]]
    for measured, target in zip(planned, sizes.targets, strict=False):
        met = target.is_met(measured, keep, recompute)
        rows.append(row(work.name, measured, keep, target.text, met))
    rows += [row(work.name, ours, keep), predictions(work.name, planned)]
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
    results.add(*rows)
    for measured in [keep, *found.values(), *planned]:
        results.remember(work.name, measured)
    work.check_losses()


def at_equal_memory(results: Results, sizes: Sizes) -> None:
    """Each strategy at its best batch within the memory that keeping needs at the tables' batch."""
    work = sizes.stack()
    budget = work.run(Strategy("keep", steps=2)).peak
    ceiling = budget + work.resident()
    best: dict[str, tuple[float, int]] = {}
    for factor in (1.5, 2, 3):
        work.resize(int(factor * sizes.batch))
        strategies = []
        if factor > 1.5:
            strategies.append(Strategy("full recompute", recompute=True, settle=1, steps=2))
        if factor <= 2:
            arguments = offloading(max_memory=ceiling)
            if DEVICE.type == "cuda":
                arguments["host"] = "80GiB"
            strategies.append(
                offloader("planned", work.model, settled=3, settle=5, steps=3, **arguments)
            )
        for strategy in strategies:
            found = work.run(strategy)
            results.remember(f"{work.name}, batch {work.batch}", found)
            rate = work.batch * work.tokens / found.ms * 1e3
            # On the CPU a plan's ceiling is of groups alone.
            fits = found.peak <= budget or DEVICE.type == "cpu"
            if fits and rate > best.get(found.name, (0.0, 0))[0]:
                best[found.name] = (rate, work.batch)
    if len(best) < 2:
        raise ValueError(f"only {sorted(best)} stayed within {budget} bytes at some batch")
    ours, peer = best["planned"], best["full recompute"]
    results.add(
        Row(
            work=f"{work.name}: each at its best batch in {budget / 2**30:.1f} GiB",
            ours=ours[0],
            unit="tokens/s",
            peer=peer[0],
            peer_name="full recompute",
            ratio=ours[0] / peer[0],
            target=f">= {sizes.least:.0%} above full recompute",
            met=ours[0] >= (1 + sizes.least) * peer[0],
            note=f"batches {ours[1]} and {peer[1]}; a peak above the budget does not count",
        )
    )


def main(options: argparse.Namespace, parts: Sequence[str], hidden: Sequence[str]) -> None:
    """Run it."""
    results = Results(options.json, "Activation offloading on a GPU")
    large, small = LARGE, SMALL
    if options.quick or DEVICE.type == "cpu":
        shape = (1024, 2, 4, 1024) if DEVICE.type == "cuda" else (128, 2, 4, 64)
        large = Sizes(*shape, large.targets, large.least)
        small = Sizes(shape[0] // 2, 3, *shape[2:], small.targets, small.least)
    models = [sizes for sizes, name in ((large, "12288"), (small, "8192")) if name in hidden]
    for part, run in (("equal-batch", at_equal_batch), ("equal-memory", at_equal_memory)):
        for sizes in models if part in parts else ():
            results.section(run, sizes)
    results.finish()


if __name__ == "__main__":
    PARTS = chosen("--parts", ["equal-batch", "equal-memory"])
    HIDDEN = chosen("--hidden", ["12288", "8192"])
    main(arguments(__doc__), PARTS, HIDDEN)
