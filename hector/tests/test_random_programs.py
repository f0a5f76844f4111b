# SPDX-License-Identifier: Apache-2.0
"""Random programs of the front end's operators: compiled and eager must agree."""

import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from relational_layers import graph, maker, outputs_and_gradients

import hector
from hector.forms import ALL_FORMS

WIDTH = 4
UNARY = {
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "leaky_relu": lambda v: torch.nn.functional.leaky_relu(v, 0.3),
    "normalise": lambda v: v / (1 + (v * v).sum(-1, keepdim=True)),
    "halves": lambda v: torch.cat([v[:, 2:], -v[:, :2]], 1),
    "heads": lambda v: (v.view(-1, 2, 2) * v.view(-1, 2, 2).sum(-1, keepdim=True)).flatten(1),
}
BINARY = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "dot": lambda a, b: (a * b).sum(-1)[:, None] + a,
}
AGGREGATES = ("sum", "mean", "mean_rel", "max")

steps = st.lists(
    st.tuples(
        st.sampled_from(
            [
                "src",
                "dst",
                "rel",
                "linear",
                "linear_type",
                "shared",
                "vector",
                "attend",
                "attend_rel",
            ]
            + ["aggregate"] * 3
            + ["unary"] * 2
            + ["binary"] * 3
        ),
        st.integers(0, 100),
        st.integers(0, 100),
        st.integers(0, 100),
    ),
    min_size=3,
    max_size=12,
)


def program(plan):
    """A model function that carries out the drawn steps, whatever they are."""

    def model(g, x, e, r, W, K, M, b):
        node, edge = [x], [e, r[g.rel]]

        def pick(values, i):
            return values[i % len(values)]

        for kind, i, j, k in plan:
            if kind in ("src", "dst"):
                edge.append(pick(node, i)[getattr(g, kind)])
            elif kind == "rel":
                edge.append(pick(edge, i) * r[g.rel] + (r * 0.5)[g.rel])
            elif kind == "linear":
                edge.append(hector.linear(pick(edge, i), W[g.rel]))
            elif kind == "linear_type":
                node.append(hector.linear(pick(node, i), K[g.node_type]))
            elif kind == "shared":
                values = pick([node, edge], k)
                values.append(pick(values, i) @ M)
            elif kind == "vector":
                values = pick([node, edge], k)
                values.append(pick(values, i) * b + 0.25)
            elif kind.startswith("attend"):
                by = "dst_rel" if kind == "attend_rel" else "dst"
                weight = hector.edge_softmax((pick(edge, i) * r[g.rel]).sum(-1), g, by=by)
                edge.append(weight[:, None] * pick(edge, j))
            elif kind == "aggregate":
                reduce = pick(AGGREGATES, k)
                # Values that meet in a maximum are told apart, so that rounding makes no ties.
                value = pick(edge, i) if reduce != "max" else pick(edge, i) + e
                node.append(torch.tanh(hector.aggregate(value, g, reduce=reduce)))
            elif kind == "unary":
                values = pick([node, edge], k)
                values.append(pick(list(UNARY.values()), j)(pick(values, i)))
            else:
                values = pick([node, edge], k // 2)
                function = pick(list(BINARY.values()), k)
                values.append(torch.tanh(function(pick(values, i), pick(values, j))))
        return node[-1], torch.tanh(edge[-1]), hector.aggregate(edge[-1] * 0.5, g)

    return model


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(
    plan=steps,
    forms=st.sampled_from(ALL_FORMS),
    sizes=st.sampled_from([(13, 60, 4), (9, 5, 3), (3, 50, 2), (5, 0, 2)]),
    seed=st.integers(0, 5),
)
def test_random_program(plan, forms, sizes, seed):
    g = graph(*sizes, seed=seed)
    make = maker(torch.float64, seed)
    nodes, edges, relations = sizes
    tensors = (
        make(nodes, WIDTH), make(edges, WIDTH), make(relations, WIDTH),
        make(relations, WIDTH, WIDTH), make(3, WIDTH, WIDTH), make(WIDTH, WIDTH), make(WIDTH),
    )  # fmt: skip
    model = program(plan)
    expected = outputs_and_gradients(model, g, tensors)
    found = outputs_and_gradients(hector.compile(model, forms=forms), g, tensors)
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-7, atol=1e-8)
