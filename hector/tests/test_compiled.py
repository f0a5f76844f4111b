# SPDX-License-Identifier: Apache-2.0
"""Compiled layers equal the same text run eagerly, forward and backward."""

import itertools

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from relational_layers import LAYERS, graph, inputs, maker, outputs_and_gradients

import hector
from hector.forms import ALL_FORMS

COMPILED = {
    (name, forms): hector.compile(layer, forms=forms)
    for name, layer in LAYERS.items()
    for forms in ("auto", *ALL_FORMS)
}
TOLERANCE = {
    torch.float64: {"rtol": 1e-10, "atol": 1e-11},
    torch.float32: {"rtol": 2e-4, "atol": 2e-5},
    torch.bfloat16: {"rtol": 6e-2, "atol": 8e-2},
}


def check(name, forms, g, tensors):
    dtype = tensors[0].dtype
    compiled = COMPILED[name, forms]
    expected = outputs_and_gradients(LAYERS[name], g, tensors)
    found = outputs_and_gradients(compiled, g, tensors)
    assert [r.requires_grad for r in found] == [r.requires_grad for r in expected]
    for a, b in zip(found, expected, strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        torch.testing.assert_close(a, b, **TOLERANCE[dtype])
    again = outputs_and_gradients(compiled, g, tensors)
    assert all(torch.equal(a, b) for a, b in zip(found, again, strict=True))


@pytest.mark.parametrize("forms", ["auto", *ALL_FORMS], ids=str)
@pytest.mark.parametrize("name", LAYERS)
def test_every_form_equals_eager(name, forms):
    g = graph()
    check(name, forms, g, inputs(name, g, maker(torch.float64), 5, 6))


@pytest.mark.parametrize("widths", [(0, 2), (3, 0)])
@pytest.mark.parametrize("name", sorted(LAYERS.keys() - {"typed"}))  # A mean of nothing is NaN.
def test_rows_of_no_width(name, widths):
    g = graph()
    check(name, "auto", g, inputs(name, g, maker(torch.float64), *widths))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", LAYERS)
def test_lower_precision_within_bounds(name, dtype):
    g = graph(30, 200)
    make = maker(torch.float64, grad=False)
    tensors = tuple((t / 3).to(dtype).requires_grad_() for t in inputs(name, g, make, 8, 8))
    check(name, "auto", g, tensors)


@st.composite
def graphs(draw):
    nodes = draw(st.integers(1, 9))
    relations = draw(st.integers(1, 6))
    present = draw(st.lists(st.integers(0, relations - 1), unique=True))
    edges = draw(st.integers(0, 25)) if present else 0
    ends = st.lists(st.integers(0, nodes - 1), min_size=edges, max_size=edges)
    kind = st.sampled_from(present or [0])
    rel = draw(st.lists(kind, min_size=edges, max_size=edges))
    types = draw(st.lists(st.integers(0, 2), min_size=nodes, max_size=nodes))
    dtype = draw(st.sampled_from([torch.int32, torch.int64]))
    index = torch.tensor([draw(ends), draw(ends)], dtype=dtype).reshape(2, edges)
    return hector.Graph(
        index, torch.tensor(rel, dtype=dtype), nodes, relations, torch.tensor(types, dtype=dtype)
    )


def strided(tensor):
    """The same values in memory with gaps."""
    wide = torch.empty((*tensor.shape, 2), dtype=tensor.dtype)
    wide[..., 0] = tensor.detach()
    view = wide[..., 0]
    assert tensor.numel() < 2 or not view.is_contiguous()
    return view.requires_grad_(tensor.requires_grad)


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(
    g=graphs(),
    name=st.sampled_from(sorted(LAYERS)),
    widths=st.tuples(st.sampled_from([1, 2, 7]), st.sampled_from([1, 3, 8])),
    forms=st.sampled_from(["auto", *ALL_FORMS]),
    gaps=st.booleans(),
    dtype=st.sampled_from([torch.float64, torch.float32]),
    wanted=st.lists(st.booleans(), min_size=4, max_size=4),
)
def test_any_graph(g, name, widths, forms, gaps, dtype, wanted):
    tensors = inputs(name, g, maker(dtype), *widths)
    if gaps:
        tensors = tuple(strided(t) for t in tensors)
    for tensor, want in zip(tensors, wanted, strict=False):
        tensor.requires_grad_(want)
    check(name, forms, g, tensors)


@pytest.mark.parametrize("relation", [0, 1, 2])
def test_everything_in_one_relation(relation):
    g = graph()
    one = hector.Graph(g.edge_index, torch.full((60,), relation), 13, 3)
    check("rgcn", "auto", one, inputs("rgcn", one, maker(torch.float64), 4, 4))


def test_a_thousand_relations():
    g = graph(50, 300, 1000)
    check("rgat", "auto", g, inputs("rgat", g, maker(torch.float64), 3, 4))


@pytest.mark.parametrize("forms", ["auto", *ALL_FORMS], ids=str)
@pytest.mark.parametrize("name", ["rgcn", "rgat"])
def test_gradcheck(name, forms):
    g = graph(6, 15, 3)
    tensors = inputs(name, g, maker(torch.float64), 3, 2)
    compiled = COMPILED[name, forms]
    assert torch.autograd.gradcheck(lambda *args: compiled(g, *args), tensors)


@pytest.mark.parametrize("name", ["rgcn", "rgat", "edge_output"])
def test_every_subset_of_gradients(name):
    g = graph()
    count = len(inputs(name, g, maker(torch.float64), 3, 4))
    for wanted in itertools.product((False, True), repeat=count):
        tensors = inputs(name, g, maker(torch.float64), 3, 4)
        for tensor, want in zip(tensors, wanted, strict=True):
            tensor.requires_grad_(want)
        check(name, "auto", g, tensors)


def test_no_grad_builds_no_graph():
    g = graph()
    tensors = inputs("rgcn", g, maker(torch.float64), 3, 4)
    with torch.no_grad():
        assert not COMPILED["rgcn", "auto"](g, *tensors).requires_grad
    with torch.inference_mode():
        assert COMPILED["rgcn", "auto"](g, *tensors).is_inference()


def test_a_plan_made_in_inference_mode_serves_training():
    g = graph()
    tensors = inputs("rgat", g, maker(torch.float64), 3, 4)
    with torch.inference_mode():
        COMPILED["rgat", "auto"](g, *tensors)
    check("rgat", "auto", g, tensors)


def test_a_graph_made_in_inference_mode_serves_training():
    with torch.inference_mode():
        g = graph()
    tensors = inputs("rgcn", g, maker(torch.float64), 3, 4)
    layer = COMPILED["rgcn", "auto"]
    whole = torch.compile(lambda *t: layer(g, *t), backend="aot_eager", fullgraph=True)
    for run in (lambda *t: layer(g, *t), whole):  # Eager text cannot be trained on such ids.
        out = run(*tensors)
        torch.testing.assert_close(out, LAYERS["rgcn"](graph(), *tensors))
        out.sum().backward()


def test_double_backward_is_refused_and_first_is_not():
    g = graph()
    tensors = inputs("rgcn", g, maker(torch.float64), 3, 4)
    loss = COMPILED["rgcn", "auto"](g, *tensors).square().sum()
    first = torch.autograd.grad(loss, tensors[:2], create_graph=True)
    with pytest.raises(RuntimeError, match="gradients of gradients are not supported"):
        torch.autograd.grad(first[0].sum(), tensors[1])


def test_in_place_change_between_forward_and_backward_raises():
    g = graph()
    x, *rest = inputs("rgcn", g, maker(torch.float64), 3, 4)
    moved = x * 1
    out = COMPILED["rgcn", "auto"](g, moved, *rest)
    with torch.no_grad():
        moved.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


def test_a_product_of_two_tensors_without_rows():
    def model(g, x, e, M):
        return x @ M, hector.aggregate(e @ M, g)

    g, make = graph(), maker(torch.float64)
    tensors = make(13, 4), make(60, 4), make(4, 4)
    expected = outputs_and_gradients(model, g, tensors)
    found = outputs_and_gradients(hector.compile(model), g, tensors)
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b)


