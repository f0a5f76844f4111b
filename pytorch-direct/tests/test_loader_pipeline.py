# SPDX-License-Identifier: Apache-2.0
"""How loaders end: at the end, on ``break``, on errors, with their process."""

from __future__ import annotations

import copy
import gc
import os
import pickle
import subprocess
import sys
import textwrap
import threading
import time

import pytest
import torch

from pytorch_direct import Graph, NeighborLoader, rmat
from pytorch_direct.loader.lanes import HostLanes

NODES = 500


@pytest.fixture(scope="module")
def graph() -> Graph:
    return Graph.from_edge_index(rmat(NODES, 4000, seed=1), NODES)


def loader_threads() -> int:
    return sum(t.name == "pytorch_direct loader" for t in threading.enumerate())


def soon(condition) -> bool:
    deadline = time.monotonic() + 60
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.005)
    return condition()


@pytest.fixture(autouse=True)
def nothing_is_left_running():
    yield
    gc.collect()
    assert loader_threads() == 0


def make(graph: Graph, **options) -> NeighborLoader:
    return NeighborLoader(graph, [3], device="cpu", **{"batch_size": 10, "seed": 1, **options})


def test_the_thread_ends_with_the_epoch(graph):
    iterator = iter(make(graph))
    assert loader_threads() == 1
    assert len(list(iterator)) == 50
    assert list(iterator) == []
    assert soon(lambda: loader_threads() == 0)


def test_break_stops_the_thread(graph):
    for _ in make(graph):
        assert loader_threads() == 1
        break
    assert loader_threads() == 0


def test_depth_bounds_what_is_made_ahead(graph):
    made = []
    loader = make(graph, depth=3, transform_sampler_output=lambda out: made.append(1) or out)
    iterator = iter(loader)
    next(iterator)
    assert soon(lambda: len(made) == 4)
    time.sleep(0.05)
    assert len(made) == 4
    del iterator
    assert loader_threads() == 0


def test_no_thread_without_depth(graph):
    iterator = iter(make(graph, depth=0))
    next(iterator)
    assert loader_threads() == 0


def test_close(graph):
    loader = make(graph)
    iterators = [iter(loader), iter(loader)]
    for iterator in iterators:
        next(iterator)
    assert loader_threads() == 2
    loader.close()
    assert loader_threads() == 0
    for iterator in iterators:
        with pytest.raises(StopIteration):
            next(iterator)
    assert len(list(loader)) == 50


def test_an_error_of_the_consumer_leaves_nothing(graph):
    def train():
        for index, _ in enumerate(make(graph)):
            if index == 3:
                raise KeyError("of the model")

    with pytest.raises(KeyError):
        train()


@pytest.mark.parametrize("depth", [0, 1, 4])
def test_an_error_in_the_pipeline_comes_in_its_turn(graph, depth):
    count = 0

    def breaks(output):
        nonlocal count
        count += 1
        if count == 3:
            raise ValueError("no third batch")
        return output

    loader = make(graph, transform_sampler_output=breaks, depth=depth)
    iterator = iter(loader)
    assert next(iterator).input_id[0] == 0
    assert next(iterator).input_id[0] == 10
    with pytest.raises(
        ValueError, match=r"no third batch \(while making batch 2 of epoch 0, 10 seeds at "
        r"positions in \[20, 29\]\)",
    ):  # fmt: skip
        next(iterator)
    assert loader_threads() == 0
    with pytest.raises(StopIteration):
        next(iterator)
    assert len(list(loader)) == 50


def test_an_error_at_the_very_end_is_no_hang(graph, monkeypatch):
    def fail(self) -> None:
        raise RuntimeError("the GPU is gone")

    monkeypatch.setattr(HostLanes, "release", fail)
    iterator = iter(make(graph, batch_size=100))
    for _ in range(5):
        next(iterator)
    with pytest.raises(RuntimeError, match="the GPU is gone"):
        next(iterator)


def test_errors_without_a_text_get_a_note(graph):
    class OddError(Exception):
        def __init__(self, one: int, two: int) -> None:
            super().__init__(one, two)

    def breaks(batch):
        raise OddError(1, 2)

    with pytest.raises(OddError) as caught:
        next(iter(make(graph, transform=breaks)))
    assert caught.value.args == (1, 2)
    assert "batch 0 of epoch 0" in caught.value.__notes__[0]


def test_ids_out_of_range_name_their_batch(graph):
    def shifted(output):
        output.node = output.node + NODES
        return output

    features = {"x": torch.zeros(NODES, 2)}
    loader = NeighborLoader((features, graph), [3], device="cpu", transform_sampler_output=shifted)
    iterator = iter(loader)
    with pytest.raises(IndexError, match=r"out of range.* \(while making batch \d+ of epoch 0"):
        list(iterator)


