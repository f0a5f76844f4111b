# SPDX-License-Identifier: Apache-2.0
"""Random programs of the front end's operators on random graphs: compiled and eager must agree."""

import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from relational_layers import maker, outputs_and_gradients
from test_compiled import graphs
from torch.nn import functional as F  # noqa: N812

import hector
from hector.forms import ALL_FORMS

WIDTH, HEADS = 4, 2
"""Every value that a program holds has so many features; a head has half of them."""


def by_heads(v):
    return v.view(v.shape[0], HEADS, WIDTH // HEADS)


FEATURES = {
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "leaky_relu": lambda v: F.leaky_relu(v, 0.3),
    "smooth": lambda v: F.gelu(v) + F.silu(v) * F.softplus(v),
    "elu": lambda v: F.elu(v, 0.5) - F.mish(v),
    "waves": lambda v: torch.sin(v) * v.cos(),
    "positive": lambda v: torch.log(torch.sqrt(v.square() + 1) + v.abs()),
    "powers": lambda v: torch.rsqrt(v**2 + 1) * 2 ** -v.abs(),
    "clamp": lambda v: v.clamp(-0.4, 0.6) * torch.reciprocal(v * v + 2),
    "normalise": lambda v: v / (1 + (v * v).sum(-1, keepdim=True)),
    "layer norm": lambda v: F.layer_norm(v, (WIDTH,)),
    "softmax": lambda v: torch.softmax(v, -1) + F.log_softmax(v * 0.1, 1),
    "extremes": lambda v: v - v.amax(1, keepdim=True) + v.logsumexp(1, keepdim=True),
    "lowest": lambda v: v * v.amin(-1)[:, None],
    "halves": lambda v: torch.cat([v[:, 2:], -v[:, :2]], 1),
    "chunks": lambda v: torch.cat(v.chunk(2, 1)[::-1], 1) + v.split([1, 3], -1)[0],
    "heads": lambda v: (by_heads(v) * by_heads(v).sum(-1, keepdim=True)).flatten(1),
    "turned": lambda v: by_heads(v).transpose(1, 2).reshape(v.shape[0], WIDTH) * 0.5,
    "stacked": lambda v: torch.stack(v.unflatten(1, (2, 2)).unbind(1), 2).flatten(1),
    "column": lambda v: v[:, 1:2].expand(-1, WIDTH) + v.narrow(1, 0, 1) + v[:, -1, None],
    "stopped": lambda v: v.detach() * v,
}
PAIRS = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: 1 - a - b / 2,
    "mul": lambda a, b: a * b,
    "larger": lambda a, b: torch.maximum(a, b) - torch.minimum(a * 2, b),
    "dot": lambda a, b: (a * b).sum(-1)[:, None] + a,
    "inner": lambda a, b: torch.einsum("rd,rd->r", a, b)[:, None] * b,
    "head dots": lambda a, b: (
        torch.einsum("rhd,rhd->rh", by_heads(a), by_heads(b))[..., None] * by_heads(a)
    ).flatten(1),
    "ratio": lambda a, b: a / (1 + b.abs()),
}
TYPED = {
    "matrix": lambda v, w, i: hector.linear(v, w["W"][i]),
    "bmm": lambda v, w, i: torch.bmm(v[:, None], w["W"][i])[:, 0],
    "einsum": lambda v, w, i: torch.einsum("rk,rkn->rn", v, w["W"][i]),
    "into heads": lambda v, w, i: hector.linear(v, w["H"][i]).flatten(1),
    "head by head": lambda v, w, i: hector.linear(by_heads(v), w["P"][i]).flatten(1),
    "scaled matrices": lambda v, w, i: hector.linear(v, (w["W"] * w["r"][:, :, None])[i]),
    "mixtures": lambda v, w, i: hector.linear(
        v, (w["r"] @ w["B"].view(WIDTH, -1)).view(w["r"].shape[0], WIDTH, WIDTH)[i]
    ),
    "vectors": lambda v, w, i: v * w["r"][i] + (w["r"] * 0.5)[i],
    "attention vector": lambda v, w, i: (hector.linear(v, w["W"][i]) * w["r"][i]).sum(-1, True) + v,
}
SHARED = {
    "matrix": lambda v, w: v @ w["M"],
    "linear": lambda v, w: F.linear(v, w["M"], w["b"]),
    "einsum": lambda v, w: torch.einsum("rk,nk->rn", v, w["M"]),
    "each head": lambda v, w: torch.einsum("rhk,hkn->rhn", by_heads(v), w["S"]).flatten(1),
    "vector": lambda v, w: v * w["b"] + 0.25,
    "column": lambda v, w: (v @ w["b"])[:, None] * w["b"],
}
AGGREGATES = ("sum", "mean", "mean_rel", "max")
KINDS = (
    ["src", "dst", "attend", "attend heads", "typed node", "dropout"]
    + ["typed edge", "shared", "features"] * 2
    + ["aggregate", "pair"] * 3
)

