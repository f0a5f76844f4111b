# SPDX-License-Identifier: Apache-2.0
"""Every form that the front end takes equals the same text run eagerly, gradients included."""

import pytest
import torch
from relational_layers import graph, maker, outputs_and_gradients
from torch.nn import functional as F  # noqa: N812

import hector

D, HEADS, N = 6, 3, 4
"""Features of a row, heads, columns of a matrix; a head has two features."""

SHAPES = {
    "x": ("node", D), "e": ("edge", D), "norm": ("edge",), "r": ("relation", D), "t": ("type", D),
    "W": ("relation", D, N), "K": ("type", D, N), "H": ("relation", HEADS, D, N),
    "P": ("relation", HEADS, 2, N), "a": ("relation", HEADS, 2), "M": (D, N), "S": (HEADS, 2, N),
    "b": (D,), "c": ("relation", 2), "B": (2, D, N), "one": (1,), "L": (N, D), "s": (HEADS, 2),
}  # fmt: skip

INDEXING = {
    "source, destination": lambda g, x: x[g.src] * x[g.dst],
    "relation": lambda g, x, r: x[g.src] + r[g.rel],
    "node type": lambda g, x, t: x * t[g.node_type],
    "source and destination types": lambda g, t: t[g.src_type] - t[g.dst_type],
    "type of a source": lambda g, t: t[g.node_type[g.src]] + t[g.node_type][g.dst],
    "with features": lambda g, x: x[g.src, 1:3] * x[g.dst, -2:],
    "a column": lambda g, x: x[g.src, 0] + x[g.dst][:, 1],
    "index_select": lambda g, x, r: x.index_select(0, g.src) + torch.index_select(r, 0, g.rel),
    "embedding": lambda g, x, r: F.embedding(g.rel, r) * x[g.src],
    "new dimensions": lambda g, x: x[g.src][:, None, :, None][..., 0],
    "edge features and norms": lambda g, x, e, norm: norm[:, None] * (x[g.src] + e),
    "self-loops": lambda g, x, W, M: (
        hector.aggregate(hector.linear(x[g.src], W[g.rel]), g, reduce="mean") + x @ M
    ),
}
PRODUCTS = {
    "typed": lambda g, x, W: hector.linear(x[g.src], W[g.rel]),
    "typed by node": lambda g, x, K: hector.linear(x, K[g.node_type]),
    "typed by source": lambda g, x, K: hector.linear(x[g.src], K[g.src_type]),
    "typed by destination": lambda g, x, K: hector.linear(x[g.dst], K[g.dst_type]),
    "shared": lambda g, x, M: hector.linear(x, M) + x @ M,
    "into heads": lambda g, x, H: hector.linear(x[g.src], H[g.rel]),
    "head by head": lambda g, x, P: hector.linear(x.view(-1, HEADS, 2)[g.src], P[g.rel]),
    "many rows each": lambda g, x, P: hector.linear(x.view(-1, HEADS, 2)[g.src], P[g.rel][:, 0]),
    "bmm": lambda g, x, W: torch.bmm(x[g.src].unsqueeze(1), W[g.rel]).squeeze(1),
    "matmul": lambda g, x, W: (x[g.src][:, None] @ W[g.rel])[:, 0],
    "matmul of heads": lambda g, x, P: (x.view(-1, HEADS, 1, 2)[g.src] @ P[g.rel]).squeeze(2),
    "transposed": lambda g, x, L: F.linear(x[g.src], L) + x[g.dst] @ L.T,
    "with bias": lambda g, x, L, M: F.linear(x, L, M[0]),
    "addmm": lambda g, x, M, e: torch.addmm(M[0], x, M)[g.src],
    "vector": lambda g, x, b: x[g.src] @ b + torch.mv(x, b)[g.dst],
    "basis": lambda g, x, c, B: hector.linear(
        x[g.src], (c @ B.view(2, -1)).view(c.shape[0], D, N)[g.rel]
    ),
    "matrices first": lambda g, x, K, W: hector.linear(x[g.src], (W * 0.5)[g.rel]),
}
EINSUM = {
    "rows": lambda g, x, W: torch.einsum("ek,ekn->en", x[g.src], W[g.rel]),
    "into heads": lambda g, x, H: torch.einsum("ek,ehkn->ehn", x[g.src], H[g.rel]),
    "head by head": lambda g, x, P: torch.einsum(
        "ehk,ehkn->ehn", x.view(-1, HEADS, 2)[g.src], P[g.rel]
    ),
    "matrix first": lambda g, x, W: torch.einsum("ekn,ek->en", W[g.rel], x[g.src]),
    "shared": lambda g, x, M: torch.einsum("nk,kh->nh", x, M),
    "shared first": lambda g, x, M: torch.einsum("kh,nk->nh", M, x),
    "shared transposed": lambda g, x, L: torch.einsum("nk,hk->nh", x, L),
    "shared heads": lambda g, x, S: torch.einsum("nhk,hkm->nhm", x.view(-1, HEADS, 2), S),
    "heads last": lambda g, x, S: torch.einsum("nhk,hkm->nmh", x.view(-1, HEADS, 2), S),
    "inner": lambda g, x: torch.einsum("ed,ed->e", x[g.src], x[g.dst]),
    "attention": lambda g, x, s: torch.einsum("ehd,hd->eh", x.view(-1, HEADS, 2)[g.src], s),
    "typed attention": lambda g, x, a: torch.einsum(
        "ehd,ehd->eh", x.view(-1, HEADS, 2)[g.src], a[g.rel]
    ),
    "scaled": lambda g, x, norm: torch.einsum("e,ed->ed", norm, x[g.src]),
    "one tensor": lambda g, x: torch.einsum("nij->nj", x.view(-1, HEADS, 2)),
    "transposition": lambda g, x: torch.einsum("nij->nji", x.view(-1, HEADS, 2)),
    "summed first": lambda g, x, M: torch.einsum("nk,kh->n", x, M),
    "outer": lambda g, x, b: torch.einsum("ni,j->nij", x[:, :2], b),
    "features": lambda g, x, e: torch.einsum(
        "ehi,ehj->eij", x.view(-1, HEADS, 2)[g.src], e.view(-1, HEADS, 2)
    ),
    "features and one more": lambda g, x, e: torch.einsum(
        "emi,eij->emj", x.view(-1, 3, 2)[g.src], e.view(-1, 2, 3)
    ),
    "nodes only": lambda g, x: torch.einsum("ehi,ehj->eij", *[x.view(-1, HEADS, 2)] * 2),
    "many rows": lambda g, x, W: torch.einsum(
        "emk,ekn->emn", torch.stack([x[g.src], x[g.dst]], 1), W[g.rel]
    ),
    "weights": lambda g, x, c, B: hector.linear(x[g.src], torch.einsum("rb,bkn->rkn", c, B)[g.rel]),
}
ELEMENTWISE = {
    "arithmetic": lambda g, x: 1 - (2 * x[g.src] + 3) / (x[g.dst] * x[g.dst] + 1) - x[g.src] / 2,
    "exp log": lambda g, x: torch.log(torch.exp(x[g.src]) + 1),
    "roots": lambda g, x: torch.sqrt(x[g.src] ** 2 + 1) + torch.rsqrt(x[g.dst].square() + 1),
    "reciprocal abs": lambda g, x: torch.reciprocal(abs(x[g.src]) + 1) * x.abs()[g.dst],
    "powers": lambda g, x: 2**x + torch.pow(x, 3) + 1.5 ** x[:, :1],
    "waves": lambda g, x: torch.sin(x[g.src]) * x[g.dst].cos(),
    "relu elu": lambda g, x: torch.relu(x[g.src]) + F.elu(x[g.dst], 0.7) + F.selu(x[g.src]),
    "smooth": lambda g, x: F.gelu(x[g.src]) + F.softplus(x[g.dst]) * F.silu(x[g.src]),
    "more": lambda g, x: F.logsigmoid(x) + F.mish(x) + torch.tanh(x) * torch.sigmoid(-x),
    "leaky": lambda g, x, one: F.leaky_relu(x[g.src], 0.3) + F.prelu(x[g.dst], one.abs()),
    "clamp": lambda g, x: x.clamp(-0.5, 0.5) + torch.clamp(x, min=0) - x.clamp_max(1),
    "larger": lambda g, x, b: torch.maximum(x[g.src], x[g.dst]) + torch.minimum(x[g.src], b),
    "broadcast": lambda g, x, b, norm: norm[:, None] * x[g.src] * b + norm[:, None],
    "detach": lambda g, x: x[g.src].detach() * x[g.dst],
    "written otherwise": lambda g, x, b: (
        torch.add(x[g.src], x[g.dst], alpha=2)
        - torch.sub(b, +x[g.src], alpha=0.5)
        + torch.rsub(x[g.src], 1) * F.softplus(x[g.dst], beta=2)
    ),
    "conversion to what it is": lambda g, x: x[g.src].double().to(x.dtype).type_as(x),
}
FEATURES = {
    "sums": lambda g, x: x.view(-1, HEADS, 2).sum((1, 2)) + x.sum(1) + x.mean(-1),
    "kept": lambda g, x: (-x[g.src]).sum(1, keepdim=True) + x[g.src].mean(1, keepdim=True),
    "extremes": lambda g, x: x.amax(-1)[:, None] + x.view(-1, 3, 2).amin((1,), keepdim=True)[:, 0],
    "softmax": lambda g, x: torch.softmax(x[g.src], -1) + F.softmax(x[g.dst] * 50, dim=1),
    "logarithms": lambda g, x: F.log_softmax(x, 1) + torch.logsumexp(x, 1, keepdim=True),
    "layer norm": lambda g, x, b: F.layer_norm(x[g.src], (D,), b, b) + F.layer_norm(x[g.dst], [D]),
    "vecdot": lambda g, x: torch.linalg.vecdot(x[g.src], x[g.dst]),
    "cat": lambda g, x: torch.cat((x[g.src], x[g.dst] ** 3), -1)[..., None],
    "stack": lambda g, x: torch.stack([x[g.src], x[g.dst]], 1).flatten(1),
    "split": lambda g, x: torch.cat(torch.split(x[g.src], 4, 1)[::-1], 1),
    "split by sizes": lambda g, x: x.split([1, 2, 3], dim=-1)[2] * x[:, :1],
    "chunk": lambda g, x: x[g.src].chunk(2, -1)[0] * x[g.dst].chunk(4, 1)[1].sum(-1)[:, None],
    "unbind": lambda g, x: sum(x.view(-1, HEADS, 2).unbind(1)),
    "heads": lambda g, x: x.unflatten(1, (HEADS, -1)).flatten(1).reshape(x.shape[0], 2, 3),
    "views": lambda g, x: x[g.src].view(-1, 3, 2).transpose(1, 2).squeeze(1)[:, 1:].contiguous(),
    "permute": lambda g, x: x.view(-1, 3, 2, 1).permute(0, 2, 3, 1).movedim(1, 3).swapaxes(1, 2),
    "expand": lambda g, x: x[:, :1].expand(-1, 3) + x[:, :3].broadcast_to(x.shape[0], 3),
    "names of NumPy": lambda g, x: x.sum(axis=-1, keepdims=True) + torch.mean(x, axis=1)[:, None],
    "several at once": lambda g, x: (
        x[:, None, :, None].squeeze((1, 3)).view(-1, 3, 2).movedim((1, 2), (2, 1))
    ),
    "shape of a weight": lambda g, x, M: x @ M * M.shape[0] ** -0.5 * M.size(1),
    "like": lambda g, x: x.view(-1, 2, 3).reshape_as(x) + x[:, :1].expand_as(x),
    "narrow": lambda g, x: x.narrow(1, 2, 3) + x.select(1, 0)[:, None],
    "weights": lambda g, x, M, b: x @ (M.sum(0) * torch.cat([b, b])[:D, None]),
}
EDGES = {
    **{
        f"aggregate {reduce}": (
            lambda g, x, e, reduce=reduce: hector.aggregate(x[g.src] * e, g, reduce=reduce)
        )
        for reduce in ("sum", "mean", "mean_rel", "max")
    },
    **{
        f"softmax by {by}": (
            lambda g, x, e, by=by: hector.aggregate(
                hector.edge_softmax((x[g.src] * e).view(-1, HEADS, 2).sum(-1), g, by=by)[..., None]
                * x.view(-1, HEADS, 2)[g.src],
                g,
            )
        )
        for by in ("dst", "dst_rel")
    },
    "edge result": lambda g, x, norm: hector.edge_softmax(norm + x[g.src, 0], g),
}
DROPOUT = {
    "edges": lambda g, x: hector.dropout(x[g.src], 0.5, 1) + hector.dropout(x, 0.25, 7)[g.dst],
    "attention": lambda g, x, norm: hector.aggregate(
        hector.dropout(hector.edge_softmax(norm, g), 0.4, 3)[:, None] * x[g.src], g
    ),
    "weights": lambda g, x, M: x @ hector.dropout(M, 0.5, 3),
    "relations": lambda g, x, r: hector.dropout(r, 0.5, -4)[g.rel] * x[g.src],
    "nothing": lambda g, x: hector.dropout(x, 0.0, 3) + F.dropout(x, 0.5, False),
    "large seeds": lambda g, x: hector.dropout(x, 0.5, 1 << 62) * hector.dropout(x, 0.5, -1 << 80),
}

