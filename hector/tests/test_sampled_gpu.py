# SPDX-License-Identifier: Apache-2.0
"""Graphs that are used once, on a GPU: equal plans, one question to the device, one compilation."""

import warnings

import pytest
import torch
from relational_layers import LAYERS, graph, inputs, maker
from test_sampled_graphs import batch

import hector
from hector.ir.types import MAPS

pytestmark = pytest.mark.gpu


def fresh(g, sampled=True):
    """The graph built anew on the GPU, not moved there."""
    return hector.Graph(
        g.edge_index.cuda(), g.edge_type.cuda(), g.num_nodes, g.num_relations,
        g.node_type.cuda(), g.num_node_types, sampled=sampled,
    )  # fmt: skip


def on_gpu(name, g, dtype=torch.float32):
    tensors = inputs(name, g, maker(torch.float64, grad=False), 16, 16)
    return tuple((t / 4).to(dtype).cuda().requires_grad_() for t in tensors)


def step(layer, g, tensors):
    out = layer(g, *tensors)
    return (out, *torch.autograd.grad(out.square().sum(), tensors))


@pytest.mark.parametrize("sizes", [(13, 60, 4), (1, 1, 1), (5, 0, 3), (900, 5000, 1000)])
def test_plans_equal_those_of_the_cpu(sizes):
    g = graph(*sizes)
    ours, theirs = fresh(g).plan(), g.plan()
    assert ours.counts == theirs.counts
    assert torch.equal(ours.edge_order.cpu(), theirs.edge_order)
    assert torch.equal(ours.edge_position.cpu(), theirs.edge_position)
    for name in MAPS:
        assert torch.equal(ours.index(name).cpu(), theirs.index(name)), name
        assert torch.equal(ours.segments(name).bounds.cpu(), theirs.segments(name).bounds)
        orders = [plan.segments(name).order for plan in (ours, theirs)]
        assert (orders[0] is None) == (orders[1] is None)
        assert orders[0] is None or torch.equal(orders[0].cpu(), orders[1])


def waits(function):
    """How often a call waits for the device."""
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("warn")
    try:
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            function()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    return len([each for each in seen if "synchronizing" in str(each.message)])


def test_building_waits_once_and_steps_never():
    g = batch(0)
    index, rel, types = g.edge_index.cuda(), g.edge_type.cuda(), g.node_type.cuda()
    made = []
    assert waits(
        lambda: made.append(
            hector.Graph(index, rel, g.num_nodes, g.num_relations, types, 3, sampled=True)
        )
    ) == 1  # fmt: skip
    for name in ("rgcn", "rgat", "rgat_heads", "typed"):
        layer = hector.compile(LAYERS[name], emitter="triton")
        step(layer, fresh(batch(1)), on_gpu(name, batch(1)))
        tensors = on_gpu(name, g)
        assert waits(lambda layer=layer, tensors=tensors: step(layer, made[0], tensors)) == 0


def test_bad_ids_raise_when_the_graph_is_built():
    g = graph()
    with pytest.raises(IndexError, match="edge_index holds 13, but there are 13 nodes"):
        hector.Graph(g.edge_index.cuda() + 1, g.edge_type.cuda() * 0, 13)
    with pytest.raises(IndexError, match="edge_type holds 4294967297"):
        hector.Graph(g.edge_index.cuda(), g.edge_type.cuda() * 0 + 2**32 + 1, 13, 4)
    with pytest.raises(IndexError, match="edge_index holds -4294967296"):
        hector.Graph(g.edge_index.cuda() * 0 - 2**32, g.edge_type.cuda(), 13, 4)
    torch.cuda.synchronize()


@pytest.mark.parametrize("name", ["rgcn", "rgat", "typed"])
def test_bounded_tables_change_results_by_rounding_only(name):
    layer = hector.compile(LAYERS[name], emitter="triton")
    for g in (batch(0), graph(9, 500, 3), graph(5, 0, 3)):
        tensors = on_gpu(name, g)
        found, again, exact = (step(layer, fresh(g, once), tensors) for once in (True, True, False))
        for a, b, c in zip(found, again, exact, strict=True):
            assert torch.equal(a, b)
            largest = float(c.abs().max()) if c.numel() else 0.0
            torch.testing.assert_close(a, c, rtol=1e-3, atol=1e-4 * (largest + 1))


@pytest.mark.parametrize("name", ["rgcn", "rgat", "rgat_heads"])
def test_a_hundred_batches_are_compiled_once(name):
    from triton import knobs

    layer = hector.compile(LAYERS[name], emitter="triton")
    compiled = []
    steps = []
    before = knobs.runtime.jit_post_compile_hook
    knobs.runtime.jit_post_compile_hook = lambda **about: compiled.append(about["fn"].name)
    try:
        for seed, g in hector.prefetch(range(100), lambda seed: fresh(batch(seed))):
            results = step(layer, g, on_gpu(name, g))
            if seed == 0:
                first = len(compiled)
            if seed % 25 == 0:
                steps.append((seed, results))
        assert len(compiled) == first
    finally:
        knobs.runtime.jit_post_compile_hook = before
    assert len(layer._built) == 1
    for seed, results in steps:
        again = step(layer, fresh(batch(seed)), on_gpu(name, batch(seed)))
        assert all(torch.equal(a, b) for a, b in zip(results, again, strict=True))


def test_graphs_move_with_what_was_derived():
    g = batch(0)
    layer = hector.compile(LAYERS["rgat"], emitter="triton")
    there = fresh(g)
    expected = step(layer, there, on_gpu("rgat", g))
    here = there.to("cpu")
    assert here.recipe() == there.recipe()
    back = here.to("cuda", non_blocking=True)
    tensors = on_gpu("rgat", g)
    before = len(back.recipe())
    assert waits(lambda: step(layer, back, tensors)) == 0
    assert len(back.recipe()) == before
    found = step(layer, back, tensors)
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
