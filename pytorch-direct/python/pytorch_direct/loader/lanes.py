# SPDX-License-Identifier: Apache-2.0
"""On which streams batches are made, and in which order their memory may be used again."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import torch

from pytorch_direct.sampling.pending import PendingSample

__all__ = ["CudaLanes", "HostLanes", "Lanes", "lanes_of"]

#: Seconds between two looks at a sample that is under way; one takes a millisecond or more.
_PAUSE = 1e-4


class Lanes(Protocol):
    """Where a device samples and where it fetches."""

    device: torch.device
    #: Batches whose sampling begins before the one in front is fetched.
    ahead: int

    def sampling(self) -> Any:
        """Return a context in which to sample."""

    def wait(self, pending: PendingSample) -> None:
        """Wait for a sample, without keeping a core busy."""

    def owning(self) -> Any:
        """Return a context in which to allocate batches; nothing is run in it."""

    def fetching(self) -> Any:
        """Return a context in which to fill batches that were just allocated."""

    def done(self, held: object) -> Any:
        """Return what a batch's taker waits for; `held` is what filling it reads."""

    def take(self, ready: Any) -> None:
        """Let the caller's stream wait for a batch."""

    def release(self) -> None:
        """Free what the last batch was filled from."""


class HostLanes:
    """The CPU: everything happens when it is called."""

    device = torch.device("cpu")
    ahead = 0

    @contextmanager
    def sampling(self) -> Iterator[None]:
        """See `Lanes`."""
        yield

    def wait(self, pending: PendingSample) -> None:
        """See `Lanes`."""

    @contextmanager
    def owning(self) -> Iterator[None]:
        """See `Lanes`."""
        yield

    @contextmanager
    def fetching(self) -> Iterator[None]:
        """See `Lanes`."""
        yield

    def done(self, held: object) -> None:
        """See `Lanes`."""

    def take(self, ready: None) -> None:
        """See `Lanes`."""

    def release(self) -> None:
        """See `Lanes`."""


class CudaLanes:
    """The streams of a GPU for one thread that makes batches.

    Memory of the sampling and of the fetching stream is only ever freed by that thread, after the
    stream was made to wait for whatever read it. Memory of batches is freed by whoever drops them,
    at any time. So it belongs to a stream of its own, on which nothing runs: it is allocated first,
    and only then an event is recorded on each stream that took batches, for which the fetching
    stream waits. Whoever had the memory before used it before that event.
    """

    ahead = 1

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._shared = _shared(device)
        self._held: tuple[object, torch.cuda.Event] | None = None
        # What the caller has enqueued may be what makes the graph and the attributes.
        stream = torch.cuda.current_stream(device)
        self._shared.add_taker(stream)
        self._shared.sample.wait_event(_event(stream))

    @contextmanager
    def sampling(self) -> Iterator[None]:
        """See `Lanes`."""
        stream = self._shared.sample
        with torch.cuda.device(self.device), torch.cuda.stream(stream):
            yield

    def wait(self, pending: PendingSample) -> None:
        """See `Lanes`."""
        while not pending.done():
            time.sleep(_PAUSE)

    @contextmanager
    def owning(self) -> Iterator[None]:
        """See `Lanes`."""
        with torch.cuda.device(self.device), torch.cuda.stream(self._shared.owner):
            yield

    @contextmanager
    def fetching(self) -> Iterator[None]:
        """See `Lanes`."""
        stream = self._shared.fetch
        for earlier in (self._shared.sample, *self._shared.takers()):
            stream.wait_event(_event(earlier))
        with torch.cuda.device(self.device), torch.cuda.stream(stream):
            yield

    def done(self, held: object) -> torch.cuda.Event:
        """See `Lanes`."""
        self.release()
        filled = _event(self._shared.fetch)
        self._held = (held, filled)
        return filled

    def take(self, ready: torch.cuda.Event) -> None:
        """See `Lanes`."""
        stream = torch.cuda.current_stream(self.device)
        self._shared.add_taker(stream)
        stream.wait_event(ready)

    def release(self) -> None:
        """See `Lanes`; the sampling stream waits before it uses that memory again."""
        if self._held is not None:
            self._shared.sample.wait_event(self._held[1])
            self._held = None


def _event(stream: torch.cuda.Stream) -> torch.cuda.Event:
    event = torch.cuda.Event()  # type: ignore[no-untyped-call]
    event.record(stream)
    return event


class _Shared:
    """The streams of a GPU, which all loaders of the process share, and who took batches."""

    def __init__(self, device: torch.device) -> None:
        from datapath_core import Scheduler

        self._scheduler = Scheduler(device)
        self.sample: torch.cuda.Stream = self._scheduler.torch_stream("kernel")
        self.fetch: torch.cuda.Stream = self._scheduler.torch_stream("h2d")
        self.owner: torch.cuda.Stream = self._scheduler.torch_stream("d2h")
        self._takers: dict[int, torch.cuda.Stream] = {}
        self._lock = threading.Lock()

    def takers(self) -> list[torch.cuda.Stream]:
        with self._lock:
            return list(self._takers.values())

    def add_taker(self, stream: torch.cuda.Stream) -> None:
        with self._lock:
            self._takers.setdefault(stream.cuda_stream, stream)


_streams: dict[int, _Shared] = {}
_streams_lock = threading.Lock()


def _shared(device: torch.device) -> _Shared:
    with _streams_lock:
        found = _streams.get(device.index)
        if found is None:
            found = _streams[device.index] = _Shared(device)
        return found


def lanes_of(device: torch.device) -> Lanes:
    """Return new lanes of a device for one thread."""
    return CudaLanes(device) if device.type == "cuda" else HostLanes()
