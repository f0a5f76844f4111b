# SPDX-License-Identifier: Apache-2.0
"""Seeds shared out among ranks: every rank as many batches, no two the same random numbers."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pytorch_direct import Graph, LinkNeighborLoader, NeighborLoader, rmat

NODES = 101


@pytest.fixture(scope="module")
def graph() -> Graph:
    return Graph.from_edge_index(rmat(NODES, 800, seed=1), NODES)


@settings(max_examples=80, deadline=None)
@given(
    st.integers(0, 40), st.integers(1, 7), st.integers(1, 9), st.booleans(), st.booleans(),
    st.booleans(),
)  # fmt: skip
def test_ranks_cover_the_seeds(graph, count, world, size, shuffle, drop_last, links):
    common = {
        "batch_size": size, "shuffle": shuffle, "drop_last": drop_last, "seed": 3,
        "world_size": world, "device": "cpu", "depth": 0,
    }  # fmt: skip
    runs = []
    for rank in range(world):
        if links:
            ends = torch.randint(0, NODES, (2, count))
            loader = LinkNeighborLoader(graph, [1], ends, rank=rank, **common)
        else:
            loader = NeighborLoader(graph, [1], torch.arange(count), rank=rank, **common)
        batches = [batch.input_id for batch in loader]
        assert len(batches) == len(loader)
        runs.append(batches)
    sizes = [[part.numel() for part in run] for run in runs]
    assert all(mine == sizes[0] for mine in sizes)
    taken = torch.cat([torch.cat([torch.empty(0, dtype=torch.int64), *run]) for run in runs])
    each = count // world if drop_last else -(-count // world)
    if drop_last:
        assert taken.numel() == each // size * size * world
        assert taken.unique().numel() == taken.numel()
        assert all(part == size for part in sizes[0])
    else:
        assert taken.numel() == each * world
        assert torch.equal(taken.unique(), torch.arange(count))


def test_shards_of_an_order_are_those_of_one_rank(graph):
    options = {"shuffle": True, "seed": 5, "device": "cpu"}
    whole = [int(b.input_id) for b in NeighborLoader(graph, [1], batch_size=1, **options)]
    for rank in range(3):
        mine = NeighborLoader(graph, [1], batch_size=1, rank=rank, world_size=3, **options)
        got = [int(batch.input_id) for batch in mine]
        assert got == (whole + whole)[rank : 34 * 3 : 3]


def test_ranks_draw_different_neighbours(graph):
    hub = int(graph.relations["node", "to", "node"].indptr.diff().argmax())
    edges = []
    for rank in range(2):
        loader = NeighborLoader(
            graph, [3], [hub, hub], rank=rank, world_size=2, seed=1, device="cpu"
        )
        (batch,) = loader
        edges.append(batch.e_id)
    assert not torch.equal(*edges)


def test_samplers_give_the_order(graph):
    class Sampler:
        epochs: list[int] = []  # noqa: RUF012

        def __iter__(self):
            return iter([7, 5, 9])

        def __len__(self):
            return 3

        def set_epoch(self, epoch: int) -> None:
            self.epochs.append(epoch)

    loader = NeighborLoader(graph, [1], batch_size=2, sampler=Sampler(), device="cpu")
    assert len(loader) == 2
    assert [b.input_id.tolist() for b in loader] == [[7, 5], [9]]
    loader.set_epoch(6)
    list(loader)
    assert Sampler.epochs == [0, 6]
    groups = [[1, 2, 3], [4]]
    loader = NeighborLoader(graph, [1], batch_sampler=groups, device="cpu")
    assert len(loader) == 2
    assert loader.batch_size is None
    assert [b.input_id.tolist() for b in loader] == groups
    with pytest.raises(IndexError, match="sampler gave position 101"):
        list(NeighborLoader(graph, [1], sampler=[101], device="cpu"))


RANK = """
import os, sys, warnings
import torch
import torch.distributed as dist
from pytorch_direct import Graph, NeighborLoader, rmat

rank, path = int(sys.argv[1]), sys.argv[2]
dist.init_process_group("gloo", init_method=f"file://{path}", rank=rank, world_size=2)
torch.manual_seed(rank)
graph = Graph.from_edge_index(rmat(101, 800, seed=1), 101)
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    loader = NeighborLoader(
        ({"x": torch.eye(101)}, graph), [3, 3], batch_size=8, shuffle=True, device="cpu"
    )
    whole = NeighborLoader(graph, [3], batch_size=8, world_size=1, device="cpu")
    again = NeighborLoader(graph, [3], batch_size=8, device="cpu")
assert [str(w.message).startswith("torch.distributed is initialised") for w in said] == [True]
assert len(loader) == len(again) == 7 and len(whole) == 13
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(101, 1))
seen = []
for epoch in range(2):
    for batch in loader:
        model(batch.x).sum().backward()
        seen.append(batch.input_id)
parts = [None, None]
dist.all_gather_object(parts, [part.tolist() for part in seen])
for epoch in range(2):
    mine = [sum(part[epoch * 7 : epoch * 7 + 7], []) for part in parts]
    assert len(mine[0]) == len(mine[1]) == 51
    assert sorted(set(mine[0] + mine[1])) == list(range(101))
assert parts[0][0] != parts[0][7]
dist.destroy_process_group()
print("done", flush=True)
# DistributedDataParallel over gloo aborts some processes at their end, torch alone 2 of 50.
os._exit(0)
"""


def test_two_processes_of_gloo(tmp_path):
    program = tmp_path / "rank.py"
    program.write_text(textwrap.dedent(RANK))
    arguments = [sys.executable, str(program)]
    ranks = [
        subprocess.Popen(
            [*arguments, str(rank), str(tmp_path / "rendezvous")],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(2)
    ]
    for process in ranks:
        output, _ = process.communicate(timeout=90)
        assert process.returncode == 0, output
        assert output.endswith("done\n")
