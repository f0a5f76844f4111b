# SPDX-License-Identifier: Apache-2.0
"""Invented steps for tests and benchmarks of the planner."""

from __future__ import annotations

import dataclasses
import random
from dataclasses import dataclass, field

from ssdtrain.timeline import Rates, SavedGroup, Tick, Timeline, signature_of

# PCIe 5 x16: 55 GB/s one way, 49 each with both at work.
LINK = Rates(49e9, 49e9, overhead=20e-6, d2h_alone=55e9, h2d_alone=55e9)


@dataclass
class Builder:
    """Writes down a step op by op: what is allocated, computed, saved, needed."""

    others: int = 0
    now: float = 0.0
    peak: int = 0
    ticks: list[Tick] = field(default_factory=list)
    groups: dict[str, dict[str, object]] = field(default_factory=dict)

    def allocate(self, nbytes: float) -> None:
        self.others += int(nbytes)
        self.peak = max(self.peak, self.others)

    def free(self, nbytes: float) -> None:
        self.allocate(-int(nbytes))

    def _tick(self, kind: str, name: str) -> None:
        index = list(self.groups).index(name)
        self.ticks.append(Tick(kind, index, self.now, self.others, self.peak))
        self.peak = self.others

    def save(self, name: str, nbytes: int, **what: object) -> None:
        """Bytes allocated before become a group's."""
        self.groups[name] = {"nbytes": nbytes, "saved_at": len(self.ticks), "label": name, **what}
        self.others -= nbytes
        self._tick("save", name)

    def need(self, name: str) -> None:
        self.groups[name]["needed_at"] = len(self.ticks)
        self._tick("need", name)

    def release(self, name: str) -> None:
        self.groups[name]["released_after"] = len(self.ticks) - 1

    def build(self, device_type: str = "cuda") -> Timeline:
        names = list(self.groups)
        groups = []
        for what in self.groups.values():
            inputs = tuple(names.index(name) for name in what.pop("inputs", ()))
            what.setdefault("needed_at", None)
            groups.append(SavedGroup(**what, recompute_inputs=inputs))
        return Timeline(
            tuple(self.ticks), tuple(groups), self.now, self.peak, device_type,
            device_type == "cuda", signature_of(g.nbytes for g in groups),
        )  # fmt: skip


def gpt(
    hidden: int, layers: int, seconds: float, tokens: int = 16 * 1024, memory_rate: float = 3.5e12
) -> Timeline:
    """A step of GPT blocks in bf16: pre-norm, fused qkv, flash attention, GELU, squared loss.

    Times are those of the matrix products, scaled to the step's time, two thirds of it backward;
    norms and GELU take their bytes over `memory_rate`. Weight gradients exist and are added to.
    """
    unit = tokens * hidden * 2
    weight = hidden * hidden * 2
    block = seconds / 3 / layers

    def forward(share: float) -> float:
        return block * share

    norm, gelu = 2 * unit / memory_rate, 8 * unit / memory_rate
    shares = {"qkv": 6, "attention": 2 * 1024 / hidden, "out": 2, "up": 8, "down": 8}
    total = sum(shares.values())
    times = {name: forward(share / total) for name, share in shares.items()}
    s = Builder()
    for i in range(layers):
        # The first input is the user's own and is not counted.
        s.allocate(unit)
        s.now += norm
        if i:
            s.save(f"x{i}", unit)
        s.now += times["qkv"]
        s.allocate(3 * unit)
        s.save(f"norm1 {i}", unit, recipe="layer_norm", recompute_seconds=norm,
               inputs=(f"x{i}",) if i else ())  # fmt: skip
        s.now += times["attention"]
        s.allocate(unit)
        s.save(f"qkv {i}", 3 * unit)
        s.save(f"attention {i}", unit)
        s.now += times["out"]
        s.allocate(2 * unit)
        s.free(unit)
        s.allocate(unit)
        s.now += norm
        s.save(f"middle {i}", unit)
        s.now += times["up"]
        s.allocate(4 * unit)
        s.save(f"norm2 {i}", unit, recipe="layer_norm", recompute_seconds=norm,
               inputs=(f"middle {i}",))  # fmt: skip
        s.allocate(4 * unit)
        s.now += gelu
        s.save(f"up {i}", 4 * unit)
        s.now += times["down"]
        s.allocate(unit)
        s.save(f"gelu {i}", 4 * unit, recipe="gelu", recompute_seconds=gelu, inputs=(f"up {i}",))
        s.allocate(unit)
        s.free(unit)
    s.allocate(2 * unit)
    s.now += gelu
    s.save("loss", 2 * unit)
    s.need("loss")
    s.allocate(8 * unit)
    s.now += 2 * gelu
    s.free(6 * unit)
    s.release("loss")
    s.free(unit)
    for i in reversed(range(layers)):
        # One unit of the output, one of its gradient for the last block; else of the gradient.
        s.need(f"gelu {i}")
        s.allocate(4 * unit + 4 * weight)
        s.now += 2 * times["down"]
        s.free(4 * weight)
        s.release(f"gelu {i}")
        s.need(f"up {i}")
        s.allocate(4 * unit)
        s.now += gelu
        s.free(4 * unit)
        s.release(f"up {i}")
        s.need(f"norm2 {i}")
        s.allocate(unit + 4 * weight)
        s.now += 2 * times["up"]
        s.free(4 * unit + 4 * weight)
        s.release(f"norm2 {i}")
        s.need(f"middle {i}")
        s.allocate(unit)
        s.now += 2 * norm
        s.free(2 * unit)
        s.release(f"middle {i}")
        s.need(f"attention {i}")
        s.allocate(unit + weight)
        s.now += 2 * times["out"]
        s.free(weight)
        s.need(f"qkv {i}")
        s.allocate(6 * unit)
        s.now += 2 * times["attention"]
        s.free(4 * unit)
        s.release(f"attention {i}")
        s.release(f"qkv {i}")
        s.need(f"norm1 {i}")
        s.allocate(unit + 3 * weight)
        s.now += 2 * times["qkv"]
        s.free(3 * unit + 3 * weight)
        s.release(f"norm1 {i}")
        if i:
            s.need(f"x{i}")
        s.allocate(unit)
        s.now += 2 * norm
        s.free(2 * unit)
        if i:
            s.release(f"x{i}")
    return s.build()