def test_nested_iterators_are_apart(graph):
    loader = make(graph, shuffle=True, batch_size=100)
    plain = make(graph, shuffle=True, batch_size=100)
    epochs = [[batch.input_id for batch in plain] for _ in range(6)]
    for outer_index, outer in enumerate(loader):
        assert torch.equal(outer.input_id, epochs[0][outer_index])
        for inner, expected in zip(loader, epochs[outer_index + 1], strict=True):
            assert torch.equal(inner.input_id, expected)


def test_one_iterator_serves_several_threads(graph):
    iterator = iter(make(graph, batch_size=1))
    seen: list[int] = []

    def consume() -> None:
        for batch in iterator:
            seen.append(int(batch.input_id))

    threads = [threading.Thread(target=consume) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(seen) == list(range(NODES))


def test_stopping_at_any_time(graph):
    def consume(seed: int) -> None:
        random = torch.Generator().manual_seed(seed)
        for _ in range(15):
            depth, stop = (int(torch.randint(0, 6, (), generator=random)) for _ in range(2))
            loader = make(graph, batch_size=50, depth=depth)
            for index, batch in enumerate(loader):
                assert batch.input_id[0] == index * 50
                if index == stop:
                    break

    threads = [threading.Thread(target=consume, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)


def test_what_keeps_an_iterator_in_a_cycle_is_collected(graph):
    class Holder:
        pass

    holder = Holder()
    holder.itself, holder.iterator = holder, iter(make(graph))
    next(holder.iterator)
    del holder
    gc.collect()
    assert loader_threads() == 0


def test_loaders_are_not_sent(graph):
    loader = make(graph)
    for send in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(pickle.PicklingError, match="make the loader there"):
            send(loader)
    with pytest.raises(TypeError):
        pickle.dumps(iter(loader))


def test_a_fork_is_told(graph):
    loader = make(graph)
    iterator = iter(loader)
    next(iterator)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            try:
                next(iterator)
            except RuntimeError as error:
                told = str(error)
            del iterator
            count = len(list(make(graph)))
            os.write(write, f"{told} {count}".encode())
            code = 0
        finally:
            os._exit(code)
    os.close(write)
    assert os.waitpid(child, 0)[1] == 0
    text = os.read(read, 1000).decode()
    os.close(read)
    assert "a thread of another process" in text
    assert text.endswith(" 50")
    assert len(list(iterator)) == 49


BODIES = {
    "to the end": "for batch in loader: pass",
    "break": "for batch in loader: break",
    "kept": "iterator = iter(loader); next(iterator)",
    "kept in a cycle": "it = iter(loader); next(it); cycle = [it]; cycle.append(cycle)",
    "exit": "it = iter(loader); next(it); raise SystemExit(0)",
    "waiting for room": "import time; it = iter(loader); next(it); time.sleep(0.2)",
    "never begun": "it = iter(loader)",
    "two": "a, b = iter(loader), iter(loader); next(a); next(b)",
    "in a thread": "import threading; t = threading.Thread(target=lambda: list(loader)); t.start()",
    "closed at exit": "import atexit; it = iter(loader); atexit.register(lambda: list(it))",
}
PROGRAM = """
import torch
from pytorch_direct import Graph, NeighborLoader, rmat
graph = Graph.from_edge_index(rmat(2000, 20000, seed=1), 2000)
loader = NeighborLoader(({"x": torch.randn(2000, 64)}, graph), [5, 5], batch_size=20, device="cpu")
"""


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES.keys())
def test_processes_end(body):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM + body], capture_output=True, text=True, timeout=250
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""


def test_an_error_ends_the_process_with_its_text():
    body = textwrap.dedent("""
        for index, batch in enumerate(loader):
            if index == 2:
                raise LookupError("of the model")
    """)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM + body], capture_output=True, text=True, timeout=250
    )
    assert done.returncode == 1
    assert done.stderr.strip().endswith("LookupError: of the model")


def test_interrupts_are_heard_while_waiting():
    body = textwrap.dedent("""
        import os, signal, threading
        signal.signal(signal.SIGINT, signal.default_int_handler)
        event = threading.Event()
        def interrupt(out):
            os.kill(os.getpid(), signal.SIGINT)
            event.wait(20)
            return out
        loader = NeighborLoader(
            graph, [5], batch_size=20, device="cpu", transform_sampler_output=interrupt
        )
        try:
            next(iter(loader))
        except KeyboardInterrupt:
            event.set()
            print("heard")
    """)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM + body], capture_output=True, text=True, timeout=250
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "heard\n"