steps = st.lists(
    st.tuples(st.sampled_from(KINDS), *(st.integers(0, 1000) for _ in range(3))),
    min_size=3,
    max_size=12,
)


def pick(values, i):
    values = list(values.values()) if isinstance(values, dict) else values
    return values[i % len(values)]


def program(plan):
    """A model function that carries out the drawn steps, whatever they are."""

    def model(g, x, e, norm, r, W, H, P, B, t, V, U, M, b, S, seed):
        relation = {"r": r, "W": W, "H": H, "P": P, "B": B}
        kind_of = {"r": t, "W": V, "H": U, "P": U.view(U.shape[0], 2, 2, 2, 2)[:, 0], "B": B}
        shared = {"M": M, "b": b, "S": S}
        node, edge = [x], [e, norm[:, None] * r[g.rel]]
        for kind, i, j, k in plan:
            values = pick([node, edge], k)
            if kind in ("src", "dst"):
                edge.append(pick(node, i)[getattr(g, kind)])
            elif kind == "typed edge":
                table, index = pick(
                    [(relation, g.rel)] * 3 + [(kind_of, g.src_type), (kind_of, g.dst_type)], k
                )
                edge.append(torch.tanh(pick(TYPED, j)(pick(edge, i), table, index)))
            elif kind == "typed node":
                node.append(torch.tanh(pick(TYPED, j)(pick(node, i), kind_of, g.node_type)))
            elif kind == "shared":
                values.append(pick(SHARED, j)(pick(values, i), shared))
            elif kind == "attend":
                score = (pick(edge, i) * r[g.rel]).sum(-1)
                share = hector.edge_softmax(score, g, by=pick(["dst", "dst_rel"], k))
                edge.append(share[:, None] * pick(edge, j))
            elif kind == "attend heads":
                score = by_heads(pick(edge, i)).sum(-1)
                share = hector.edge_softmax(score, g, by=pick(["dst", "dst_rel"], k))
                edge.append((share[..., None] * by_heads(pick(edge, j))).flatten(1))
            elif kind == "aggregate":
                reduce = pick(AGGREGATES, k)
                # Values that meet in a maximum are told apart, so that rounding makes no ties.
                value = pick(edge, i) if reduce != "max" else pick(edge, i) + e
                value = by_heads(value) if j % 2 else value
                node.append(torch.tanh(hector.aggregate(value, g, reduce=reduce).flatten(1)))
            elif kind == "dropout":
                values.append(hector.dropout(pick(values, i), 0.25 + (j % 3) / 4, seed + j))
            elif kind == "features":
                values.append(torch.tanh(pick(FEATURES, j)(pick(values, i))))
            else:
                values.append(torch.tanh(pick(PAIRS, k // 2)(pick(values, i), pick(values, j))))
        return node[-1], torch.tanh(edge[-1]), hector.aggregate(edge[-1] * 0.5, g)

    return model


def tensors_for(g, dtype, seed):
    make = maker(dtype, seed)
    relations, types = g.num_relations, g.num_node_types
    d, h = WIDTH, WIDTH // HEADS
    return (
        make(g.num_nodes, d), make(g.num_edges, d), make(g.num_edges), make(relations, d),
        make(relations, d, d), make(relations, HEADS, d, h), make(relations, HEADS, h, h),
        make(d, d, d), make(types, d), make(types, d, d), make(types, HEADS, d, h), make(d, d),
        make(d), make(HEADS, h, h),
    )  # fmt: skip


def agree(model, forms, g, tensors, seed, **tolerance):
    expected = outputs_and_gradients(lambda g, *t: model(g, *t, seed), g, tensors)
    compiled = hector.compile(model, forms=forms)
    found = outputs_and_gradients(lambda g, *t: compiled(g, *t, seed), g, tensors)
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, **tolerance)
    again = outputs_and_gradients(lambda g, *t: compiled(g, *t, seed), g, tensors)
    assert all(torch.equal(a, b) for a, b in zip(found, again, strict=True))


@settings(deadline=None, max_examples=80, suppress_health_check=[HealthCheck.too_slow])
@given(plan=steps, forms=st.sampled_from(["auto", *ALL_FORMS]), g=graphs(), seed=st.integers(0, 5))
def test_random_program(plan, forms, g, seed):
    tensors = tensors_for(g, torch.float64, seed)
    agree(program(plan), forms, g, tensors, seed, rtol=1e-7, atol=1e-8)


@settings(deadline=None, max_examples=15, suppress_health_check=[HealthCheck.too_slow])
@given(plan=steps, g=graphs(), seed=st.integers(0, 5))
def test_random_program_in_single_precision(plan, g, seed):
    tensors = tensors_for(g, torch.float32, seed)
    agree(program(plan), "auto", g, tensors, seed, rtol=2e-3, atol=2e-3)
