# SPDX-License-Identifier: Apache-2.0
"""What cannot be compiled is refused at trace time: line, operator and remedy are named."""

import functools
import re

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
    "cumsum": (lambda g, x: torch.cumsum(x[g.src], 1), "cumsum", "the guide has the list"),
    "method": (lambda g, x: x.topk(2), "Tensor.topk", "the guide has the list"),
    "where": (lambda g, x: torch.where(x > 0, x, x), "__gt__", "conditions on values"),
    "mask": (lambda g, x: x.masked_fill(x, 0), "masked_fill", "multiply by it"),
    "branch": (lambda g, x: x if x else g, "branch", "must not depend on the data"),
    "rows as a number": (lambda g, x: x / x.shape[0], "RowCount", "a number"),
    "computed rows": (lambda g, x: x * (1 / g.num_nodes), "number of rows", "reduce='mean'"),
    "loop over rows": (lambda g, x: list(x), "loop over rows", "all rows at once"),
    "ids as data": (lambda g, x: x[g.src + 1], "ids g.src", "as edge tensors"),
    "compared ids": (lambda g, x: x[g.src] * (g.src == g.dst), "ids g.src", "as edge tensors"),
    "method of ids": (lambda g, x: g.rel.unique(), "g.rel.unique", r"x\[g.rel\] only"),
    "ids behind": (lambda g, x: x[:, g.rel], "graph index behind", "permute"),
    "einsum of three": (
        lambda g, x: torch.einsum("ed,ed,ed->e", x[g.src], x[g.src], x[g.dst]), "einsum", "one or",
    ),
    "einsum without result": (lambda g, x: torch.einsum("ij,ij", x, x), "einsum", "explicit"),
    "diagonal": (lambda g, x: torch.einsum("ii->i", x), "einsum", "explicit"),
    "whole sum": (lambda g, x: x.sum(), "sum or mean over everything", "name feature"),
    "whole amax": (lambda g, x: x.amax(), "amax over everything", "name feature"),
    "max": (lambda g, x: x.max(1), "max", r"use amax\(dim\)"),
    "global dropout": (
        lambda g, x: torch.nn.functional.dropout(x[g.src]), "global generator", "hector.dropout",
    ),
    "other tensor": (lambda g, x: x + torch.ones(3), "neither an argument", "as an argument"),
    "missing dimension": (lambda g, x: x[g.src].sum(-1) * x[g.src], "mul of", "score"),
    "element assignment": (lambda g, x: x.__setitem__(0, 1), "assignment", "new tensor"),
    "in place": (lambda g, x: x.add_(1), "add_", "x = x"),
    "augmented": (lambda g, x: x.__iadd__(1), "__iadd__", "x = x"),
    "scatter": (lambda g, x: x.index_add(0, x, x), "index_add", "hector.aggregate"),
    "unknown graph name": (lambda g, x: x[g.edge_index], "g.edge_index", "g.src, g.dst"),
    "strange argument": (
        lambda g, x: torch.sum(x[g.src], 1, dtype=torch.float64), "dtype", "before the call",
    ),
    "conversion": (lambda g, x: x[g.src].double(), "conversion of f32", "before"),
    "strided slice": (lambda g, x: x[g.src][:, ::2], "step", "step 1"),
    "integer index": (lambda g, x: x[[0, 1]], "indexing by a list", "g.src"),
    "reshape over rows": (lambda g, x: x.reshape(1.5, 2), "reshape", "integers"),
    "gelu": (
        lambda g, x: torch.nn.functional.gelu(x, approximate="tanh"), "approximate", "exact form",
    ),
    "tensor exponent": (lambda g, x: x**x, "exponent is a tensor", "exp and log"),
    "tensor bounds": (lambda g, x: x.clamp(x, x), "clamp to tensors", "torch.maximum"),
    "norm": (lambda g, x: torch.nn.functional.normalize(x[g.src]), "normalize", "rsqrt"),
    "repeat": (lambda g, x: x.repeat(1, 2), "repeat", "torch.cat"),
    "squeeze": (lambda g, x: x.squeeze(), "squeeze of every", "name the dimension"),
    "floor division": (lambda g, x: x // 2, "floordiv", "use /"),
    "two matrices": (
        lambda g, x: hector.linear(x, x[:, :, None, None, None]), "linear of", r"\(rows, k\)",
    ),
    "overwritten": (lambda g, x: torch.relu_(x * 2), "relu_", "x = x"),
    "inplace": (
        lambda g, x: torch.nn.functional.elu(x, inplace=True)[g.src], "inplace", "leave it out",
    ),
    "no dimension": (lambda g, x: x[g.src].sum([]), "over everything", "name feature"),
    "no dimension to average": (lambda g, x: x[g.src].mean(()), "over everything", "name feature"),
    "index of a truth": (lambda g, x: x[g.src][:, True], "indexing by a bool", "slices"),
    "compared rows": (lambda g, x: x if x.shape[0] == 3 else x * 2, "number of rows", "mean"),
    "compared shapes": (lambda g, x: x if x.shape == x.shape else x * 2, "number of rows", "mean"),
    "power of rows": (lambda g, x: x * x.shape[0] ** -0.5, "number of rows", "reduce='mean'"),
    "new tensor": (lambda g, x: torch.zeros_like(x), "torch.zeros_like", "pass it"),
    "stacked": (lambda g, x: torch.hstack([x, x]), "torch.hstack", "torch.cat"),
    "no seed": (lambda g, x: hector.dropout(x[g.src], 0.5, None), "seed", "int64 tensor"),
}  # fmt: skip


