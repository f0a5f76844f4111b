# SPDX-License-Identifier: Apache-2.0
"""Calls like one before skip the checks; calls that differ in anything do not."""

import gc
import weakref

import pytest
import torch
from relational_layers import LAYERS, graph, inputs, maker, outputs_and_gradients

import hector
from hector.compiled import Compiled


@pytest.fixture
def long_ways(monkeypatch):
    """Counts the calls that are matched against traces."""
    ways = []
    match = Compiled._match

    def counted(self, *args, **kwargs):
        ways.append(self.name)
        return match(self, *args, **kwargs)

    monkeypatch.setattr(Compiled, "_match", counted)
    return ways


@pytest.mark.parametrize("name", LAYERS)
def test_the_second_call_is_short_and_equal(name, long_ways):
    g = graph()
    layer = hector.compile(LAYERS[name])
    tensors = inputs(name, g, maker(torch.float64), 4, 4)
    first = outputs_and_gradients(layer, g, tensors)
    others = inputs(name, g, maker(torch.float64, seed=1), 4, 4)
    found = outputs_and_gradients(layer, g, others)
    expected = outputs_and_gradients(LAYERS[name], g, others)
    again = outputs_and_gradients(layer, g, tensors)
    assert len(long_ways) == 1
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b)
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))


def test_what_differs_is_looked_at_again(long_ways):
    layer = hector.compile(LAYERS["rgcn_sum"])
    g = graph()
    x, w, norm = inputs("rgcn_sum", g, maker(torch.float32), 4, 4)
    layer(g, x, w, norm)

    def ways(call):
        before = len(long_ways)
        call()
        return len(long_ways) - before

    assert ways(lambda: layer(g, x, w, norm)) == 0
    assert ways(lambda: layer(g=g, norm=norm, W=w, x=x)) == 0
    assert ways(lambda: layer(graph(), x, w, norm)) == 1
    assert ways(lambda: layer(g, x.detach(), w, norm)) == 1
    assert ways(lambda: layer(g, x.double(), w.double(), norm.double())) == 1
    assert ways(lambda: layer(g, x[:, :3], w[:, :3], norm)) == 1
    with torch.no_grad():
        assert ways(lambda: layer(g, x, w, norm)) == 1
        assert not layer(g, x, w, norm).requires_grad
    with torch.autocast("cpu", torch.bfloat16):
        assert ways(lambda: layer(g, x, w, norm)) == 1
        assert ways(lambda: layer(g, x, w, norm)) == 0
        assert layer(g, x, w, norm).dtype is torch.bfloat16
    assert layer(g, x, w, norm).dtype is torch.float32
    assert ways(lambda: layer(g, x, w, norm)) == 0


def test_bad_arguments_raise_after_good_ones():
    layer = hector.compile(LAYERS["rgcn_sum"])
    g = graph()
    x, w, norm = inputs("rgcn_sum", g, maker(torch.float32), 4, 4)
    layer(g, x, w, norm)
    for args, kwargs, error in (
        ((g, x[1:], w, norm), {}, ValueError),
        ((g, x.to_sparse(), w, norm), {}, ValueError),
        ((g, x.to("meta"), w, norm), {}, ValueError),
        ((g, x, w), {}, TypeError),
        ((g, x, w, norm, x), {}, TypeError),
        ((g, x, w, norm), {"x": x}, TypeError),
        ((g, x, w), {"nrm": norm}, TypeError),
        ((g, x, w, None), {}, TypeError),
    ):
        with pytest.raises(error):
            layer(*args, **kwargs)
    g.edge_type.add_(0)
    with pytest.raises(ValueError, match="changed in place"):
        layer(g, x, w, norm)


def test_plain_values_and_seeds(long_ways):
    @hector.compile
    def layer(g, x, scale, seed):
        return hector.aggregate(hector.dropout(x[g.src], 0.5, seed) * scale, g)

    g, x = graph(), maker(torch.float32)(13, 4)
    one = layer(g, x, 2.0, 1)
    assert torch.equal(layer(g, x, 2.0, 1), one)
    assert not torch.equal(layer(g, x, 2.0, 2), one)
    assert len(long_ways) == 1
    assert torch.equal(layer(g, x, 4.0, 1), 2 * one)
    assert len(long_ways) == 2
    assert torch.equal(layer(g, x, 2.0, 1), one)
    assert len(long_ways) == 2


def test_modules_follow_their_parameters(long_ways):
    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(4, 4))

        @hector.compile
        def forward(self, g, x):
            return hector.aggregate((x @ self.weight)[g.src], g)

    g, x, layer = graph(), maker(torch.float32)(13, 4), Layer()
    before = layer(g, x)
    layer.weight = torch.nn.Parameter(2 * torch.ones(4, 4))
    torch.testing.assert_close(layer(g, x), 2 * before)
    assert len(long_ways) == 1


def test_graphs_are_not_kept():
    layer = hector.compile(LAYERS["rgcn"])
    g = graph()
    tensors = inputs("rgcn", g, maker(torch.float32, grad=False), 4, 4)
    layer(g, *tensors)
    plan = weakref.ref(g.plan())
    del g
    gc.collect()
    assert plan() is None
