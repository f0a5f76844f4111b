# SPDX-License-Identifier: Apache-2.0
"""Compiled layers under torch.compile: whole graphs, changing sizes, contracts of operators."""

import gc
import weakref

import pytest
import torch
from relational_layers import LAYERS, graph, inputs, maker, outputs_and_gradients
from test_nn_layers import COUNTS, RELATIONS, TYPES, WIDTHS, Hetero
from torch._dynamo.utils import counters

import hector

SIZES = [(13, 60), (20, 90), (31, 121), (50, 300), (64, 310)]


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    counters.clear()


def whole(function):
    return torch.compile(function, fullgraph=True, backend="aot_eager")


@pytest.mark.parametrize("name", LAYERS)
def test_changing_sizes_compile_at_most_twice(name):
    layer = hector.compile(LAYERS[name])

    def model(g, *tensors):
        out = layer(g, *tensors)
        return torch.tanh(out[0] if isinstance(out, tuple) else out) * 2

    compiled = whole(model)
    for seed, (nodes, edges) in enumerate(SIZES):
        g = graph(nodes, edges, seed=seed)
        tensors = inputs(name, g, maker(torch.float64, seed), 4, 6)
        expected = outputs_and_gradients(model, g, tensors)
        found = outputs_and_gradients(compiled, g, tensors)
        for a, b in zip(found, expected, strict=True):
            torch.testing.assert_close(a, b)
    assert counters["stats"]["unique_graphs"] <= 2


def test_inductor():
    layer = hector.nn.RGCNConv(4, 6, 4)
    compiled = torch.compile(lambda g, x: torch.relu(layer(g, x)).sum(), fullgraph=True)
    g, x = graph(), torch.randn(13, 4)
    torch.testing.assert_close(compiled(g, x), torch.relu(layer(g, x)).sum())
    compiled(g, x).backward()
    assert layer.weight.grad.abs().sum() > 0


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = hector.nn.RGATConv(4, 3, 4, heads=2, dropout=0.5)
        self.second = torch.nn.ModuleList([torch.nn.Linear(6, 5), torch.nn.LayerNorm(5)])
        self.slope = 0.1
        self.weight = torch.nn.Parameter(torch.randn(4, 5, 5))

    @hector.compile
    def message(self, g, x, scale=1.0):
        for layer in self.second:
            x = layer(x)
        x = torch.nn.functional.leaky_relu(x, self.slope) * scale
        return hector.aggregate(hector.linear(x[g.src], self.weight[g.rel]), g)

    def forward(self, g, x):
        return self.message(g, self.first(g, x), scale=2.0)


def test_modules_and_methods():
    torch.manual_seed(0)
    model = Model().double().eval()
    compiled = whole(model)
    for nodes, edges in SIZES:
        g, x = graph(nodes, edges), torch.randn(nodes, 4).double()
        results = []
        for run in (compiled, model):
            model.zero_grad()
            out = run(g, x)
            out.square().sum().backward()
            results.append([out, *(p.grad for p in model.parameters())])
        for a, b in zip(*results, strict=True):
            torch.testing.assert_close(a, b)
    assert counters["stats"]["unique_graphs"] <= 2
    model.slope = 0.7
    torch.testing.assert_close(compiled(g, x), model(g, x))
    model.train()
    assert not torch.equal(compiled(g, x), compiled(g, x))


@pytest.mark.parametrize("kind", [hector.nn.HGTConv, hector.nn.HeteroSAGEConv])
def test_batches_by_node_type(kind):
    torch.manual_seed(0)
    layer = kind(WIDTHS, 6, (TYPES, RELATIONS)).double()
    compiled = whole(layer)
    for k in range(4):
        counts = {name: n + 3 * k + i * k for i, (name, n) in enumerate(COUNTS.items())}
        edges = {
            r: torch.stack([torch.randint(0, counts[end], (20 + 13 * k + i,)) for end in r[::2]])
            for i, r in enumerate(RELATIONS)
        }
        g = hector.Graph.from_pyg(Hetero(TYPES, RELATIONS, edges, counts))
        x = {name: torch.randn(counts[name], WIDTHS[name]).double() for name in TYPES}
        found, expected = compiled(g, x), layer(g, x)
        assert set(found) == set(expected)
        for name in found:
            torch.testing.assert_close(found[name], expected[name])
        sum(value.sum() for value in found.values()).backward()
    assert counters["stats"]["unique_graphs"] <= 2


def test_seeds_are_inputs():
    layer = hector.compile(lambda g, x, seed: hector.dropout(x, 0.5, seed)[g.src])
    compiled, g, x = whole(layer.__call__), graph(), torch.randn(13, 4)
    for seed in range(2, 8):
        assert torch.equal(compiled(g, x, seed), layer.function(g, x, seed))
        assert torch.equal(compiled(g, x, torch.tensor(seed)), layer.function(g, x, seed))
    assert counters["stats"]["unique_graphs"] <= 3


def test_without_gradients():
    layer = hector.compile(LAYERS["rgcn"])
    g = graph()
    tensors = inputs("rgcn", g, maker(torch.float64), 4, 6)
    compiled = whole(lambda g, *t: layer(g, *t) + 1)
    with torch.no_grad():
        out = compiled(g, *tensors)
    assert not out.requires_grad
    torch.testing.assert_close(out, layer(g, *tensors) + 1)


def test_autocast():
    layer = hector.compile(LAYERS["rgat"])
    g = graph()
    tensors = inputs("rgat", g, maker(torch.float32), 4, 6)

    def model(g, *tensors):
        with torch.autocast("cpu", torch.bfloat16):
            return layer(g, *tensors)

    found = outputs_and_gradients(whole(model), g, tensors)
    expected = outputs_and_gradients(model, g, tensors)
    assert found[0].dtype is torch.bfloat16
    assert all(grad.dtype is torch.float32 for grad in found[1:])
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b)


