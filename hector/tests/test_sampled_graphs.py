# SPDX-License-Identifier: Apache-2.0
"""Plans of graphs that are used once: orders, bounded tables, recipes, moves to other devices."""

import copy
import itertools
import pickle

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from relational_layers import LAYERS, graph, inputs, maker

import hector
from hector.emit.triton import tables
from hector.ir.types import MAPS
from hector.orders import bounds, run_numbers, stable_order

keys = st.lists(st.integers(0, 200_000), max_size=40)


@given(
    values=keys, dtype=st.sampled_from([torch.int32, torch.int64]), shift=st.sampled_from([0, 40])
)
def test_stable_order(values, dtype, shift):
    shift = 0 if dtype is torch.int32 else shift
    found = stable_order(torch.tensor(values, dtype=dtype) << shift, 200_001 << shift)
    assert found.tolist() == sorted(range(len(values)), key=lambda i: values[i])


@given(values=st.lists(st.integers(0, 9), max_size=30))
def test_bounds_and_runs_of_ascending_keys(values):
    values = torch.tensor(sorted(values), dtype=torch.int64)
    ends = bounds(values, None, 10)
    assert [values.tolist()[a:b] for a, b in itertools.pairwise(ends)] == [
        [key] * values.tolist().count(key) for key in range(10)
    ]
    numbers = run_numbers((values, values // 2), torch.int32)
    assert numbers.dtype is torch.int32
    assert numbers.tolist() == torch.unique(values, return_inverse=True)[1].tolist()


def sampled(g):
    return hector.Graph(
        g.edge_index, g.edge_type, g.num_nodes, g.num_relations, g.node_type, g.num_node_types,
        sampled=True,
    )  # fmt: skip


def hub(edges):
    index = torch.zeros(2, edges, dtype=torch.int64)
    index[0] = torch.arange(edges) % 5
    return hector.Graph(index, torch.arange(edges) % 3, 5, 4, torch.arange(5) % 3)


GRAPHS = {
    "random": lambda: graph(30, 200), "empty": lambda: graph(5, 0, 3), "hub": lambda: hub(50),
    "as long as a piece": lambda: hub(8), "one longer": lambda: hub(9),
    "no nodes": lambda: hector.Graph(
        torch.zeros(2, 0, dtype=torch.long), torch.zeros(0, dtype=torch.long), 0, 2,
        torch.zeros(0, dtype=torch.long), 3,
    ),
}  # fmt: skip


def walked(work, name, plan):
    """The places of each target, in the order in which kernels add them up."""
    found = {}
    slots = {}
    for number in range(work.count):
        begin, end, target, slot = (
            int(part[number]) for part in (work.begin, work.end, work.target, work.slot)
        )
        places = list(range(begin, end))
        if slot < 0:
            assert target not in found
            found[target] = places
        elif slot in slots:
            assert slot == work.slots - 1
            assert not places
        else:
            slots[slot] = places
    for number in range(work.hubs):
        begin, end, target = (
            int(part[number]) for part in (work.hub_begin, work.hub_end, work.hub_target)
        )
        if target >= 0:
            found[target] = [place for slot in range(begin, end) for place in slots[slot]]
        else:
            assert begin == end
    return found


@pytest.mark.parametrize("once", [False, True])
@pytest.mark.parametrize("split", [1, 2, 8, 300])
@pytest.mark.parametrize("case", GRAPHS)
def test_pieces_cover_every_row_of_every_target_once(case, split, once):
    g = GRAPHS[case]()
    plan = (sampled(g) if once else g).plan()
    for name in MAPS:
        work, ends = tables.pieces(plan, name, split), plan.segments(name).bounds.tolist()
        found = walked(work, name, plan)
        assert work.hubs or (work.slot < 0).all()
        rows = list(range(ends[-1]))
        assert found == {i: rows[a:b] for i, (a, b) in enumerate(itertools.pairwise(ends))}
        lengths = work.end - work.begin
        assert once or (lengths[1:] <= lengths[:-1]).all()
        assert not lengths.numel() or int(lengths.max()) <= split


@pytest.mark.parametrize("step", [1, 3, 64])
@pytest.mark.parametrize("case", GRAPHS)
def test_tiles_cover_every_row_of_every_type_once(case, step):
    plan = GRAPHS[case]().plan()
    for name in (None, *MAPS):
        space = "edge" if name is None else MAPS[name].source.value
        work = tables.type_tiles(plan, name, space, step)
        ends = [0, plan.rows(space)] if name is None else plan.segments(name).bounds.tolist()
        found = [[] for _ in ends[1:]]
        for number in range(work.count):
            places = range(int(work.begin[number]), int(work.end[number]))
            assert len(places) <= step
            found[int(work.kind[number])] += places
        rows = list(range(ends[-1]))
        assert found == [rows[a:b] for a, b in itertools.pairwise(ends)]
        first = work.first.tolist()
        assert len(first) == len(ends)
        for kind, (a, b) in enumerate(itertools.pairwise(first)):
            assert (work.kind[a:b] == kind).all()


def ran(g):
    """A graph on which layers ran, forward and backward."""
    for name in ("rgcn", "rgat", "typed"):
        tensors = inputs(name, g, maker(torch.float64), 3, 4)
        hector.compile(LAYERS[name])(g, *tensors).sum().backward()
    return g


def test_recipes():
    g, other = ran(graph()), graph(seed=1)
    tables.pieces(g.plan(), "edge.dst", 4)
    assert not other.recipe()
    assert other.prepare(g.recipe()) is other
    assert other.recipe() == g.recipe()
    assert len(other.recipe()) > 5
    before = len(other.plan().tensors())
    ran(other)
    assert len(other.plan().tensors()) == before


@pytest.mark.parametrize(
    "move", [lambda g: g.to("meta"), lambda g: pickle.loads(pickle.dumps(g)), copy.deepcopy]
)
def test_what_was_derived_goes_along(move):
    g = ran(sampled(graph()))
    made = move(g)
    assert made.recipe() == g.recipe()
    assert made.sampled
    assert made.plan().counts == g.plan().counts
    assert [t.shape for t in made.tensors()] == [t.shape for t in g.tensors()]
    assert {t.device for t in made.tensors()} == {made.device}
    assert any(t is made.node_type for t in made.tensors())
    assert made.plan() is not g.plan()
    assert int(made.handle) != int(g.handle)


def test_to_the_same_device_is_the_graph_itself():
    g = graph()
    assert g.to("cpu") is g
    assert g.to(torch.device("cpu")) is g


def test_a_changed_graph_does_not_move():
    index = torch.tensor([[0, 1], [1, 0]])
    g = hector.Graph(index, torch.tensor([0, 0]), 2)
    index[0, 0] = 1
    with pytest.raises(ValueError, match="changed in place"):
        g.to("meta")


def batch(seed, sampled=True):
    """As a sampler grows them: sizes vary, and with them which form is predicted to be fastest."""
    generator = torch.Generator().manual_seed(seed)
    nodes = int(torch.randint(300, 900, (1,), generator=generator))
    edges = int(nodes * (0.8 + 0.8 * torch.rand(1, generator=generator)))
    index = torch.randint(0, nodes, (2, edges), generator=generator)
    kinds = torch.randint(0, 5, (edges,), generator=generator)
    types = torch.randint(0, 3, (nodes,), generator=generator)
    return hector.Graph(index, kinds, nodes, 5, types, 3, sampled=sampled)


@pytest.mark.parametrize("name", ["rgcn", "rgat", "rgat_heads", "typed"])
def test_a_hundred_batches_take_one_program(name):
    layer = hector.compile(LAYERS[name])
    made = maker(torch.float64)
    for seed in range(100):
        g = batch(seed)
        tensors = inputs(name, g, made, 4, 3)
        if seed % 33 == 0:
            torch.testing.assert_close(layer(g, *tensors), LAYERS[name](g, *tensors))
        else:
            layer._specialise(layer._match((g, *tensors), {}))
    assert len(layer._traces) == len(layer._built) == len(layer._candidates) == 1


def test_a_batch_of_another_size_is_decided_anew():
    layer = hector.compile(LAYERS["rgcn"])
    for nodes, edges in ((50, 100), (90, 380), (500, 3000)):
        g = sampled(graph(nodes, edges))
        layer(g, *inputs("rgcn", g, maker(torch.float32), 4, 3))
    assert len(layer._built) == 2
