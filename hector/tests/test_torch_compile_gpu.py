# SPDX-License-Identifier: Apache-2.0
"""PyTorch's contracts on a GPU: operators, whole graphs, autocast, double backward, inputs."""

import pytest
import torch
from relational_layers import LAYERS, graph, inputs, maker, outputs_and_gradients
from test_torch_compile import SIZES, fresh, whole  # noqa: F401
from torch._dynamo.utils import counters

import hector

pytestmark = pytest.mark.gpu

NAMES = ["rgcn", "rgat", "rgat_heads", "edge_output"]


def on_gpu(name, g, d=16, n=16, dtype=torch.float32):
    there = hector.Graph(
        g.edge_index.cuda(), g.edge_type.cuda(), g.num_nodes, g.num_relations,
        g.node_type.cuda(), g.num_node_types,
    )  # fmt: skip
    tensors = inputs(name, g, maker(torch.float64, grad=False), d, n)
    return there, tuple((t / 4).to(dtype).cuda().requires_grad_() for t in tensors)


def close(found, expected, bound=2e-3):
    for a, b in zip(found, expected, strict=True):
        assert a.device == b.device
        assert a.dtype is b.dtype
        scale = float(b.detach().abs().max()) if b.numel() else 0.0
        torch.testing.assert_close(a, b, rtol=bound, atol=bound * max(scale, 1e-3))


def gradients(function, g, tensors):
    results = function(g, *tensors)
    results = results if isinstance(results, tuple) else (results,)
    loss = sum(torch.tanh(r.float()).sum() for r in results)
    return (*results, *torch.autograd.grad(loss, tensors, allow_unused=False))


def arguments(name, g, tensors):
    layer = hector.compile(LAYERS[name], emitter="triton")
    names = layer.function.__code__.co_varnames[: len(tensors) + 1]
    recipe = layer.prepare(dict(zip(names, (g, *tensors), strict=True)))
    rows = [
        g.num_nodes, g.num_edges, g.num_src_pairs, g.num_dst_pairs, g.num_relations,
        g.num_node_types,
    ]  # fmt: skip
    return list(tensors), g.handle, rows, recipe.program


@pytest.mark.parametrize("name", NAMES)
def test_opcheck(name):
    g, tensors = on_gpu(name, graph(30, 200))
    # Tolerances of whole operators are tested elsewhere; these are contracts.
    torch.library.opcheck(
        torch.ops.hector.forward, arguments(name, g, tensors), rtol=1e-3, atol=1e-3
    )


@pytest.mark.parametrize("name", NAMES)
def test_whole_graphs_of_changing_size(name):
    layer = hector.compile(LAYERS[name], emitter="triton")

    def model(g, *tensors):
        out = layer(g, *tensors)
        return torch.tanh(out[0] if isinstance(out, tuple) else out) * 2

    compiled = whole(model)
    for seed, (nodes, edges) in enumerate(SIZES):
        g, tensors = on_gpu(name, graph(nodes, edges, seed=seed))
        wanted = tensors if name != "edge_output" else tensors[:2]
        if name == "edge_output":
            tensors = (*wanted, tensors[2].detach())
        found = torch.autograd.grad(compiled(g, *tensors).sum(), wanted)
        close(found, torch.autograd.grad(model(g, *tensors).sum(), wanted))
    assert counters["stats"]["unique_graphs"] <= 2


def test_inductor():
    layer = hector.nn.RGCNConv(16, 16, 4).cuda()
    g, (x, *_) = on_gpu("rgcn", graph(30, 200))
    compiled = torch.compile(lambda g, x: torch.relu(layer(g, x)).sum(), fullgraph=True)
    found, expected = compiled(g, x), torch.relu(layer(g, x)).sum()
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-3)
    (grad,) = torch.autograd.grad(found, x)
    close([grad], torch.autograd.grad(expected, x))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", ["rgcn", "rgat"])
def test_autocast(name, dtype):
    g, tensors = on_gpu(name, graph(30, 200))
    layer = hector.compile(LAYERS[name], emitter="triton")
    with torch.autocast("cuda", dtype):
        low = layer(g, *tensors)
    assert low.dtype is dtype
    grads = torch.autograd.grad(low.float().sum(), tensors)
    assert all(grad.dtype is torch.float32 and grad.isfinite().all() for grad in grads)
    torch.testing.assert_close(low.float(), layer(g, *tensors), rtol=6e-2, atol=6e-2)


def test_double_backward_is_refused_and_first_is_not():
    g, tensors = on_gpu("rgcn", graph(30, 200))
    loss = hector.compile(LAYERS["rgcn"], emitter="triton")(g, *tensors).square().sum()
    first = torch.autograd.grad(loss, tensors[:2], create_graph=True)
    with pytest.raises(RuntimeError, match="gradients of gradients are not supported"):
        torch.autograd.grad(first[0].sum(), tensors[1])