INFINITE = {
    "node factor": lambda g, x, c: hector.aggregate(x[g.src] * torch.reciprocal(x[g.dst]), g),
    "division": lambda g, x, c: hector.aggregate(x[g.src] / x[g.dst], g),
    "relation": lambda g, x, c: hector.aggregate(x[g.src] / c[g.rel], g, reduce="mean"),
    "logarithm": lambda g, x, c: hector.aggregate(torch.log(c[g.rel] ** 2) * x[g.src], g),
    "power": lambda g, x, c: hector.aggregate(x[g.src] ** -1 + torch.rsqrt(c[g.rel] ** 2), g),
    "exponential": lambda g, x, c: hector.aggregate(torch.exp(x[g.src]) * 2, g),
    "maximum": lambda g, x, c: hector.aggregate(x[g.dst] * x[g.src], g, reduce="max"),
    "maximum of nodes": lambda g, x, c: hector.aggregate(x[g.dst], g, reduce="max"),
}


@pytest.mark.parametrize("forms", ["auto", *ALL_FORMS], ids=str)
@pytest.mark.parametrize("case", INFINITE)
def test_rows_without_edges_stay_out_of_everything(case, forms):
    g, make = graph(), maker(torch.float64)
    x, c = make(13, 4), make(4, 4)
    with torch.no_grad():
        unused = torch.ones(13, dtype=torch.bool)
        unused[g.src], unused[g.dst] = False, False
        x[unused] = 1e4 if case == "exponential" else 0
        c[3] = 0
    assert not (g.rel == 3).any()
    receives_nothing = torch.ones(13, dtype=torch.bool)
    receives_nothing[g.dst] = False
    assert receives_nothing.any()
    expected = outputs_and_gradients(INFINITE[case], g, (x, c))
    found = outputs_and_gradients(hector.compile(INFINITE[case], forms=forms), g, (x, c))
    for a, b in zip(found, expected, strict=True):
        assert b.isfinite().all()
        torch.testing.assert_close(a, b)