@pytest.mark.parametrize("case", UNSUPPORTED)
def test_unsupported(case):
    function, operator, remedy = UNSUPPORTED[case]
    code = function.__code__
    lines = {line for _, _, line in code.co_lines() if line}
    with pytest.raises(RuntimeError, match=operator) as caught:
        run(function, x())
    text = str(caught.value)
    assert type(caught.value).__name__ == "UnsupportedError", text
    assert any(f"{__file__}:{line}:" in text for line in lines)
    assert re.search(f"; .*{remedy}", text), text


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
    with pytest.raises(TypeError, match="returned a tuple"):
        run(lambda g, x: (), x())


class Doubles:
    def __call__(self, g, x):
        return x[g.src] * 2


def test_callables_without_a_name():
    features, g = x(), graph()
    partial = functools.partial(lambda k, g, x: x[g.src] * k, 2.0)
    for layer in (hector.compile(Doubles()), hector.compile(partial)):
        torch.testing.assert_close(layer(g, features), features[g.src] * 2)
        assert layer.name in str(layer.explain(g, features))


def test_a_weight_is_not_expanded_to_rows():
    for expand in (lambda g, x, b: b.expand(g.num_nodes, 2), lambda g, x, b: b.expand_as(x[:, :2])):
        with pytest.raises(
            RuntimeError, match=r"a weight expanded to rows .* is a sum of products"
        ):
            run(
                lambda g, x, b, e=expand: torch.cat([x, e(g, x, b)], 1)[g.src],
                x(),
                torch.ones(1, 2),
            )


def test_autocast_inside():
    def layer(g, x):
        with torch.autocast("cpu", torch.bfloat16):
            return hector.aggregate(x[g.src], g)

    with pytest.raises(RuntimeError, match=r"a change of autocast .* around the call"):
        run(layer, x())


@pytest.mark.parametrize(
    ("function", "error", "text"),
    [
        (
            lambda g, x: x * torch.zeros(x.shape[0], 3),
            TypeError,
            "zeros().*made outside and passed",
        ),
        (lambda g, x: x.sum(5), IndexError, "sum: dimension 5"),
        (lambda g, x: x.sum((1, 1)), IndexError, "appears twice"),
        (lambda g, x: x.clamp(), ValueError, "clamp without a bound"),
        (lambda g, x: torch.cat([x, x[:, 0]], 1), ValueError, "cat of"),
        (lambda g, x: x.view(13, 3, 1).movedim((1, 2), (1, 1)), ValueError, "movedim"),
        (lambda g, x: torch.nn.functional.layer_norm(x, ()), ValueError, "layer_norm over"),
    ],
)
def test_what_fails_eagerly_too_names_the_line(function, error, text):
    with pytest.raises(error, match=rf"{__file__}:\d+: `.*{text}"):
        run(function, x())
