# SPDX-License-Identifier: Apache-2.0
"""Triton kernels on a GPU: equality, determinism, no synchronisation, graphs, long offsets."""

import pytest
import torch
from relational_layers import LAYERS, decided, graph, inputs, maker, outputs_and_gradients

import hector
from hector.forms import Forms

pytestmark = pytest.mark.gpu

FORMS = ("auto", Forms(), Forms(False, False, True, True), Forms(False, True), Forms(True, True))
# (products in, dtype): (relative, absolute) bounds; the absolute is in units of the largest value.
# Mantissas of 24, 11, 8 and 11 bits: two to five roundings of intermediate values each.
BOUNDS = {
    ("highest", torch.float32): (1e-4, 1e-5),
    ("high", torch.float32): (2.5e-3, 2.5e-3),
    ("highest", torch.bfloat16): (2e-2, 2e-2),
    ("highest", torch.float16): (2.5e-3, 2.5e-3),
}


@pytest.fixture(autouse=True)
def matmul_precision():
    before = torch.get_float32_matmul_precision()
    yield
    torch.set_float32_matmul_precision(before)


def on_gpu(g):
    return hector.Graph(
        g.edge_index.cuda(), g.edge_type.cuda(), g.num_nodes, g.num_relations, g.node_type.cuda()
    )


def both(name, g, widths, dtype, grad=True):
    """The same inputs on the GPU, and on the CPU in fp64."""
    tensors = inputs(name, g, maker(torch.float64, grad=False), *widths)
    tensors = [(t / t.shape[-1] ** 0.5).to(dtype) for t in tensors]
    ours = tuple(t.cuda().requires_grad_(grad) for t in tensors)
    return ours, tuple(t.double().requires_grad_(grad) for t in tensors)


def check(found, expected, bounds):
    relative, absolute = bounds
    for a, b in zip(found, expected, strict=True):
        scale = float(b.detach().abs().max()) if b.numel() else 0.0
        torch.testing.assert_close(
            a.detach().cpu().double(), b.detach(), rtol=relative, atol=absolute * max(scale, 1e-3)
        )


@pytest.mark.parametrize(("precision", "dtype"), BOUNDS, ids=str)
@pytest.mark.parametrize("forms", FORMS, ids=str)
@pytest.mark.parametrize("name", LAYERS)
def test_equals_eager(name, forms, precision, dtype):
    torch.set_float32_matmul_precision(precision)
    g = graph(300, 9000, 6)
    g = decided(name, g, both(name, g, (64, 64), dtype)[1])
    ours, reference = both(name, g, (64, 64), dtype)
    expected = outputs_and_gradients(LAYERS[name], g, reference, dtype)
    layer = hector.compile(LAYERS[name], forms=forms)
    device = on_gpu(g)
    assert layer.explain(device, *ours).emitter == "triton"
    found = outputs_and_gradients(layer, device, ours)
    check(found, expected, BOUNDS[precision, dtype])
    again = outputs_and_gradients(layer, device, ours)
    assert all(torch.equal(a, b) for a, b in zip(found, again, strict=True))


def test_maximum():
    """Of many candidates, in fp32: in lower precision, other rows tie than in fp64."""
    g = graph(300, 9000, 6)
    ours, reference = both("typed", g, (64, 64), torch.float32)
    expected = outputs_and_gradients(LAYERS["typed"], g, reference)
    found = outputs_and_gradients(hector.compile(LAYERS["typed"]), on_gpu(g), ours)
    check(found, expected, BOUNDS["highest", torch.float32])


@pytest.mark.parametrize("widths", [(1, 1), (3, 16), (100, 32), (128, 128), (32, 200)], ids=str)
@pytest.mark.parametrize("name", ["rgcn", "rgat", "rgat_heads"])
def test_widths(name, widths):
    g = graph(100, 2000, 5)
    ours, reference = both(name, g, widths, torch.float32)
    expected = outputs_and_gradients(LAYERS[name], g, reference)
    found = outputs_and_gradients(hector.compile(LAYERS[name]), on_gpu(g), ours)
    check(found, expected, (1e-3, 1e-4))


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("end", [0, 1])
def test_hubs(end, dtype):
    generator = torch.Generator().manual_seed(0)
    index = torch.randint(0, 50, (2, 30_000), generator=generator, dtype=dtype)
    index[end, :25_000] = 7
    kinds = torch.randint(0, 4, (30_000,), generator=generator, dtype=dtype)
    g = hector.Graph(index, kinds, 50, 5, torch.arange(50) % 3)
    for name in ("rgcn", "rgat"):
        ours, reference = both(name, g, (32, 64), torch.float32)
        expected = outputs_and_gradients(LAYERS[name], g, reference)
        found = outputs_and_gradients(hector.compile(LAYERS[name]), on_gpu(g), ours)
        check(found, expected, (1e-3, 1e-4))


