# SPDX-License-Identifier: Apache-2.0
"""When the CPU waits for GPUs that use a unified tensor's memory, with events that only count."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from pytorch_direct import scatter_add_, unified
from pytorch_direct.memory import registration as module


class Event:
    """Its handle says how often it was recorded, so that a test sees what was waited for."""

    def __init__(self) -> None:
        self.cuda_event = 0

    def record(self, stream: object) -> None:
        self.cuda_event += 1


@pytest.fixture
def waits(monkeypatch):
    """The list of (device, event) that the CPU waited for."""
    seen: list[tuple[int, int]] = []
    monkeypatch.setattr(module.torch.cuda, "Event", Event)
    stream = SimpleNamespace(cuda_stream=5)
    monkeypatch.setattr(module.torch.cuda, "current_stream", lambda device=None: stream)
    monkeypatch.setattr(
        module, "_native", SimpleNamespace(wait_for_event=lambda *what: seen.append(what))
    )
    monkeypatch.setattr(
        module.Registration, "_buffer",
        lambda self, device: SimpleNamespace(record_use=lambda stream: None),
    )  # fmt: skip
    return seen


@pytest.fixture
def table(waits):
    return unified(torch.zeros(6, 3))


def test_reads_wait_for_writes_only(table, waits):
    table._registration.record_use(0, 5)
    table.sum()
    table[torch.tensor([1])]
    assert waits == []
    table._registration.record_use(0, 5, writes=True)
    table.sum()
    assert waits == [(0, 2)]
    table[torch.tensor([1])]
    assert waits == [(0, 2)]


@pytest.mark.parametrize(
    "write",
    [
        lambda t: t.add_(1),
        lambda t: t.copy_(torch.ones(6, 3)),
        lambda t: t.__setitem__(2, 1.0),
        lambda t: t.__setitem__(torch.tensor([1]), 1.0),
        lambda t: t[1:].zero_(),
        lambda t: torch.add(t, 1, out=t),
        lambda t: torch.ops.aten.add_.Tensor(t, 1),
        lambda t: torch.nn.functional.relu(t, inplace=True),
        lambda t: torch._foreach_add_([t], 1),
        lambda t: torch.nn.init.ones_(t),
        lambda t: torch.nn.functional.embedding(torch.tensor([1]), t, max_norm=1.0),
        lambda t: scatter_add_(t, torch.tensor([1]), torch.ones(1, 3)),
    ],
)
def test_writes_wait_for_reads_by_gpus(table, waits, write):
    # A gather that was launched must not see what the CPU writes after it.
    table._registration.record_use(1, 5)
    write(table)
    assert waits == [(1, 1)]
    write(table)
    assert waits == [(1, 1)]
    table._registration.record_use(1, 5)
    write(table)
    assert waits == [(1, 1), (1, 2)]


def test_each_thread_waits_until_one_has(table, waits, monkeypatch):
    """What another thread waits for has not ended yet."""
    table._registration.record_use(0, 5, writes=True)
    inner = []

    def wait(device, event):
        if not inner:
            inner.append(True)
            table.sum()  # as another thread would meanwhile
        waits.append((device, event))

    monkeypatch.setattr(module, "_native", SimpleNamespace(wait_for_event=wait))
    table.sum()
    assert waits == [(0, 1), (0, 1)]
    table.sum()
    assert len(waits) == 2


@pytest.mark.parametrize(
    "write",
    [
        lambda t: torch.ops.aten.add_.Tensor(t, 1),
        lambda t: torch.nn.functional.relu(t, inplace=True),
        lambda t: torch.nn.functional.embedding(torch.tensor([1]), t, max_norm=0.1),
        lambda t: torch._foreach_mul_([t], 2.0),
    ],
)
def test_hidden_writes_to_read_only_memory_are_refused(write):
    values = torch.ones(6, 3).numpy()
    values.flags.writeable = False
    table = unified(values)
    with pytest.raises(RuntimeError, match="read-only"):
        write(table)
    unified(table.view(-1).as_subclass(torch.Tensor))
    with pytest.raises(RuntimeError, match="read-only"):
        write(table)
