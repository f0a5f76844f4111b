# SPDX-License-Identifier: Apache-2.0
"""Random programs of shared, split, transposed, expanded and changed tensors, in every state."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch.utils.checkpoint import checkpoint

import ssdtrain
from datapath_core.testing import faults

WIDTH = 12
OPERATIONS = (
    "silu", "chunk_gate", "split_product", "transpose_matmul", "expand_add", "in_place", "reuse",
    "slice", "dropout", "softmax", "checkpoint", "norm", "linear",
)  # fmt: skip


class Program(torch.nn.Module):
    """Applies the named operations in turn; every tensor made so far may be used again."""

    def __init__(self, names: list[str]) -> None:
        super().__init__()
        self.names = names
        self.linear = torch.nn.Linear(WIDTH, WIDTH)
        self.wide = torch.nn.Linear(WIDTH, 3 * WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made = [self.linear(x)]
        for name in self.names:
            made.append(getattr(self, f"_{name}")(made[-1], made[len(made) // 2]))
        return torch.stack([tensor.float().pow(2).mean() for tensor in made]).sum()

    def _silu(self, x: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.silu(x)

    def _chunk_gate(self, x: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
        a, b, c = self.wide(x).chunk(3, dim=-1)
        return torch.sigmoid(a) * b + c

    def _split_product(self, x: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
        q, k, v = self.wide(x).split(WIDTH, dim=-1)
        return torch.softmax(q @ k.t(), dim=-1) @ v

    def _transpose_matmul(self, x: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        return (x.t() @ other).tanh().t().mm(x.t()).t()

    def _expand_add(self, x: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
        row = x.mean(0, keepdim=True).exp()
        return row.expand_as(x) * x

    def _in_place(self, x: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
        y = x * 0.5
        y.add_(1)
        y[:, ::2].mul_(0.9)
        return y.sin()

    def _reuse(self, x: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        return x * other + other * other

    def _slice(self, x: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
        return torch.cat([x[1:] * x[:-1], x[:1, ::1].exp().clamp(max=3)])

    def _dropout(self, x: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.dropout(x, 0.3)

    def _softmax(self, x: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
        return torch.log_softmax(x, dim=-1) * 0.1

    def _checkpoint(self, x: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
        return checkpoint(lambda t: self._chunk_gate(t, t), x, use_reentrant=False)

    def _norm(self, x: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.layer_norm(x, (WIDTH,))

    def _linear(self, x: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
        return self.linear(x)


def same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Also where a program of repeated products ends in NaN, which equals nothing."""
    return torch.equal(one.detach().view(torch.int32), other.detach().view(torch.int32))


@pytest.mark.parametrize("plan", ["", "any:slow@ms=2", "any:reorder@window=3"])
@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    names=st.lists(st.sampled_from(OPERATIONS), min_size=1, max_size=7),
    rows=st.integers(2, 9),
    prefetch=st.sampled_from([0, 1000, 1 << 20]),
    backlog=st.sampled_from([0, 2000, 1 << 20]),
    everything=st.booleans(),
    inside=st.booleans(),
)
def test_equal_to_plain_training(
    plan: str,
    tmp_path: Path,
    names: list[str],
    rows: int,
    prefetch: int,
    backlog: int,
    everything: bool,
    inside: bool,
) -> None:
    torch.manual_seed(len(names))
    model = Program(names)
    x = torch.randn(rows, WIDTH)

    def run() -> tuple[torch.Tensor, list[torch.Tensor | None]]:
        torch.manual_seed(1)
        loss = model(x)
        if not inside:
            return loss, []
        loss.backward()
        return loss, []

    def finish(loss: torch.Tensor) -> list[torch.Tensor | None]:
        if not inside:
            loss.backward()
        found = [None if p.grad is None else p.grad.clone() for p in model.parameters()]
        model.zero_grad()
        return found

    plain, _ = run()
    expected = finish(plain)
    with faults(plan):
        off = ssdtrain.Offloader(
            spill=tmp_path, host=0, ssd="16MiB", min_bytes=0, plan="all" if everything else "auto",
            prefetch=prefetch, backlog=backlog, checks=True,
        )  # fmt: skip
    with off:
        loss, _ = run()
    found = finish(loss)
    assert same_bits(plain, loss)
    for one, other in zip(expected, found, strict=True):
        assert (one is None) == (other is None)
        assert one is None or same_bits(one, other)
    del plain, loss
    assert off.report()["live_bytes"] == {}
    off.close()
