# SPDX-License-Identifier: Apache-2.0
"""CPU tensors treated as a GPU's: transfers by core's scheduler on its null device, and late.

Computation is the host's own, so the host *is* the compute stream: what a GPU would do in stream
order happens when the host says so. Two views of that:

- strict: ordering the stream behind a transfer waits for it. Memory that is given back without
  that order is used again while it is being copied, and gradients differ.
- running ahead: stores read a snapshot of what the stream had at the submission, and ordering the
  stream behind them costs nothing, as for a host that is far ahead of its GPU.

Transfers of one phase can be held behind a gate, so that a test sees them under way for as long as
it looks. Whoever waits for one of them opens the gate.

The stream has work left where ``busy`` says so; ``on_look`` is called at each look at that.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from typing import Any

import torch

from datapath_core import Scheduler, io
from datapath_core.streams import Ticket
from datapath_core.testing import null_device
from ssdtrain.streams import Streams


class Held:
    """Stands for a transfer that is submitted when the gate opens."""

    def __init__(self, submit: Callable[[], Ticket], open_gate: Callable[[], None]) -> None:
        self.submit, self.ticket = submit, None
        self._open_gate = open_gate

    def done(self) -> bool:
        return self.ticket is not None and self.ticket.done()

    def result(self, timeout: float | None = None) -> int:
        self._open_gate()
        return self.ticket.result(timeout)

    def wait(self, stream: int | None, timeout: float | None = None) -> None:
        self._open_gate()
        self.ticket.wait(stream, timeout=timeout)


def phase_of(destination: Any, source: Any) -> str:
    if isinstance(source, torch.Tensor):
        return "copying"
    if isinstance(destination, torch.Tensor):
        return "loading"
    return "writing" if isinstance(destination, io.Extent) else "reading"


class NullStreams(Streams):
    def __init__(
        self, delay: float = 0.0, seed: int = 0, *, runs_ahead: bool = False, hold: str = ""
    ) -> None:
        super().__init__()
        self._hold = hold
        self._held: list[Held] = []
        self.device = null_device()
        self.device.null_set_copy_delay(delay)
        self.stream = self.device.create_stream()
        self._delay = delay
        self._random = random.Random(seed)
        self._runs_ahead = runs_ahead
        self._stores: list[Ticket] = []
        self._snapshots: list[torch.Tensor] = []
        self._waited: list[Ticket] = []
        self._slow = self.device.allocate(1)
        self.ordered: list[int | None] = []
        self.busy = False
        self.on_look: Callable[[], None] = lambda: None

    def kind(self, device: torch.device) -> str:
        return "cuda"

    def current(self, device: torch.device) -> int | None:
        return self.stream

    def is_busy(self, device: torch.device) -> bool:
        self.on_look()
        return self.busy

    def move(
        self,
        destination: Any,
        source: Any,
        device: torch.device,
        stream: int | None,
        after: Ticket | Iterable[Ticket] = (),
        priority: int = 0,
    ) -> Ticket:
        tickets = [after] if isinstance(after, (Ticket, Held)) else list(after)
        if stream is not None:
            self._waited = [ticket for ticket in self._waited if not ticket.done()]
            tickets += self._waited
        if self._delay:
            for _ in range(self._random.randint(1, 3)):
                tickets.append(self.scheduler(device).transfer(self._slow, b"x", after=tickets))
        is_store = isinstance(source, torch.Tensor)
        held = phase_of(destination, source) == self._hold or any(
            isinstance(ticket, Held) and ticket.ticket is None for ticket in tickets
        )
        if is_store and self._runs_ahead:
            source = source.clone()

        def submit() -> Ticket:
            after = [ticket.ticket if isinstance(ticket, Held) else ticket for ticket in tickets]
            return super(NullStreams, self).move(
                destination, source, device, stream, after, priority
            )

        ticket: Any = Held(submit, self.open_gate) if held else submit()
        if held:
            self._held.append(ticket)
        if is_store and self._runs_ahead:
            self._snapshots.append(source)
            # A GPU's stream waits for a copy; where the drive takes part, the host does.
            if not isinstance(destination, io.Extent):
                self._stores.append(ticket)
        return ticket

    def open_gate(self) -> None:
        self._hold = ""
        held, self._held = self._held, []
        for entry in held:
            # What it refers to is the transfer's from here on.
            entry.ticket, entry.submit = entry.submit(), None

    def order(self, ticket: Ticket, stream: int | None, timeout: float | None = None) -> None:
        self.ordered.append(stream)
        if any(ticket is store for store in self._stores):
            self._waited.append(ticket)  # What is put on the stream from here on waits for it.
        else:
            ticket.wait(stream, timeout=timeout)
            ticket.result(timeout)

    def use(self, tensor: torch.Tensor) -> None:
        pass

    def _make(self, index: int) -> Scheduler:
        return Scheduler(self.device, chunk_bytes="64KiB", credits="1GiB")

    def close(self) -> None:
        self.open_gate()
        super().close()
        self.device.null_set_copy_delay(0)
