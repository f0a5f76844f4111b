# SPDX-License-Identifier: Apache-2.0
"""What the offloader's hooks cost for each saved tensor, with a tier that moves nothing.

Counted is all that runs in Python and PyTorch from the save to the release of a saved tensor that
leaves and is loaded again: the rules, identity and version watch, its group, the policy, the states
of its store and its load, the trace, the tensor laid on the copy.

Three things are in the loop that is timed and are no cost of hooks. Each is timed alone, in the
same process and as often, and taken off:

- the copy's memory: allocating and freeing it is part of the transfer (a tensor over it is not);
- the tier of this file, which moves nothing: its methods, written in Python here, stand for what
  submits transfers and asks for their end;
- the loop itself, and the freeing of the tensors that it goes through: without hooks they would be
  freed as well.
"""

from __future__ import annotations

import contextlib
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
from ssdtrain.profile import CpuMeter, Profile
from ssdtrain.saved import KeptTensor
from ssdtrain.selection import Selection
from ssdtrain.steps import Steps
from ssdtrain.streams import Streams

TARGET_US = 15.0
NBYTES = 4096
LEAF = torch.zeros(NBYTES // 4, requires_grad=True)


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
    waits_for_drive = False

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

    def oldest_passage(self) -> None:
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
        tensors = [_made(views) for _ in range(count)]
        begin = time.thread_time()
        while tensors:
            for tensor in tensors.pop():
                saved.append(engine.save(tensor))
        del tensor
        while saved:
            saved.pop().get()
        costs.append((time.thread_time() - begin) / count / views * 1e6)
    engine.close()
    return statistics.median(costs)


def planned(run: Any, count: int) -> PlannedPolicy:
    """Everything goes, and is loaded just before it is needed; the step is timed as a whole."""
    run.profile = Profile(detailed=False)
    run.profile.begin(CpuMeter())
    entries = [
        GroupPlan(NBYTES, Where.DISK, min(i + 2, count), None, max(2 * count - 2 - i, count))
        for i in range(count)
    ]
    return PlannedPolicy(Plan(tuple(entries)), run.groups, streaming())


def _made(views: int) -> list[torch.Tensor]:
    """Views of a tensor that a graph made, as most of those are that it saves."""
    tensor = LEAF * 1
    return [tensor[:] for _ in range(views)]


def allocation(count: int) -> float:
    """Microseconds to allocate one loaded copy and to free it."""
    device = torch.device("cpu")
    begin = time.thread_time()
    copies = [torch.UntypedStorage(NBYTES, device=device) for _ in range(count)]
    copies.clear()
    return (time.thread_time() - begin) / count * 1e6


def empty_tier(count: int) -> float:
    """Microseconds of what is asked of the tier for one tensor that goes and comes back once."""
    tier: Any = NothingTier()
    begin = time.thread_time()
    for _ in range(count):
        stored = tier.put(None, None, None, None)
        if stored.out.done() and stored.out.result() and stored.is_settled:
            transfer = stored.read(None, None, None, None)
        if transfer.done() and transfer.result() and stored.out.done():
            stored.free()
    return (time.thread_time() - begin) / count * 1e6


def loop(count: int, views: int) -> float:
    """Microseconds a tensor of the loop in :func:`cost`, without the engine."""
    saved = []
    tensors = [_made(views) for _ in range(count)]
    begin = time.thread_time()
    while tensors:
        for tensor in tensors.pop():
            saved.append(tensor)  # noqa: PERF402 (as cost() does it)
    del tensor
    while saved:
        saved.pop()
    return (time.thread_time() - begin) / count / views * 1e6


def _itself(tensor: torch.Tensor) -> torch.Tensor:
    return tensor


def chain(count: int, hooks: contextlib.AbstractContextManager[object]) -> float:
    """Microseconds an operator, forward and backward, that saves one tensor under hooks."""
    x = torch.zeros(1, requires_grad=True)
    begin = time.thread_time()
    with hooks:
        for _ in range(count):
            x = x.sin()
    x.backward()
    return (time.thread_time() - begin) / count * 1e6


def empty_hooks(count: int, rounds: int) -> float:
    """Microseconds that hooks which do nothing add to an operator, with all that autograd adds."""
    made = torch.autograd.graph.saved_tensors_hooks
    hooked = [chain(count, made(_itself, _itself)) for _ in range(rounds)]
    plain = [chain(count, contextlib.nullcontext()) for _ in range(rounds)]
    return statistics.median(hooked) - statistics.median(plain)


def watching(count: int) -> float:
    """Hooks that only do what is needed to hold a tensor and to see that it was not changed."""
    tensors = [tensor for _ in range(count) for tensor in _made(1)]
    begin = time.thread_time()
    saved = [KeptTensor(tensor) for tensor in tensors]
    while saved:
        saved.pop().get()
    return (time.thread_time() - begin) / count * 1e6


def main() -> None:
    """Measure tensors of their own storages, under a plan and streamed, and views of one."""
    options = arguments(__doc__)
    count, rounds = (200, 3) if options.quick else (1000, 9)
    bare = statistics.median(watching(count) for _ in range(rounds))
    empty = empty_hooks(count, rounds)
    copy = statistics.median(allocation(count) for _ in range(rounds))
    tier = statistics.median(empty_tier(count) for _ in range(rounds))
    rows = []
    for work, policy, views in (
        ("saved tensor that is moved, under a plan", planned, 1),
        ("saved tensor that is moved, streamed", lambda run, count: streaming(), 1),
        ("saved tensor of four over one storage, streamed", lambda run, count: streaming(), 4),
    ):
        whole = cost(count, rounds, policy, views)
        around = statistics.median(loop(count, views) for _ in range(rounds))
        found = whole - (copy + tier) / views - around
        rows.append(
            Row(
                work=f"hooks for one {work}, {count} in a step",
                ours=found,
                unit="us",
                peer=bare,
                peer_name="hooks that hold a tensor and watch its version",
                limit=empty,
                limit_name="autograd's own cost of a pair of empty Python hooks",
                ratio=found / TARGET_US,
                target="<= 15 us",
                met=found <= TARGET_US,
                note=(
                    f"CPU time of pack, unpack and release, of {whole:.2f} us in the loop; taken"
                    f" off are the allocation of the copy ({copy / views:.2f}), the tier that moves"
                    f" nothing ({tier / views:.2f}) and the loop ({around:.2f}); autograd's own"
                    f" cost is not in it; {found / empty:.0f} times that of empty hooks;"
                    f" {ssdtrain.__version__}"
                ),
            )
        )
    write(options.json, "Cost of the hooks of a saved tensor", rows)


if __name__ == "__main__":
    main()
