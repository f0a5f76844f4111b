# SPDX-License-Identifier: Apache-2.0
"""RGCN, RGAT and HGT as an expert composes them from PyTorch's ``grouped_mm``: a peer.

Edges are sorted by relation once. Each layer takes the tensors of ``hector.measure.layers``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

import hector

__all__ = ["HAND", "Sorted"]


@dataclass(frozen=True)
class Sorted:
    """A graph's edges in the order of relations, nodes in the order of types.

    Attributes
    ----------
    src, dst, rel : Tensor, int64, shape (E,)
    ends : Tensor, int32, shape (relations,)
        Where each relation's edges end.
    share : Tensor, shape (E, 1)
        1 / (edges of the relation into the same node).
    node_type : Tensor, int64, shape (nodes,)
    type_ends : Tensor, int32, shape (types,)
    """

    src: Tensor
    dst: Tensor
    rel: Tensor
    ends: Tensor
    share: Tensor
    node_type: Tensor
    type_ends: Tensor

    @classmethod
    def of(cls, g: hector.Graph, dtype: torch.dtype) -> Sorted:
        """Sort a graph whose nodes stand in the order of their types."""
        order = torch.argsort(g.rel, stable=True)
        src, dst, rel = g.src[order], g.dst[order], g.rel[order]
        _, pair, count = torch.unique(
            rel * g.num_nodes + dst, return_inverse=True, return_counts=True
        )
        return cls(
            src, dst, rel, _ends(rel, g.num_relations),
            count[pair].reciprocal().to(dtype)[:, None],
            g.node_type, _ends(g.node_type, g.num_node_types),
        )  # fmt: skip


def _ends(kinds: Tensor, count: int) -> Tensor:
    return torch.bincount(kinds, minlength=count).cumsum(0).to(torch.int32)


def _softmax(score: Tensor, dst: Tensor, nodes: int) -> Tensor:
    low = torch.full((nodes,), -torch.inf, device=score.device, dtype=score.dtype)
    high = low.scatter_reduce(0, dst, score.detach(), "amax")
    raised = (score - high[dst]).exp()
    total = raised.new_zeros(nodes).index_add(0, dst, raised)
    return raised / total[dst]


def _rgcn(s: Sorted, x: Tensor, w: Tensor, root: Tensor, bias: Tensor) -> Tensor:
    messages = functional.grouped_mm(x[s.src], w, offs=s.ends) * s.share
    return torch.addmm(bias, x, root).index_add(0, s.dst, messages)


def _rgat(s: Sorted, x: Tensor, w: Tensor, query: Tensor, key: Tensor, bias: Tensor) -> Tensor:
    # The scores of targets need a vector for each relation only.
    asked = (w @ query)[:, :, 0]
    z = functional.grouped_mm(x[s.src], w, offs=s.ends)
    score = (x[s.dst] * asked[s.rel]).sum(-1) + (z @ key)[:, 0]
    share = _softmax(functional.leaky_relu(score, 0.2), s.dst, x.shape[0])
    return bias.expand(x.shape).index_add(0, s.dst, z * share[:, None])


def _hgt(
    s: Sorted, x: Tensor, kqv: Tensor, kqv_bias: Tensor, attend: Tensor, message: Tensor,
    prior: Tensor, out: Tensor, out_bias: Tensor, skip: Tensor,
) -> Tensor:  # fmt: skip
    d = x.shape[1]
    projected = functional.grouped_mm(x, kqv, offs=s.type_ends) + kqv_bias[s.node_type]
    keys, queries, values = projected.split(d, 1)
    folded = attend[:, 0] * (prior / math.sqrt(d))[:, :, None]
    mapped = functional.grouped_mm(keys[s.src], folded, offs=s.ends)
    share = _softmax((mapped * queries[s.dst]).sum(-1), s.dst, x.shape[0])
    sent = functional.grouped_mm(values[s.src], message[:, 0].contiguous(), offs=s.ends)
    summed = torch.zeros_like(x).index_add(0, s.dst, sent * share[:, None])
    new = functional.grouped_mm(functional.gelu(summed), out, offs=s.type_ends)
    kept = torch.sigmoid(skip)[s.node_type][:, None]
    return kept * (new + out_bias[s.node_type]) + (1 - kept) * x


HAND = {"RGCN": _rgcn, "RGAT": _rgat, "HGT": _hgt}
"""The layers by name; one head."""