def test_nothing_waits_for_the_device():
    g = on_gpu(graph(300, 9000, 6))
    for name in ("rgcn", "rgat", "rgat_heads"):
        ours, _ = both(name, g, (64, 64), torch.float32)
        layer = hector.compile(LAYERS[name])
        outputs_and_gradients(layer, g, ours)
        torch.cuda.synchronize()
        results = layer(g, *ours)
        seeds = torch.ones_like(results)
        torch.cuda.set_sync_debug_mode("error")
        try:
            torch.autograd.grad(layer(g, *ours), ours, seeds)
        finally:
            torch.cuda.set_sync_debug_mode("default")


def test_replayed_as_a_cuda_graph():
    g = on_gpu(graph(300, 9000, 6))
    ours, _ = both("rgat", g, (64, 64), torch.float32, grad=False)
    layer = hector.compile(LAYERS["rgat"])
    expected = layer(g, *ours)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        layer(g, *ours)
    torch.cuda.current_stream().wait_stream(side)
    recorded = torch.cuda.CUDAGraph()
    with torch.cuda.graph(recorded):
        found = layer(g, *ours)
    found.zero_()
    recorded.replay()
    assert torch.equal(found, expected)


@pytest.mark.parametrize("name", ["rgcn", "rgat", "rgat_heads"])
def test_trained_as_cuda_graphs(name):
    g = on_gpu(graph(300, 9000, 6))
    ours, _ = both(name, g, (64, 64), torch.float32)
    layer = hector.compile(LAYERS[name])
    expected = outputs_and_gradients(layer, g, ours)
    samples = tuple(tensor.detach().clone().requires_grad_() for tensor in ours)
    recorded = torch.cuda.make_graphed_callables(lambda *tensors: layer(g, *tensors), samples)
    for _ in range(2):
        found = outputs_and_gradients(lambda _, *tensors: recorded(*tensors), g, ours)
        assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


def test_kept_launches_follow_streams_and_pointers():
    g = on_gpu(graph(300, 9000, 6))
    layer = hector.compile(LAYERS["rgcn"])
    for seed in range(3):
        tensors = inputs("rgcn", g, maker(torch.float32, seed, grad=False), 64, 64)
        expected = LAYERS["rgcn"](graph(300, 9000, 6), *(t.double() for t in tensors))
        moved = [tensor.cuda() for tensor in tensors]
        torch.cuda.synchronize()
        with torch.cuda.stream(torch.cuda.Stream()):
            found = layer(g, *(tensor.clone() for tensor in moved))
            shifted = torch.empty(moved[0].numel() + 1, device="cuda")[1:].view_as(moved[0])
            shifted.copy_(moved[0])
            unaligned = layer(g, shifted, *moved[1:])
            torch.cuda.current_stream().synchronize()
        check([found, unaligned], [expected, expected], BOUNDS["highest", torch.float32])


def test_more_elements_than_32_bits_count():
    nodes, width = 2**25 + 8, 64
    generator = torch.Generator().manual_seed(0)
    index = nodes - 1 - torch.randint(0, 100, (2, 5000), generator=generator)
    g = hector.Graph(index.cuda(), torch.zeros(5000, dtype=torch.int64).cuda(), nodes, 1)
    x = torch.zeros(nodes, width, dtype=torch.bfloat16, device="cuda")
    tail = torch.randn(100, width, device="cuda").bfloat16()
    x[-100:] = tail
    found = hector.compile(lambda g, x: hector.aggregate(x[g.src], g))(g, x)
    local = index.cuda() - (nodes - 100)
    expected = torch.zeros(100, width, device="cuda").index_add(0, local[1], tail.float()[local[0]])
    torch.testing.assert_close(found[-100:].float(), expected, rtol=1e-2, atol=1e-2)
    assert not found[:-100].any()


@pytest.mark.multigpu
def test_tensors_on_another_device():
    g = graph(300, 9000, 6)
    ours, reference = both("rgat", g, (64, 64), torch.float32)
    expected = outputs_and_gradients(LAYERS["rgat"], g, reference)
    away = hector.Graph(
        g.edge_index.to("cuda:1"), g.edge_type.to("cuda:1"), g.num_nodes, g.num_relations,
        g.node_type.to("cuda:1"),
    )  # fmt: skip
    moved = tuple(t.detach().to("cuda:1").requires_grad_() for t in ours)
    assert torch.cuda.current_device() == 0
    found = outputs_and_gradients(hector.compile(LAYERS["rgat"]), away, moved)
    check(found, expected, BOUNDS["highest", torch.float32])


def test_side_stream():
    g = on_gpu(graph(300, 9000, 6))
    ours, _ = both("rgcn", g, (64, 64), torch.float32)
    layer = hector.compile(LAYERS["rgcn"])
    expected = outputs_and_gradients(layer, g, ours)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        found = outputs_and_gradients(layer, g, ours)
    side.synchronize()
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
