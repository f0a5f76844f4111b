# SPDX-License-Identifier: Apache-2.0
"""PyG's layers and the hand composition on a cell's graph, timed; a peer that fails says why."""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from gpu_cells import DEVICE, Cell
from hand_composition import HAND, Sorted
from torch import Tensor

from hector.measure.timing import milliseconds, runner

__all__ = ["PYG", "Peer", "Timed", "make_pyg", "time_peer"]

Call = tuple[Callable[..., Any], tuple[object, ...], list[Tensor]]

PYG = {"RGCN": ("RGCNConv", "FastRGCNConv"), "RGAT": ("RGATConv",), "HGT": ("HGTConv",)}
"""PyG's layers for the same work."""


@dataclass(frozen=True)
class Peer:
    """A peer's name, and how its call is made: function, arguments, what gradients are of."""

    name: str
    make: Callable[[], Call]


@dataclass(frozen=True)
class Timed:
    """A peer's time in milliseconds, or what kept it from running."""

    name: str
    milliseconds: float | None
    failure: str = ""


def make_pyg(kind: str, chosen: Cell, width: int = 64) -> Call:
    """A layer of PyG on a cell's graph, one head."""
    import torch_geometric.nn as peers

    g, heads = chosen.graph, 1
    generator = torch.Generator(DEVICE).manual_seed(1)
    x = torch.randn(g.num_nodes, width, device=DEVICE, generator=generator).requires_grad_()
    if kind != "HGTConv":
        layer = getattr(peers, kind)(width, width, g.num_relations).to(DEVICE)
        order = torch.argsort(g.rel * g.num_nodes + g.dst)
        return layer, (x, g.edge_index[:, order], g.rel[order]), [x, *layer.parameters()]
    rows = dict(zip(g.node_type_names, x.detach().split(list(g.node_type_counts)), strict=True))
    rows = {name: value.clone().requires_grad_() for name, value in rows.items()}
    starts = {name: i * g.node_type_counts[0] for i, name in enumerate(g.node_type_names)}
    order = torch.argsort(g.rel, stable=True)
    counts = torch.bincount(g.rel, minlength=g.num_relations).tolist()
    edges = {}
    for relation, ids in zip(g.relation_names, order.split(counts), strict=True):
        shift = torch.tensor([[starts[relation[0]]], [starts[relation[2]]]], device=DEVICE)
        edges[relation] = g.edge_index[:, ids] - shift
    made = peers.HGTConv(width, width, (list(rows), list(edges)), heads=heads).to(DEVICE)

    def run(*arguments: Any) -> list[Tensor]:
        return [value for value in made(*arguments).values() if value is not None]

    return run, (rows, edges), [*rows.values(), *made.parameters()]


def _hand(chosen: Cell, dtype: torch.dtype) -> Peer:
    def make() -> Call:
        inputs = chosen.layer.inputs(chosen.graph, dtype=dtype)
        arguments = (Sorted.of(chosen.graph, dtype), *inputs)
        return HAND[chosen.layer.name], arguments, list(inputs)

    return Peer("grouped_mm by hand", make)


def peers_of(chosen: Cell, dtype: torch.dtype = torch.float32) -> list[Peer]:
    """PyG's layers in fp32, and the hand composition in any dtype."""
    found = [_hand(chosen, dtype)]
    if dtype is torch.float32:
        for kind in PYG[chosen.layer.name]:
            found.append(Peer(f"PyG {kind}", lambda kind=kind: make_pyg(kind, chosen)))  # type: ignore[misc]
    return found


def time_peer(peer: Peer, training: bool, budget: float = 0.4) -> Timed:
    """Time a peer; some take seconds for a call, so those are called twice only."""
    try:
        function, arguments, wrt = peer.make()
        run = runner(function, arguments, wrt, training)
        took = milliseconds(run, DEVICE, budget=budget, most=10, warm=1)
        return Timed(peer.name, took)
    except (torch.OutOfMemoryError, RuntimeError, ImportError) as error:
        return Timed(peer.name, None, f"{peer.name}: {str(error).splitlines()[0][:60]}")
    finally:
        function = arguments = wrt = run = None  # type: ignore[assignment]
        gc.collect()
        torch.cuda.empty_cache()
