# SPDX-License-Identifier: Apache-2.0
"""Memory of batches is used again in order only: streams, events and pools played on the CPU.

A stream has a clock of what it has seen of every stream; events carry clocks. Each use of a block
must have seen all uses before it, by whoever had the block.
"""

from __future__ import annotations

import contextlib
import threading
import time

import pytest
import torch

from pytorch_direct import Graph, NeighborSampler, rmat
from pytorch_direct.loader import lanes
from pytorch_direct.loader.columns import Attribute, Column
from pytorch_direct.loader.maker import BatchMaker
from pytorch_direct.loader.order import Order
from pytorch_direct.loader.pipeline import BatchIterator
from pytorch_direct.loader.plain import PlainSource
from pytorch_direct.loader.seeds import node_seeds
from pytorch_direct.loader.shards import Shard


class Stream:
    def __init__(self, world: World, name: str) -> None:
        self.world, self.name, self.cuda_stream = world, name, id(self)
        self.seen: dict[str, int] = {name: 0}

    def wait_event(self, event: Event) -> None:
        with self.world.lock:
            for name, at in event.seen.items():
                self.seen[name] = max(at, self.seen.get(name, 0))


class Event:
    def record(self, stream: Stream) -> None:
        with stream.world.lock:
            self.seen = dict(stream.seen)


class Memory:
    """A block for as long as somebody has it."""

    def __init__(self, pool: list, block: list, world: World) -> None:
        self.pool, self.block, self.world = pool, block, world

    def use(self) -> None:
        stream = self.world.current()
        with self.world.lock:
            for name, at in self.block:
                if stream.seen.get(name, 0) < at:
                    self.world.broken.append((name, stream.name))
            stream.seen[stream.name] += 1
            self.block.append((stream.name, stream.seen[stream.name]))

    def __del__(self) -> None:
        self.pool.append(self.block)


class World:
    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.here = threading.local()
        self.pools: dict[str, list] = {}
        self.broken: list[tuple[str, str]] = []
        self.reused = 0
        self.main = Stream(self, "main")

    def current(self, *_: object) -> Stream:
        return getattr(self.here, "stream", self.main)

    @contextlib.contextmanager
    def on(self, stream: Stream):
        before = self.current()
        self.here.stream = stream
        try:
            yield
        finally:
            self.here.stream = before

    def allocate(self) -> Memory:
        """Give out what was freed last, as a caching allocator may."""
        pool = self.pools.setdefault(self.current().name, [])
        with self.lock:
            block = pool.pop() if pool else []
            self.reused += bool(block)
        return Memory(pool, block, self)


class Rows(Column):
    """Allocates and uses memory where a real column does, and scratch memory beside it."""

    def __init__(self, world: World) -> None:
        super().__init__(Attribute("node", "node", "x", None))
        self.world = world

    def read(self, ids):
        found = self.world.allocate()
        found.use()
        return found

    def empty(self, count, device, found):
        return self.world.allocate()

    def fill(self, out, ids, found):
        time.sleep(2e-4)
        scratch = self.world.allocate()
        scratch.use()
        found.use()
        out.use()
        scratch.use()


@pytest.fixture
def world(monkeypatch) -> World:
    world = World()
    shared = object.__new__(lanes._Shared)
    for name in ("sample", "fetch", "owner"):
        setattr(shared, name, Stream(world, name))
    shared._takers, shared._lock = {}, threading.Lock()
    monkeypatch.setattr(lanes, "_shared", lambda _: shared)
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "current_stream", world.current)
    monkeypatch.setattr(torch.cuda, "stream", world.on)
    monkeypatch.setattr(torch.cuda, "device", lambda _: contextlib.nullcontext())
    return world


def consume(world: World, depth: int, seed: int) -> None:
    """Take batches on two streams in turn, and drop them at once or much later."""
    random = torch.Generator().manual_seed(seed)
    graph = Graph.from_edge_index(rmat(100, 500, seed=1), 100)
    maker = BatchMaker(
        PlainSource({}, graph),
        NeighborSampler(graph, [2]),
        node_seeds(graph, None),
        [Rows(world), Rows(world)],
        lanes.CudaLanes(torch.device("cpu")),
        None,
        None,
    )
    order = Order(100, 2, False, False, Shard(0, 1), seed=0)
    iterator = BatchIterator(maker, order.jobs(0), depth)
    streams = [world.main, Stream(world, "side")]
    kept = []
    for turn in range(50):
        with world.on(streams[turn // 7 % 2]):
            batch = next(iterator)
            batch.x.use()
            if int(torch.randint(0, 3, (), generator=random)) == 0:
                kept.append((world.current(), batch))
            time.sleep(float(torch.rand((), generator=random)) * 1e-3)
            batch.x.use()
        while len(kept) > 3:
            stream, earlier = kept.pop(int(torch.randint(0, 3, (), generator=random)))
            with world.on(stream):
                earlier.x.use()
            del earlier
    iterator.close()


@pytest.mark.parametrize("depth", [0, 1, 2, 4])
def test_each_use_has_seen_all_before_it(world, depth):
    for seed in range(3):
        consume(world, depth, seed)
    assert world.reused > 100
    assert world.broken == []


def test_the_play_finds_what_is_out_of_order(world, monkeypatch):
    monkeypatch.setattr(lanes._Shared, "takers", lambda self: [])
    consume(world, 2, 0)
    assert ("main", "fetch") in world.broken


def test_scratch_memory_must_not_come_from_where_batches_do(world, monkeypatch):
    monkeypatch.setattr(lanes._shared(None), "owner", lanes._shared(None).fetch)
    for seed in range(3):
        consume(world, 4, seed)
    assert world.broken != []
