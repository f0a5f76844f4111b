# SPDX-License-Identifier: Apache-2.0
"""What the offloader's hooks cost for each saved tensor, with a tier that moves nothing."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from bench_schema import Row, arguments, write

import ssdtrain
from ssdtrain.engine import Engine
from ssdtrain.plan import GroupPlan, Plan, Where
from ssdtrain.policy import PlannedPolicy, Policy, StreamingPolicy
from ssdtrain.selection import Selection
from ssdtrain.steps import Steps
from ssdtrain.streams import Streams

TARGET_US = 15.0
NBYTES = 4096


class Done:
    """Work that has ended."""

    def done(self) -> bool:
        """Whether it has ended: yes."""
        return True

    def result(self, timeout: float | None = None) -> int:
        """Bytes moved."""
        return NBYTES


DONE: Any = Done()


class Nowhere:
    """Room on the tier."""

    tier = "disk"
    nbytes = NBYTES
    out = DONE
    phase = "stored"
    is_settled = True

    def settle(self) -> None:
        """Nothing to settle."""
        return

    def read_ahead(self) -> None:
        """Nothing to read."""

    def read(self, *_: Any) -> Any:
        """Nothing is read."""
        return DONE

    def free(self) -> None:
        """Nothing to free."""


class NothingTier:
    """Takes everything, and keeps nothing of it."""

    name = "disk"

    def takes(self, kind: str) -> bool:
        """Yes."""
        return True

    def put(self, *_: Any) -> Any:
        """Nothing is stored."""
        return Nowhere()

    def settle(self) -> None:
        """Nothing to settle."""

    def oldest_write(self) -> None:
        """There is none."""
        return

    def describe(self) -> dict[str, object]:
        """Nothing to say."""
        return {}

    def close(self) -> None:
        """Nothing to close."""


def streaming() -> StreamingPolicy:
    """No loads ahead: each unpack has its own."""
    return StreamingPolicy(1 << 30, 0, wait=True)


def cost(count: int, rounds: int, policy: Callable[[Any, int], Policy], views: int = 1) -> float:
    """Microseconds a saved tensor, pack and unpack together: the median of the rounds."""
    streams = Streams()
    engine = Engine(Selection(1), [NothingTier()], streams, Steps(streaming, None, streams),
                    checks=False)  # fmt: skip
    costs = []
    for _ in range(rounds):
        engine.begin_step()
        run = engine.books.run
        run.policy = policy(run, count)
        saved = []
        spent = 0.0
        for _ in range(count):
            tensor = torch.empty(NBYTES // 4)
            begin = time.perf_counter()
            saved += [engine.save(tensor[:]) for _ in range(views)]
            spent += time.perf_counter() - begin
            del tensor
        begin = time.perf_counter()
        while saved:
            saved.pop().get()
        spent += time.perf_counter() - begin
        costs.append(spent / count / views * 1e6)
    engine.close()
    return statistics.median(costs)


def planned(run: Any, count: int) -> PlannedPolicy:
    """Everything goes, and is loaded just before it is needed."""
    entries = [
        GroupPlan(NBYTES, Where.DISK, min(i + 2, count), None, max(2 * count - 2 - i, count))
        for i in range(count)
    ]
    return PlannedPolicy(Plan(tuple(entries)), run.groups, streaming())


def identity(count: int) -> float:
    """Hooks that do nothing but hold a detached tensor, called alike."""
    begin = time.perf_counter()
    saved = [torch.empty(NBYTES // 4).detach() for _ in range(count)]
    while saved:
        saved.pop().detach()
    return (time.perf_counter() - begin) / count * 1e6


def main() -> None:
    """Measure tensors of their own storages, under a plan and streamed, and views of one."""
    options = arguments(__doc__)
    count, rounds = (200, 3) if options.quick else (1000, 9)
    bare = statistics.median(identity(count) for _ in range(rounds))
    rows = []
    for work, policy, views in (
        ("saved tensor that is moved, under a plan", planned, 1),
        ("saved tensor that is moved, streamed", lambda run, count: streaming(), 1),
        ("saved tensor of four over one storage, streamed", lambda run, count: streaming(), 4),
    ):
        found = cost(count, rounds, policy, views)
        rows.append(
            Row(
                work=f"hooks for one {work}, {count} in a step",
                ours=found,
                unit="us",
                peer=bare,
                peer_name="allocate, detach twice",
                ratio=found / TARGET_US,
                target="<= 15 us",
                met=found <= TARGET_US,
                note=f"pack and unpack on the CPU, the tier moves nothing; {ssdtrain.__version__}",
            )
        )
    write(options.json, "Cost of the hooks of a saved tensor", rows)


if __name__ == "__main__":
    main()