def test_unused_output_and_repeated_backward():
    g = graph()
    x, W, t = inputs("edge_output", g, maker(torch.float64), 3, 4)
    _, second = COMPILED["edge_output", "auto"](g, x, W, t)
    first = torch.autograd.grad(second.sum(), t, retain_graph=True)[0]
    assert torch.equal(first, torch.autograd.grad(second.sum(), t)[0])


def test_results_do_not_share_memory_with_inputs_or_each_other():
    @hector.compile
    def through(g, x):
        return x, x.reshape(-1, 1, 2), hector.aggregate(x[g.src], g)

    g = graph()
    x = torch.randn(g.num_nodes, 2)
    results = through(g, x)
    pointers = {r.untyped_storage().data_ptr() for r in (x, *results)}
    assert len(pointers) == 4
    assert torch.equal(results[0], x)


def test_one_trace_serves_graphs_of_any_size():
    layer = hector.compile(LAYERS["rgcn"])
    for seed in range(6):
        g = graph(20 + 7 * seed, 50 + 31 * seed, 5, seed)
        tensors = inputs("rgcn", g, maker(torch.float64, seed), 5, 6)
        torch.testing.assert_close(layer(g, *tensors), LAYERS["rgcn"](g, *tensors))
    assert len(layer._traces) == 1


def test_new_widths_dtypes_and_constants_trace_again():
    @hector.compile
    def scaled(g, x, factor, bias=None):
        out = hector.aggregate(x[g.src], g) * factor
        return out if bias is None else out + bias

    g = graph()
    x = torch.randn(13, 3).double()
    base = hector.aggregate(x[g.src], g)
    torch.testing.assert_close(scaled(g, x, 2.0), 2 * base)
    torch.testing.assert_close(scaled(g, x, 3.0), 3 * base)
    torch.testing.assert_close(scaled(g, x, 3.0, bias=torch.ones(3).double()), 3 * base + 1)
    torch.testing.assert_close(scaled(g, x[:, :2], 3.0), 3 * base[:, :2])
    rounded = scaled(g, x.float(), 3.0)
    torch.testing.assert_close(rounded, 3 * base.float(), rtol=1e-5, atol=1e-5)


def test_broadcast_weight_is_not_mistaken_for_rows_on_a_graph_of_one():
    @hector.compile
    def shifted(g, x, shift):
        return hector.aggregate(x[g.src], g) + shift

    shift = torch.randn(1, 3)
    for nodes in (1, 5):
        g = graph(nodes, 7, 2)
        x = torch.randn(nodes, 3)
        torch.testing.assert_close(shifted(g, x, shift), hector.aggregate(x[g.src], g) + shift)


def test_numbers_that_always_change_are_told_of_and_forgotten():
    scaled = hector.compile(lambda g, x, by: hector.aggregate(x[g.src], g) * by)
    g, x = graph(), torch.randn(13, 3)
    for step in range(64):
        torch.testing.assert_close(scaled(g, x, step / 8), scaled.function(g, x, step / 8))
    with pytest.warns(UserWarning, match=r"traced 64 times; what differed last is by\. .* tensor"):
        scaled(g, x, 0.3)
    assert len(scaled._traces) < 64
    assert len(scaled._built) < 64
    for step in range(10):
        by = torch.tensor(step / 8)
        torch.testing.assert_close(scaled(g, x, by), scaled.function(g, x, by))
    assert len(scaled._traces) == 2


def seeded(g, x, W, seed):
    share = hector.edge_softmax((x[g.src] * x[g.dst]).sum(-1), g)
    message = hector.dropout(share, 0.3, seed)[:, None] * hector.linear(x[g.src], W[g.rel])
    return hector.aggregate(message, g, reduce="mean_rel") + hector.dropout(x, 0.5, 2)


@pytest.mark.parametrize("forms", ["per_edge", "aggregate_first", "compact"])
def test_a_default_device_does_not_move_what_a_graph_needs(forms):
    g, make = graph(), maker(torch.float32)
    tensors = make(13, 4), make(4, 4, 4)
    expected = outputs_and_gradients(lambda g, *t: seeded(g, *t, 5), g, tensors)
    layer = hector.compile(seeded, forms=forms)
    with torch.device("meta"):
        fresh = hector.Graph(g.edge_index, g.edge_type, 13, 4)
        results = layer(fresh, *tensors, 5)
    seeds = torch.linspace(-1, 1, results.numel(), dtype=torch.float64).to(results.dtype)
    with torch.device("meta"):
        found = (results, *torch.autograd.grad(results, tensors, seeds.reshape(results.shape)))
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
