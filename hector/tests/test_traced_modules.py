# SPDX-License-Identifier: Apache-2.0
"""Modules inside compiled functions: whatever they hold, however they are called, is followed."""

import copy
import pickle

import pytest
import torch
from relational_layers import LAYERS, graph
from torch.nn import functional as F  # noqa: N812

import hector

NODES, RELATIONS = 13, 4


def x():
    return torch.randn(NODES, 3)


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(RELATIONS, 3, 3))
        self.out = torch.nn.Linear(3, 2)
        self.slope = 0.2
        self.norms = torch.nn.ModuleList([torch.nn.Linear(3, 3, bias=False)])

    def message(self, g, x):
        return hector.linear(x[g.src], self.weight[g.rel])

    def eager(self, g, x):
        h = torch.nn.functional.leaky_relu(hector.aggregate(self.message(g, x), g), self.slope)
        return self.out(self.norms[0](h))

    forward = hector.compile(eager)


def test_methods_of_modules():
    torch.manual_seed(0)
    layer, g, features = Layer(), graph(), x()
    torch.testing.assert_close(layer(g, features), layer.eager(g, features))
    layer(g, features).sum().backward()
    found = {name: p.grad.clone() for name, p in layer.named_parameters()}
    layer.zero_grad()
    layer.eager(g, features).sum().backward()
    for name, parameter in layer.named_parameters():
        torch.testing.assert_close(found[name], parameter.grad)


def test_replaced_parameters_and_changed_values_are_seen():
    torch.manual_seed(0)
    layer, g, features = Layer(), graph(), x()
    layer(g, features)
    layer.weight = torch.nn.Parameter(torch.randn(RELATIONS, 3, 3))
    torch.testing.assert_close(layer(g, features), layer.eager(g, features))
    layer.slope = 0.9
    torch.testing.assert_close(layer(g, features), layer.eager(g, features))
    layer.out = torch.nn.Identity()
    torch.testing.assert_close(layer(g, features), layer.eager(g, features))


class Stack(torch.nn.Module):
    def __init__(self, depth):
        super().__init__()
        convs = [hector.nn.RGCNConv(3, 3, RELATIONS) for _ in range(depth)]
        self.layers = torch.nn.ModuleList(convs)

    def eager(self, g, x):
        for layer in self.layers:
            x = torch.relu(layer(g, x))
        return x

    forward = hector.compile(eager)


def test_compiled_layers_inside_a_compiled_method_become_one_program():
    torch.manual_seed(0)
    stack, g, features = Stack(3), graph(), x()
    torch.testing.assert_close(stack(g, features), stack.eager(g, features))
    assert Stack.forward.explain(stack, g, features).source.count("def ") == 2
    stack.layers.append(hector.nn.RGCNConv(3, 3, RELATIONS))
    torch.testing.assert_close(stack(g, features), stack.eager(g, features))


NAMES = (["a", "b", "c"], [("a", "r", "b"), ("b", "r", "c"), ("a", "s", "a"), ("c", "r", "c")])
LAYERS_INSIDE = {
    "RGCN, bases": lambda: hector.nn.RGCNConv(6, 6, RELATIONS, num_bases=2),
    "RGCN, blocks": lambda: hector.nn.RGCNConv(6, 6, RELATIONS, num_blocks=3),
    "RGAT": lambda: hector.nn.RGATConv(6, 3, RELATIONS, heads=2, dropout=0.5).eval(),
    "HGT": lambda: hector.nn.HGTConv(6, 6, NAMES, heads=2),
    "SAGE": lambda: hector.nn.HeteroSAGEConv(6, 6, NAMES, relation_aggr="mean"),
}


class Twice(torch.nn.Module):
    def __init__(self, make):
        super().__init__()
        self.first, self.second = make(), make()

    def eager(self, g, x):
        return self.second(g, torch.relu(self.first(g, x)))

    forward = hector.compile(eager)


@pytest.mark.parametrize("name", LAYERS_INSIDE)
def test_every_layer_inside(name):
    torch.manual_seed(0)
    module = Twice(LAYERS_INSIDE[name]).double()
    for g in (graph(), graph(20, 80)):
        features = torch.randn(g.num_nodes, 6, dtype=torch.float64)
        expected = module.eager(g, features)
        torch.testing.assert_close(module(g, features), expected)
        found, wanted = (
            torch.autograd.grad(out.square().sum(), list(module.parameters()))
            for out in (module(g, features), expected)
        )
        torch.testing.assert_close(found, wanted)
    with pytest.raises((RuntimeError, ValueError), match=r"relation|exactly"):
        module(graph(relations=RELATIONS + 1), torch.randn(13, 6, dtype=torch.float64))