CASES = {
    f"{group}: {name}": function
    for group, cases in {
        "indexing": INDEXING, "products": PRODUCTS, "einsum": EINSUM, "elementwise": ELEMENTWISE,
        "features": FEATURES, "edges": EDGES, "dropout": DROPOUT,
    }.items()
    for name, function in cases.items()
}  # fmt: skip


def inputs_of(function, g, dtype=torch.float64):
    """The tensors that a case names as its arguments."""
    rows = {
        "node": g.num_nodes, "edge": g.num_edges, "relation": g.num_relations,
        "type": g.num_node_types,
    }  # fmt: skip
    code = function.__code__
    names = [n for n in code.co_varnames[1 : code.co_argcount] if n in SHAPES]
    make = maker(dtype, 3)
    return tuple(make(*(rows.get(n, n) for n in SHAPES[name])) for name in names)


@pytest.mark.parametrize("forms", ["per_edge", hector.Forms(True, True, True, True)], ids=str)
@pytest.mark.parametrize("case", CASES)
def test_equals_eager(case, forms):
    function, g = CASES[case], graph()
    tensors = inputs_of(function, g)
    expected = outputs_and_gradients(function, g, tensors)
    found = outputs_and_gradients(hector.compile(function, forms=forms), g, tensors)
    for a, b in zip(found, expected, strict=True):
        assert a.shape == b.shape
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("case", [c for c in CASES if c.startswith(("elementwise", "features"))])
def test_gradients_against_differences(case):
    function, g = CASES[case], graph(5, 7)
    if "detach" in case:
        pytest.skip("differences see through detach")
    tensors = inputs_of(function, g)
    compiled = hector.compile(function)
    assert torch.autograd.gradcheck(lambda *args: compiled(g, *args), tensors, fast_mode=True)


def test_wide_heads_are_separate_products():
    def layer(g, x, P):
        return hector.linear(x.view(x.shape[0], 5, 64)[g.src], P[g.rel])

    g, make = graph(), maker(torch.float64)
    tensors = make(13, 320), make(4, 5, 64, 7)
    expected = outputs_and_gradients(layer, g, tensors)
    found = outputs_and_gradients(hector.compile(layer), g, tensors)
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b)


def test_ties_share_gradients_as_in_torch():
    def layer(g, x):
        return torch.maximum(x[g.src], x[g.src] * 1) + x.amax(1)[g.dst, None] + x.clamp(0, 1)[g.src]

    g = graph()
    x = torch.randint(-1, 2, (13, 4)).double().requires_grad_()
    expected = outputs_and_gradients(layer, g, (x,))
    found = outputs_and_gradients(hector.compile(layer), g, (x,))
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b)
