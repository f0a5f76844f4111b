# SPDX-License-Identifier: Apache-2.0
"""Relational layers that read node and edge features where they lie in host memory."""

import pytest
import torch
from packages import needed

hector = needed("hector")
pytorch_direct = needed("pytorch_direct")


def rgcn(g, x, W, norm):
    return hector.aggregate(hector.linear(x[g.src], W[g.rel]) * norm[:, None], g)


def rgat(g, x, W, norm):
    z = hector.linear(x[g.src], W[g.rel])
    score = torch.nn.functional.leaky_relu((z * hector.linear(x[g.dst], W[g.rel])).sum(-1), 0.2)
    return hector.aggregate((hector.edge_softmax(score, g) * norm)[:, None] * z, g)


def raw(g, x, W, norm):
    return hector.aggregate(x[g.src] * norm[:, None], g) @ W[0]


LAYERS = {f.__name__: f for f in (rgcn, rgat, raw)}


def made(nodes=300, edges=4000, relations=5, width=32):
    generator = torch.Generator().manual_seed(0)
    index = torch.randint(0, nodes, (2, edges), generator=generator)
    kinds = torch.randint(0, relations, (edges,), generator=generator)
    tensors = (
        torch.randn(nodes, width, generator=generator),
        torch.randn(relations, width, width, generator=generator) / width,
        torch.rand(edges, generator=generator),
    )
    return index, kinds, nodes, relations, tensors


def gradients(layer, g, *tensors):
    out = layer(g, *tensors)
    return (out, *torch.autograd.grad(out.square().sum(), tensors))


def check(name, device, host):
    """Features, and edge norms, in host memory against the same in the device's."""
    index, kinds, nodes, relations, (x, W, norm) = made()
    g = hector.Graph(index.to(device), kinds.to(device), nodes, relations)
    layer = hector.compile(LAYERS[name])
    plain = [t.detach().to(device).requires_grad_() for t in (x, W, norm)]
    unified = [pytorch_direct.unified(t.clone()).requires_grad_() for t in (x, norm)]
    mixed = [unified[0], W.to(device).requires_grad_(), unified[1]]
    found, expected = gradients(layer, g, *mixed), gradients(layer, g, *plain)
    assert found[0].device.type == device
    assert found[1].device.type == host
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a.cpu(), b.cpu())
    eager = gradients(LAYERS[name], g, *plain)
    for a, b in zip(found, eager, strict=True):
        scale = float(b.detach().abs().max())
        torch.testing.assert_close(a.cpu(), b.cpu(), rtol=1e-2, atol=1e-3 * scale)
    mixed[0].grad = None
    layer(g, *mixed).sum().backward()
    assert mixed[0].grad.device.type == host
    return layer, g, mixed


@pytest.mark.parametrize("name", LAYERS)
def test_on_the_cpu(name):
    check(name, "cpu", "cpu")


def test_a_ready_made_layer():
    index, kinds, nodes, relations, (x, *_) = made()
    layer = hector.nn.RGCNConv(32, 16, relations)
    g = hector.Graph(index, kinds, nodes, relations)
    torch.testing.assert_close(layer(g, pytorch_direct.unified(x.clone())), layer(g, x))


@pytest.mark.gpu
@pytest.mark.parametrize("name", LAYERS)
def test_on_the_gpu(name):
    layer, g, tensors = check(name, "cuda", "cpu")
    # Nothing of the features' size is copied to the device: only rows that kernels read move.
    with torch.no_grad():
        layer(g, *tensors)
        torch.cuda.synchronize()
        traced = torch.profiler.ProfilerActivity.CUDA
        with torch.profiler.profile(activities=[traced]) as seen:
            layer(g, *tensors)
            torch.cuda.synchronize()
    assert not [e.name for e in seen.events() if "HtoD" in e.name]


@pytest.mark.gpu
def test_device_views_are_operands_as_well():
    index, kinds, nodes, relations, (x, W, norm) = made()
    g = hector.Graph(index.cuda(), kinds.cuda(), nodes, relations)
    layer = hector.compile(rgcn)
    expected = layer(g, x.cuda(), W.cuda(), norm.cuda())
    view = pytorch_direct.unified(x.clone()).device_view()
    assert torch.equal(layer(g, view, W.cuda(), norm.cuda()), expected)


@pytest.mark.gpu
def test_plain_host_memory_is_refused():
    index, kinds, nodes, relations, (x, W, norm) = made()
    g = hector.Graph(index.cuda(), kinds.cuda(), nodes, relations)
    with pytest.raises(ValueError, match="x is on cpu, the graph on cuda:0"):
        hector.compile(rgcn)(g, x, W.cuda(), norm.cuda())
    with pytest.raises(ValueError, match="x is on cpu, the graph on cuda:0"):
        hector.compile(rgcn)(g, x.pin_memory(), W.cuda(), norm.cuda())