def test_new_widths_and_single_rows_compile_again():
    layer = hector.compile(lambda g, x, shift: hector.aggregate(x[g.src], g) + shift)
    compiled = torch.compile(layer.__call__, fullgraph=True, backend="aot_eager", dynamic=True)
    for nodes in (5, 9, 1, 7):
        for width in (2, 3, 1):
            g, x = graph(nodes, 2 * nodes, 2), torch.randn(nodes, width)
            shift = torch.randn(1, width)
            torch.testing.assert_close(compiled(g, x, shift), layer.function(g, x, shift))


def test_the_operator_checks_what_it_is_given():
    tensors, handle, rows, program = arguments("rgcn", graph())
    with pytest.raises(ValueError, match="x is"):
        torch.ops.hector.forward([tensors[0][:, :3], *tensors[1:]], handle, rows, program)
    with pytest.raises(ValueError, match="x has 12 rows"):
        torch.ops.hector.forward([tensors[0][:12], *tensors[1:]], handle, rows, program)
    with pytest.raises(RuntimeError, match="was not made in this process"):
        torch.ops.hector.forward(tensors, handle, rows, "rgcn_of_yesterday")


def test_wrong_rows_raise():
    layer = hector.compile(LAYERS["rgcn"])
    compiled = whole(lambda g, *t: layer(g, *t) + 1)
    x, *rest = inputs("rgcn", graph(), maker(torch.float64), 4, 6)
    with pytest.raises(Exception, match="exactly 13 rows"):
        compiled(graph(), x[:12], *rest)
    compiled(graph(), x, *rest)
    compiled(graph(20), *inputs("rgcn", graph(20), maker(torch.float64), 4, 6))
    with pytest.raises(Exception, match="x has 19 rows"):
        compiled(graph(20), torch.randn(19, 4).double(), *rest)


def arguments(name, g, backward=False):
    """Operands of the operators for one layer."""
    layer = hector.compile(LAYERS[name])
    tensors = inputs(name, g, maker(torch.float64), 4, 6)
    names = layer.function.__code__.co_varnames[: len(tensors) + 1]
    recipe = layer.prepare(dict(zip(names, (g, *tensors), strict=True)))
    rows = [
        g.num_nodes, g.num_edges, g.num_src_pairs, g.num_dst_pairs, g.num_relations,
        g.num_node_types,
    ]  # fmt: skip
    return list(tensors), g.handle, rows, recipe.program


@pytest.mark.parametrize("name", LAYERS)
def test_opcheck(name):
    torch.library.opcheck(torch.ops.hector.forward, arguments(name, graph()))


@pytest.mark.parametrize("name", ["rgcn", "rgat", "edge_output"])
def test_opcheck_of_the_backward(name):
    from hector.library import _ENTRIES

    g = graph()
    tensors, handle, rows, program = arguments(name, g)
    entry = _ENTRIES[program]
    made = torch.ops.hector.forward(tensors, handle, rows, program)
    at_hand = dict(zip((item.name for item in entry.trace.inputs), tensors, strict=True))
    at_hand |= {f"saved_{i}": made[place] for i, place in enumerate(entry.saved)}
    at_hand |= {f"grad_{i}": torch.ones_like(out) for i, out in enumerate(made)}
    read = [at_hand[p.attrs["name"]].detach() for p in entry.built.lowered.backward.params]
    torch.library.opcheck(torch.ops.hector.backward, (read, handle, rows, program))


def test_equal_programs_share_a_name():
    g = graph()
    assert arguments("rgat", g)[3] == arguments("rgat", graph(seed=1))[3]
    assert arguments("rgat", g)[3] != arguments("rgcn", g)[3]


def test_a_plan_goes_with_its_graph_and_its_gradients():
    compiled = whole(hector.compile(LAYERS["rgcn"]).__call__)
    g = graph()
    plan = weakref.ref(g.plan())
    tensors = inputs("rgcn", g, maker(torch.float64), 4, 6)
    out = compiled(g, *tensors)
    del g
    gc.collect()
    assert plan() is not None
    out.sum().backward()
    del out
    torch._dynamo.reset()
    gc.collect()
    assert plan() is None


def test_arguments_by_position_only_and_by_name_only():
    def layer(g, x, /, scale=1.0, *, shift=0.0):
        return hector.aggregate(x[g.src], g) * scale + shift

    g, x, compiled = graph(), torch.randn(13, 4), hector.compile(layer)
    run = whole(lambda g, x: compiled(g, x, 2.0, shift=3.0))
    torch.testing.assert_close(run(g, x), layer(g, x, 2.0, shift=3.0))
    torch.testing.assert_close(compiled(g, x, shift=1.0), layer(g, x, shift=1.0))


class OnOneGraph(torch.nn.Module):
    def __init__(self, g):
        super().__init__()
        self.g, self.layer = g, hector.nn.RGCNConv(4, 3, g.num_relations)

    def forward(self, x):
        return self.layer(self.g, x)


def test_export_by_dynamo_works_and_by_tensors_without_memory_is_refused():
    g, x = graph(), torch.randn(13, 4)
    module = OnOneGraph(g)
    expected = module(x)
    torch.testing.assert_close(torch.export.export(module, (x,), strict=True).module()(x), expected)
    with pytest.raises(RuntimeError, match=r"or torch.export\(strict=True\)"):
        torch.export.export(module, (x,), strict=False)
    assert torch.equal(module(x), expected)
