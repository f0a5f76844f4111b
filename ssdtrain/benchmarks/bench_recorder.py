# SPDX-License-Identifier: Apache-2.0
"""What watching operators for recomputation costs the host, on tensors too small to compute on."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
import torch.nn.functional as F  # noqa: N812
from bench_schema import Row, arguments, write
from torch.utils._python_dispatch import TorchDispatchMode

from ssdtrain.recorder import Recorder

CALLS = 50  # a slice without interruption
PEER = "a dispatch mode that does nothing"
NOTE = "fastest of {} runs of {} calls; one thread"


class Nothing(TorchDispatchMode):
    """The least that a mode can cost."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        return func(*args, **(kwargs or {}))


def microseconds(function: Callable[[], object], runs: int) -> float:
    """The time of one call."""
    best = float("inf")
    for _ in range(runs):
        begin = time.perf_counter()
        for _ in range(CALLS):
            function()
        best = min(best, time.perf_counter() - begin)
    return best / CALLS * 1e6


def operator_rows(runs: int) -> list[Row]:
    """What the mode adds to operators that are listed, and to those that are not."""
    x, weight = torch.randn(4, 64), torch.nn.Parameter(torch.randn(64))
    operators: dict[str, Callable[[], object]] = {
        "not listed: sum": x.sum,
        "not listed, writes: zero_": x.zero_,
        "listed: silu": lambda: F.silu(x),
        "listed: mul of two tensors": lambda: x * x,
        "listed: cast": x.bfloat16,
        "listed: layer_norm with parameters": lambda: F.layer_norm(x, (64,), weight, weight),
        "listed: dropout with its random state": lambda: torch.native_dropout(x, 0.3, True),
    }
    rows = []
    for name, operator in operators.items():
        plain = microseconds(operator, runs)
        with Nothing():
            nothing = microseconds(operator, runs)
        times = []
        # As in a real model, statistics and parameters count as small, activations do not.
        recorder = Recorder(lambda operand: True, small_bytes=512)
        with recorder:
            for _ in range(runs):
                times.append(microseconds(operator, 1))
                recorder.forget_step()
        rows.append(
            Row(
                work=f"added to an operator, {name}",
                ours=min(times) - plain,
                unit="us",
                peer=nothing - plain,
                peer_name=PEER,
                note=NOTE.format(runs, CALLS),
            )
        )
    return rows


def recipe_rows(runs: int) -> list[Row]:
    """Asking for a recipe, beside reading what the graph itself tells of an operator."""
    x = torch.randn(8, 8, requires_grad=True)
    rows = []
    for name, is_input in (("found", True), ("none", False)):
        recorder = Recorder(lambda operand, found=is_input: found, small_bytes=0)
        with recorder:
            y = F.silu(x)
            assert (recorder.recipe(y) is not None) == is_input
            ours = microseconds(lambda r=recorder, y=y: r.recipe(y), runs)
        node = y.grad_fn
        graph = microseconds(lambda n=node: (n.name(), n._raw_saved_self), runs)
        rows.append(
            Row(
                work=f"asking for the recipe of a saved tensor: {name}",
                ours=ours,
                unit="us",
                peer=graph,
                peer_name="reading grad_fn, which knows neither casts nor random states",
                note=NOTE.format(runs, CALLS),
            )
        )
    return rows


def main() -> None:
    """Measure the mode and the recipes."""
    options = arguments(__doc__)
    torch.set_num_threads(1)
    runs = 3 if options.quick else 400
    rows = operator_rows(runs) + recipe_rows(runs)
    write(options.json, "Cost of recording operators for recomputation", rows)


if __name__ == "__main__":
    main()