def test_double_precision():
    g, tensors = on_gpu("rgat", graph(13, 60), dtype=torch.float64)
    found = gradients(hector.compile(LAYERS["rgat"], emitter="triton"), g, tensors)
    close(found, gradients(LAYERS["rgat"], g, tensors), 1e-9)


def test_a_thousand_relations():
    for sampled in (False, True):
        g, tensors = on_gpu("rgat", graph(50, 3000, 1000))
        g = hector.Graph(g.edge_index, g.edge_type, 50, 1000, sampled=sampled)
        layer = hector.compile(LAYERS["rgat"], emitter="triton")
        close(gradients(layer, g, tensors), gradients(LAYERS["rgat"], g, tensors))


def test_memory_with_gaps():
    g, tensors = on_gpu("rgat", graph(30, 200))
    apart = []
    for tensor in tensors:
        wide = torch.empty((*tensor.shape, 2), device="cuda")
        wide[..., 0] = tensor.detach()
        apart.append(wide[..., 0].requires_grad_())
    layer = hector.compile(LAYERS["rgat"], emitter="triton")
    close(gradients(layer, g, apart), gradients(layer, g, tensors), 1e-5)
    shifted = [torch.cat([t.detach().flatten()[:1], t.detach().flatten()]) for t in tensors]
    unaligned = [
        s[1:].view(t.shape).requires_grad_() for s, t in zip(shifted, tensors, strict=True)
    ]
    assert any(t.data_ptr() % 16 for t in unaligned)
    close(gradients(layer, g, unaligned), gradients(layer, g, tensors), 1e-5)


def test_products_of_more_elements_than_32_bits_count():
    nodes, width = 2**25 + 8, 64
    generator = torch.Generator().manual_seed(0)
    local = torch.randint(0, 100, (2, 5000), generator=generator)
    kinds = torch.randint(0, 3, (5000,), generator=generator).cuda()
    g = hector.Graph((local + nodes - 100).cuda(), kinds, nodes, 3)
    x = torch.zeros(nodes, width, dtype=torch.bfloat16, device="cuda")
    x[-100:] = torch.randn(100, width, device="cuda").bfloat16()
    W = (torch.randn(3, width, width, device="cuda") / 8).bfloat16()

    def layer(g, x, W):
        return hector.aggregate(hector.linear(x[g.src], W[g.rel]), g)

    tail = hector.Graph(local.cuda(), kinds, 100, 3)
    exact = [x[-100:].float().requires_grad_(), W.float().requires_grad_()]
    expected = gradients(layer, tail, exact)
    x.requires_grad_()
    W.requires_grad_()
    out = hector.compile(layer, emitter="triton")(g, x, W)
    found = torch.autograd.grad(torch.tanh(out[-100:].float()).sum(), (x, W))
    assert not out[:-100].any()
    for a, b in zip((out[-100:], found[0][-100:], found[1]), expected, strict=True):
        scale = float(b.detach().abs().max())
        torch.testing.assert_close(a.float(), b, rtol=5e-2, atol=5e-2 * scale)


def test_bad_input_is_refused_before_a_kernel_runs():
    g, (x, *rest) = on_gpu("rgcn", graph())
    layer = hector.compile(LAYERS["rgcn"], emitter="triton")
    layer(g, x, *rest)
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as seen:
        for bad, error in (
            (x[:12], ValueError), (x.cpu(), ValueError), (x.double(), TypeError),
            (x.to("meta"), ValueError),
        ):  # fmt: skip
            with pytest.raises(error):
                layer(g, bad, *rest)
        torch.cuda.synchronize()
    names = [event.name for event in seen.events()]
    assert not [name for name in names if "rgcn" in name]
    with pytest.raises(ValueError, match="edge_index is on cpu, edge_type on cuda:0"):
        hector.Graph(g.edge_index.cpu(), g.edge_type, 13, 4)


@pytest.mark.parametrize("name", NAMES)
def test_every_subset_of_gradients(name):
    g = graph(30, 200)
    there, tensors = on_gpu(name, g)
    layer = hector.compile(LAYERS[name], emitter="triton")
    doubles = [t.detach().cpu().double().requires_grad_() for t in tensors]
    expected = outputs_and_gradients(LAYERS[name], g, doubles)
    results = layer(there, *tensors)
    results = results if isinstance(results, tuple) else (results,)
    for a, b in zip(results, expected, strict=False):
        torch.testing.assert_close(a.cpu().double(), b, rtol=1e-2, atol=1e-2)
    for wanted in range(1, 1 << len(tensors)):
        for place, tensor in enumerate(tensors):
            tensor.requires_grad_(bool(wanted >> place & 1))
        results = layer(there, *tensors)
        results = results if isinstance(results, tuple) else (results,)
        active = [r for r in results if r.requires_grad]
        on = [t for t in tensors if t.requires_grad]
        grads = torch.autograd.grad(sum(r.sum() for r in active), on, allow_unused=True)
        assert all(grad is None or grad.isfinite().all() for grad in grads)