class Everything(torch.nn.Module):
    """Holds parameters in every way that PyTorch offers."""

    def __init__(self):
        super().__init__()
        self.heads, self.shape = 2, (2, 3)
        self.listed = torch.nn.ParameterList([torch.randn(RELATIONS, 6, 6) for _ in range(2)])
        self.named = torch.nn.ParameterDict({"a": torch.nn.Parameter(torch.randn(RELATIONS, 6))})
        self.inner = torch.nn.ModuleDict({"linear": torch.nn.Linear(6, 6)})
        self.mlp = torch.nn.Sequential(
            torch.nn.Linear(6, 6), torch.nn.ReLU(), torch.nn.Dropout(0.5), torch.nn.LayerNorm(6),
            torch.nn.PReLU(), torch.nn.GELU(),
        )  # fmt: skip
        self.embedding = torch.nn.Embedding(RELATIONS, 6)
        self.register_buffer("scale", torch.ones(6))

    def eager(self, g, x):
        for weight in self.listed:
            x = hector.aggregate(hector.linear(x[g.src], weight[g.rel]), g, reduce="mean")
        x = x + hector.aggregate(self.named["a"][g.rel] * self.embedding(g.rel), g)
        x = self.mlp(self.inner["linear"](x)) * self.scale
        return x.view(-1, *self.shape).sum(1) + x.view(x.shape[0], self.heads, -1).mean(1)

    forward = hector.compile(eager)


def test_parameters_wherever_they_are():
    torch.manual_seed(0)
    module, g, features = Everything().eval(), graph(), torch.randn(NODES, 6)
    torch.testing.assert_close(module(g, features), module.eager(g, features))
    whole = torch.compile(module, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(whole(g, features), module.eager(g, features))
    module.train()
    with pytest.raises(RuntimeError, match="global generator"):
        module(g, features)


class Names(torch.nn.Module):
    """Has names that the traced module might use itself, and functions of every kind."""

    def __init__(self):
        super().__init__()
        self._path, self._module, self._guard = 2.0, 3.0, torch.nn.Parameter(torch.ones(3))
        self.first, self.second = F.relu, torch.tanh
        self.parts = torch.nn.ModuleDict({"a": torch.nn.Linear(3, 3), "b": torch.nn.Tanh()})
        self.linear = torch.nn.utils.parametrizations.weight_norm(torch.nn.Linear(3, 3))
        self.last = torch.nn.ModuleList([torch.nn.Identity(), torch.nn.Softplus(beta=2.0)])

    @staticmethod
    def halved(x):
        return x / 2

    @classmethod
    def doubled(cls, x):
        return x * 2 * len(cls.__name__)

    def eager(self, g, x):
        h = self.first(self.halved(x) * self._path + self._module * self._guard)
        for name, part in self.parts.items():
            h = part(h) * (2 if isinstance(part, torch.nn.Linear) and name in self.parts else 3)
        for part in self.parts.values():
            h = part(h)
        h = self.last[-1](self.doubled(self.linear(self.second(h)))) + (
            1 if "b" in self.parts else 0
        )
        return h[g.src] + self.extra if hasattr(self, "extra") else h[g.src]

    forward = hector.compile(eager)


def test_names_functions_and_containers():
    torch.manual_seed(0)
    module, g, features = Names(), graph(), x()
    torch.testing.assert_close(module(g, features), module.eager(g, features))
    module(g, features).sum().backward()
    assert all(parameter.grad is not None for parameter in module.parameters())
    module.first = F.silu
    torch.testing.assert_close(module(g, features), module.eager(g, features))
    module.extra = 2.0
    torch.testing.assert_close(module(g, features), module.eager(g, features))
    module.parts["c"] = torch.nn.Sigmoid()
    torch.testing.assert_close(module(g, features), module.eager(g, features))


def test_functions_under_torch_compile():
    torch.manual_seed(0)
    module, g, features = Names(), graph(), x()
    whole = torch.compile(module, fullgraph=True, backend="aot_eager")
    for function in (F.silu, torch.tanh, F.relu):
        module.first = function
        torch.testing.assert_close(whole(g, features), module.eager(g, features))


def test_functions_as_arguments():
    layer = hector.compile(lambda g, x, act: act(x)[g.src])
    g, features = graph(), x()
    for act in (F.relu, torch.tanh, F.relu):
        torch.testing.assert_close(layer(g, features, act), act(features)[g.src])


class Remembers(torch.nn.Module):
    @hector.compile
    def forward(self, g, x):
        self.seen = x
        return x[g.src]


def test_assignment_is_refused():
    with pytest.raises(RuntimeError, match=r"assignment to self.seen .* assign it outside"):
        Remembers()(graph(), x())


class Holds(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = hector.compile(LAYERS["rgcn_sum"], forms="compact")
        self.weight = torch.nn.Parameter(torch.randn(RELATIONS, 3, 3))

    def forward(self, g, x, norm):
        return self.layer(g, x, self.weight, norm)


compiled_here = hector.compile(LAYERS["rgcn_sum"])
compiled_here.__module__, compiled_here.__qualname__ = __name__, "compiled_here"


def test_modules_with_compiled_functions_are_copied_and_pickled():
    torch.manual_seed(0)
    module, g, features, norm = Holds(), graph(), x(), torch.rand(60)
    expected = module(g, features, norm)
    for other in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        torch.testing.assert_close(other(g, features, norm), expected)
        assert other.layer.forms == module.layer.forms
        assert other.weight is not module.weight
    assert pickle.loads(pickle.dumps(compiled_here)) is compiled_here
