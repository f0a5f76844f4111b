# SPDX-License-Identifier: Apache-2.0
"""PyG's layers and the hand composition on a cell's graph, timed; a peer that fails says why."""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import dataclass

import torch
from gpu_cells import DEVICE, Cell
from hand_composition import HAND, Sorted
from pyg_layers import PYG, Call, make_pyg

from hector.measure.timing import milliseconds, runner

__all__ = ["Peer", "Timed", "peers_of", "time_peer"]


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
            found.append(Peer(f"PyG {kind}", lambda kind=kind: make_pyg(kind, chosen.graph)))  # type: ignore[misc]
    return found


def time_peer(peer: Peer, budget: float = 0.15) -> dict[bool, Timed]:
    """Time a peer forward (False) and with backward (True); slow ones are called twice only."""
    found = {}
    run = None
    try:
        function, arguments, wrt = peer.make()
        for training in (False, True):
            run = runner(function, arguments, wrt, training)
            took = milliseconds(run, DEVICE, budget=budget, most=10, warm=1)
            found[training] = Timed(peer.name, took)
    except (torch.OutOfMemoryError, RuntimeError, ImportError) as error:
        failure = f"{peer.name}: {str(error).splitlines()[0][:60]}"
        for training in {False, True} - set(found):
            found[training] = Timed(peer.name, None, failure)
    finally:
        function = arguments = wrt = run = None  # type: ignore[assignment]
        gc.collect()
        torch.cuda.empty_cache()
    return found
