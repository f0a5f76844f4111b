# SPDX-License-Identifier: Apache-2.0
"""What cannot be compiled is refused at trace time: line, operator and remedy are named."""

import pytest
import torch
from relational_layers import graph

import hector

NODES, RELATIONS = 13, 4


def x():
    return torch.randn(NODES, 3)


def run(function, *tensors):
    return hector.compile(function)(graph(), *tensors)


UNSUPPORTED = {
    "cumsum": (lambda g, x: torch.cumsum(x[g.src], 1), "cumsum"),
    "method": (lambda g, x: x.topk(2), "Tensor.topk"),
    "where": (lambda g, x: torch.where(x > 0, x, x), "__gt__"),
    "branch": (lambda g, x: x if x else g, "branch"),
    "rows as a number": (lambda g, x: x / x.shape[0], "a number of rows|RowCount"),
    "loop over rows": (lambda g, x: list(x), "loop over rows"),
    "ids as data": (lambda g, x: x[g.src + 1], "g.src.+|unsupported"),
    "einsum": (lambda g, x: torch.einsum("ij->i", x[g.src]), "einsum"),
    "whole sum": (lambda g, x: x.sum(), "sum or mean over everything"),
    "dropout": (lambda g, x: hector.dropout(x[g.src], 0.5, 1), "dropout"),
    "torch dropout": (lambda g, x: torch.nn.functional.dropout(x[g.src]), "dropout"),
    "other tensor": (lambda g, x: x + torch.ones(3), "neither an argument"),
    "missing dimension": (lambda g, x: x[g.src].sum(-1) * x[g.src], "mul of"),
    "element assignment": (lambda g, x: x.__setitem__(0, 1), "assignment"),
    "in place": (lambda g, x: x.add_(1), "add_"),
    "unknown graph name": (lambda g, x: x[g.edge_index], "g.edge_index"),
    "strange argument": (lambda g, x: torch.sum(x[g.src], 1, dtype=torch.float64), "sum|dtype"),
}


@pytest.mark.parametrize("case", UNSUPPORTED)
def test_unsupported(case):
    function, operator = UNSUPPORTED[case]
    line = function.__code__.co_firstlineno
    with pytest.raises((RuntimeError, TypeError), match=operator) as caught:
        run(function, x())
    if case != "ids as data":
        assert type(caught.value).__name__ == "UnsupportedError", caught.value
        assert f"{__file__}:{line}" in str(caught.value)
        assert "; " in str(caught.value)  # what to write instead


def test_matrix_for_each_edge_is_refused():
    def layer(g, x, W, s):
        return hector.aggregate(hector.linear(x[g.src], W[g.rel] * s[:, None, None]), g)

    with pytest.raises(RuntimeError, match="rows x k x n memory") as caught:
        run(layer, x(), torch.randn(RELATIONS, 3, 3), torch.randn(60))
    assert __file__ in str(caught.value)
    assert "scale the rows" in str(caught.value)


def test_matrices_without_an_index_are_refused():
    with pytest.raises((RuntimeError, ValueError), match=r"W\[g.rel\]|rows"):
        run(lambda g, x, W: hector.linear(x[g.src], W), x(), torch.randn(60, 3, 3))


def test_spaces_do_not_mix():
    with pytest.raises(ValueError, match="index the node or relation tensor by"):
        hector.compile(lambda g, x: x[g.src] + x)(graph(60, 60), torch.randn(60, 3))


def test_sum_over_rows():
    with pytest.raises(ValueError, match="rows are summed by"):
        run(lambda g, x: x[g.src].sum(0), x())


def test_aggregate_of_nodes():
    with pytest.raises(ValueError, match="needs an edge tensor, but this is a node tensor"):
        run(lambda g, x: hector.aggregate(x[g.src], g) + hector.aggregate(x, g), x())


def test_unknown_words():
    with pytest.raises(ValueError, match="reduce='median' is none of sum"):
        run(lambda g, x: hector.aggregate(x[g.src], g, reduce="median"), x())
    with pytest.raises(ValueError, match="by='src' is none of dst"):
        run(lambda g, x: hector.edge_softmax(x[g.src], g, by="src"), x())


def test_foreign_graph():
    other = graph()
    with pytest.raises(TypeError, match="own graph argument"):
        run(lambda g, x: hector.aggregate(x[g.src], other), x())


def test_node_types_missing():
    plain = hector.Graph(torch.zeros(2, 1, dtype=torch.long), torch.zeros(1, dtype=torch.long), 2)
    with pytest.raises(ValueError, match="no node types"):
        hector.compile(lambda g, t: t[g.node_type])(plain, torch.zeros(1, 2))


def test_result_must_be_a_tensor():
    with pytest.raises(TypeError, match="returned a int"):
        run(lambda g, x: 3, x())


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


OPERATORS = {
    "arithmetic": lambda g, x: 1 - (2 * x[g.src] + 3) / (x[g.dst] * x[g.dst] + 1) - x[g.src] / 2,
    "exp log": lambda g, x: torch.log(torch.exp(x[g.src]) + 1),
    "roots": lambda g, x: torch.sqrt(x[g.src] ** 2 + 1) + torch.rsqrt(x[g.dst] ** 2 + 1),
    "reciprocal abs": lambda g, x: torch.reciprocal(x[g.src].abs() + 1),
    "relu elu": lambda g, x: torch.relu(x[g.src]) + torch.nn.functional.elu(x[g.dst], 0.7),
    "smooth": lambda g, x: (
        torch.nn.functional.gelu(x[g.src])
        + torch.nn.functional.softplus(x[g.dst]) * torch.nn.functional.silu(x[g.src])
    ),
    "shapes": lambda g, x: x[g.src].view(-1, 3, 1).transpose(1, 2).squeeze(1)[:, 1:].contiguous(),
    "permute": lambda g, x: x[g.src][:, :, None].permute(0, 2, 1).flatten(1).mean(-1),
    "cat": lambda g, x: torch.cat((x[g.src], x[g.dst] ** 3), -1)[..., None],
    "negative": lambda g, x: (-x[g.src]).sum(1, keepdim=True) + x[g.src],
    "column": lambda g, x: x[g.src][:, 1] * x[g.dst][:, -1],
    "rows kept": lambda g, x: x[g.src].reshape(x[g.src].shape[0], 3, 1),
}


@pytest.mark.parametrize("case", OPERATORS)
def test_operators_equal_eager(case):
    function, g = OPERATORS[case], graph()
    compiled = hector.compile(function)
    tensor = torch.randn(NODES, 3, dtype=torch.float64, requires_grad=True)
    torch.testing.assert_close(compiled(g, tensor), function(g, tensor))
    assert torch.autograd.gradcheck(lambda value: compiled(g, value), (tensor,))
