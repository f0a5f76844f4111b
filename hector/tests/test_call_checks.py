# SPDX-License-Identifier: Apache-2.0
"""Bad arguments of compiled calls raise before anything is computed."""

import pytest
import torch
from relational_layers import LAYERS, graph, inputs, maker
from torch.autograd import forward_ad
from torch.utils._python_dispatch import TorchDispatchMode

import hector


class CountOperators(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.append(str(func))
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("traced", [False, True])
@pytest.mark.parametrize(("which", "space"), [(0, "node"), (1, "relation"), (2, "edge")])
@pytest.mark.parametrize("delta", [-1, 1])
def test_wrong_number_of_rows(traced, which, space, delta):
    layer = hector.compile(LAYERS["rgcn_sum"])
    g = graph()
    tensors = list(inputs("rgcn_sum", g, maker(torch.float32, grad=False), 4, 4))
    if traced:
        layer(g, *tensors)
    g.plan()
    good = tensors[which]
    rows = good.shape[0] + delta
    tensors[which] = torch.zeros(rows, *good.shape[1:])
    with (
        CountOperators() as ran,
        pytest.raises(ValueError, match=rf"{space}|exactly {good.shape[0]}"),
    ):
        layer(g, *tensors)
    assert ran.names == []


def test_row_counts_follow_the_graph_of_the_call():
    layer = hector.compile(LAYERS["rgcn"])
    tensors = inputs("rgcn", graph(), maker(torch.float32, grad=False), 4, 4)
    layer(graph(), *tensors)
    with pytest.raises(ValueError, match="x has 13 rows; a node tensor of this graph has exactly"):
        layer(graph(14), *tensors)


def test_no_graph_and_two_graphs():
    layer = hector.compile(LAYERS["rgcn"])
    with pytest.raises(TypeError, match="argument, not 0"):
        layer(torch.zeros(1), *inputs("rgcn", graph(), maker(torch.float32), 4, 4))
    two = hector.compile(lambda g, h, x: hector.aggregate(x[g.src], g))
    with pytest.raises(TypeError, match="not 2"):
        two(graph(), graph(), torch.zeros(13, 2))


def test_other_device():
    layer = hector.compile(LAYERS["rgcn"])
    tensors = inputs("rgcn", graph(), maker(torch.float32, grad=False), 4, 4)
    with pytest.raises(ValueError, match="x is on meta, the graph on cpu"):
        layer(graph(), tensors[0].to("meta"), *tensors[1:])


def test_dtypes():
    layer = hector.compile(LAYERS["rgcn"])
    x, *rest = inputs("rgcn", graph(), maker(torch.float32, grad=False), 4, 4)
    with pytest.raises(TypeError, match=r"layers.py:\d+.*different dtypes \(f32, f64"):
        layer(graph(), x.double(), *rest)
    with pytest.raises(TypeError, match="x is torch"):
        layer(graph(), x.long(), *rest)


def test_arguments_of_other_kinds():
    layer = hector.compile(lambda g, xs: hector.aggregate(xs[0][g.src], g))
    with pytest.raises(TypeError, match="argument xs is a list"):
        layer(graph(), [torch.zeros(13, 2)])


def test_sparse_input():
    layer = hector.compile(lambda g, x: hector.aggregate(x[g.src], g))
    with pytest.raises(ValueError, match="must be dense"):
        layer(graph(), torch.zeros(13, 2).to_sparse())


def test_compile_arguments():
    with pytest.raises(ValueError, match="forms='fast' is none of auto, per_edge"):
        hector.compile(forms="fast")
    with pytest.raises(TypeError, match="takes a function"):
        hector.compile(3)
    with pytest.raises(TypeError, match="name every argument"):
        hector.compile(lambda g, *xs: xs[0])
    with pytest.raises(TypeError, match="relu has no signature; wrap it"):
        hector.compile(torch.relu)
    with pytest.raises(TypeError, match="forms must be a str or Forms, not bool"):
        hector.compile(LAYERS["rgcn"], forms=True)
    with pytest.raises(TypeError, match="max_workspace must be an int of bytes, not float"):
        hector.compile(LAYERS["rgcn"], max_workspace=1e9)
    with pytest.raises(ValueError, match="must not be negative"):
        hector.compile(max_workspace=-1)


def test_transforms_of_functions_are_refused():
    layer, x = hector.compile(lambda g, x: hector.aggregate(x[g.src], g)), torch.zeros(13, 2)
    g = graph()
    transformed = {
        "grad": lambda: torch.func.grad(lambda x: layer(g, x).sum())(x),
        "vmap": lambda: torch.func.vmap(lambda x: layer(g, x))(x[None]),
        "jvp": lambda: torch.func.jvp(lambda x: layer(g, x), (x,), (x,)),
    }
    for transform in transformed.values():
        with pytest.raises(RuntimeError, match="call the eager function"):
            transform()
    with forward_ad.dual_level(), pytest.raises(RuntimeError, match="call the eager function"):
        layer(g, forward_ad.make_dual(x, x))
    expected = layer.function(g, x + 1)
    found = torch.func.vmap(lambda x: layer.function(g, x))(x[None] + 1)[0]
    torch.testing.assert_close(found, expected)


class HostMemory(torch.Tensor):
    """Stands for host memory that the graph's device reads in place."""

    def device_view(self, device):
        assert device == self.there.device
        return self.there


@pytest.mark.parametrize("name", ["rgcn", "rgat", "typed"])
def test_host_memory_is_read_through_its_view(name):
    g = graph()
    x, *rest = inputs(name, g, maker(torch.float64), 4, 3)
    host = torch.empty(x.shape, dtype=x.dtype, device="meta").as_subclass(HostMemory)
    host.there = x.detach().clone().requires_grad_()
    layer = hector.compile(LAYERS[name])
    found, expected = layer(g, host.requires_grad_(), *rest), LAYERS[name](g, x, *rest)
    torch.testing.assert_close(found, expected)
    found.sum().backward()
    expected.sum().backward()
    torch.testing.assert_close(host.there.grad, x.grad)
    host.there = host.there[:12]
    with pytest.raises(ValueError, match="x has 12 rows"):
        layer(g, host, *rest)