def random_step(
    seed: int, count: int, nested: bool = True, recipes: bool = True, device_type: str = "cuda"
) -> Timeline:
    """A small step of groups of a few bytes, needed in reverse order, or in any."""
    rng = random.Random(seed)
    s = Builder()
    names = [f"g{i}" for i in range(count)]
    for i, name in enumerate(names):
        s.now += rng.choice([0.2, 1.0, 2.0])
        nbytes = rng.randint(1, 10)
        s.allocate(nbytes + rng.choice([0, 0, 2]))
        what: dict[str, object] = {}
        if recipes and i and rng.random() < 0.3:
            what = {
                "recipe": "copy",
                "recompute_seconds": rng.choice([0.05, 0.3]),
                "inputs": (names[rng.randrange(i)],),
            }
        s.save(name, nbytes, **what)
    order = names[::-1]
    if not nested:
        rng.shuffle(order)
    for name in order:
        s.allocate(rng.choice([0, 1, 3]))
        s.need(name)
        s.now += 2 * rng.choice([0.2, 1.0, 2.0])
        s.free(max(s.others - rng.choice([0, 1]), 0))
        s.release(name)
    return s.build(device_type)


def micro_batches(step: Timeline, count: int) -> Timeline:
    """So many equal steps, all forward and then all backward, the last forward first.

    `step` saves everything before it needs anything.
    """
    forward = [tick for tick in step.ticks if tick.kind == "save"]
    backward = [tick for tick in step.ticks if tick.kind == "need"]
    if [*forward, *backward] != list(step.ticks):
        raise ValueError("the step needs something before it has saved everything")
    turn, groups = backward[0].seconds, len(step.groups)
    ticks = [
        dataclasses.replace(tick, group=tick.group + j * groups, seconds=tick.seconds + j * turn)
        for j in range(count)
        for tick in forward
    ]
    begins = {}
    for position, j in enumerate(reversed(range(count))):
        begins[j] = len(ticks) - len(forward)
        later = (count - 1) * turn + position * (step.seconds - turn)
        ticks += [
            dataclasses.replace(tick, group=tick.group + j * groups, seconds=tick.seconds + later)
            for tick in backward
        ]
    found = [
        dataclasses.replace(
            group,
            saved_at=group.saved_at + j * len(forward),
            needed_at=None if group.needed_at is None else group.needed_at + begins[j],
            released_after=group.released_after + begins[j],
            recompute_inputs=tuple(source + j * groups for source in group.recompute_inputs),
        )
        for j in range(count)
        for group in step.groups
    ]
    return Timeline(
        tuple(ticks), tuple(found), count * step.seconds, step.tail_peak, step.device_type,
        step.resident_known, signature_of(group.nbytes for group in found),
    )  # fmt: skip
