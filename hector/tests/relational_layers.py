# SPDX-License-Identifier: Apache-2.0
"""Layers and their inputs that several tests share; each is plain PyTorch indexing."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

import hector

Make = Callable[..., Tensor]


def rgcn(g, x, W, root, b):
    messages = hector.linear(x[g.src], W[g.rel])
    return hector.aggregate(messages, g, reduce="mean_rel") + x @ root + b


def rgcn_sum(g, x, W, norm):
    return hector.aggregate(norm[:, None] * hector.linear(x[g.src], W[g.rel]), g)


def rgat(g, x, W, a_src, a_dst):
    z_src, z_dst = hector.linear(x[g.src], W[g.rel]), hector.linear(x[g.dst], W[g.rel])
    score = torch.nn.functional.leaky_relu(
        (z_src * a_src[g.rel]).sum(-1) + (z_dst * a_dst[g.rel]).sum(-1), 0.2
    )
    return hector.aggregate(hector.edge_softmax(score, g)[:, None] * z_src, g)


def rgat_heads(g, x, W, a):
    z = hector.linear(x[g.src], W[g.rel])
    score = torch.tanh((z * a[g.rel]).sum(-1))
    weight = hector.edge_softmax(score, g, by="dst_rel")
    return hector.aggregate(weight.unsqueeze(-1) * z, g, reduce="mean").flatten(1)


def typed(g, x, K, Q, edge):
    k, q = hector.linear(x, K[g.node_type]), hector.linear(x, Q[g.node_type])
    gate = torch.sigmoid((k[g.src] * q[g.dst]).mean(-1, keepdim=True) + edge)
    return hector.aggregate(gate * torch.nn.functional.silu(k)[g.src], g, reduce="max")


def edge_output(g, x, W, t):
    z = hector.linear(x, t[g.node_type])
    joined = torch.cat([z[g.src], hector.linear(x[g.dst], W[g.rel])], -1)
    return joined.exp() / (1 + joined**2), z[:, :1]


def inputs(name: str, g: hector.Graph, make: Make, d: int, n: int) -> tuple[Tensor, ...]:
    """Inputs of the layer of this name."""
    nodes, edges, relations = g.num_nodes, g.num_edges, g.num_relations
    types, heads = g.num_node_types, 3
    return {
        "rgcn": lambda: (make(nodes, d), make(relations, d, n), make(d, n), make(n)),
        "rgcn_sum": lambda: (make(nodes, d), make(relations, d, n), make(edges)),
        "rgat": lambda: (
            make(nodes, d), make(relations, d, n), make(relations, n), make(relations, n),
        ),
        "rgat_heads": lambda: (
            make(nodes, d), make(relations, heads, d, n), make(relations, heads, n),
        ),
        "typed": lambda: (make(nodes, d), make(types, d, n), make(types, d, n), make(edges, 1)),
        "edge_output": lambda: (make(nodes, d), make(relations, d, n), make(types, d, n)),
    }[name]()  # fmt: skip


LAYERS = {f.__name__: f for f in (rgcn, rgcn_sum, rgat, rgat_heads, typed, edge_output)}


def maker(dtype: torch.dtype, seed: int = 0, grad: bool = True) -> Make:
    """A function that draws seeded tensors of a shape."""
    generator = torch.Generator().manual_seed(seed)

    def make(*shape: int) -> Tensor:
        values = torch.randn(shape, generator=generator, dtype=torch.float64)
        return values.to(dtype).requires_grad_(grad)

    return make


def graph(
    nodes: int = 13, edges: int = 60, relations: int = 4, seed: int = 0, types: int = 3,
    dtype: torch.dtype = torch.int64,
) -> hector.Graph:  # fmt: skip
    """A random graph with duplicates, isolated nodes and an empty last relation."""
    generator = torch.Generator().manual_seed(seed)

    def ids(high: int, count: int) -> Tensor:
        return torch.randint(0, high, (count,), generator=generator).to(dtype)

    index = torch.stack([ids(nodes, edges), ids(max(nodes - 2, 1), edges)])
    kinds = ids(types, nodes)
    kinds[-1] = types - 1
    return hector.Graph(index, ids(max(relations - 1, 1), edges), nodes, relations, kinds)


def decided(name: str, g: hector.Graph, tensors: tuple[Tensor, ...]) -> hector.Graph:
    """The graph without edges at which rounding could take another branch than fp64 does.

    A score beside the kink of a leaky ReLU, or the second largest of a maximum, may change its
    gradient by all of it where the inputs are rounded: that is no error of a kernel's.

    Parameters
    ----------
    name : str
        Of the layer.
    g : Graph
    tensors : tuple of Tensor
        Its inputs.
    """
    keep = torch.ones(g.num_edges, dtype=torch.bool)
    if name == "rgat":
        x, W, a_src, a_dst = (tensor.detach().double() for tensor in tensors)
        ends = [(x[end][:, None] @ W[g.rel])[:, 0] for end in (g.src, g.dst)]
        score = (ends[0] * a_src[g.rel]).sum(-1) + (ends[1] * a_dst[g.rel]).sum(-1)
        keep = score.abs() > 0.02 * score.abs().max()
    if name == "typed":
        seen = set()
        for i, node in enumerate(g.dst.tolist()):
            keep[i] = node not in seen
            seen.add(node)
    return hector.Graph(
        g.edge_index[:, keep], g.edge_type[keep], g.num_nodes, g.num_relations, g.node_type
    )


def outputs_and_gradients(function, g, tensors, seeds: torch.dtype | None = None):
    """Results of a layer, then the gradients of a fixed weighting of them.

    ``seeds`` is the dtype to which the weights are rounded; by default each result's.
    """
    results = function(g, *tensors)
    results = results if isinstance(results, tuple) else (results,)
    wanted = [tensor for tensor in tensors if tensor.requires_grad]
    active = [result for result in results if result.requires_grad]
    if not active:
        return results
    weights = []
    for r in active:
        exact = torch.linspace(-1, 1, max(r.numel(), 1), dtype=torch.float64)[: r.numel()]
        rounded = exact.to(seeds or r.dtype).to(r.dtype)
        weights.append(rounded.reshape(r.shape).to(r.device))
    grads = torch.autograd.grad(active, wanted, weights, allow_unused=True)
    filled = [torch.zeros_like(t) if d is None else d for d, t in zip(grads, wanted, strict=True)]
    return (*results, *filled)
