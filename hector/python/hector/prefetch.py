# SPDX-License-Identifier: Apache-2.0
"""Builds the graphs of coming mini-batches beside the step that runs; samples nothing itself."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor
from torch.utils import _pytree

from hector.graph import Graph
from hector.plan import Recipe

__all__ = ["prefetch"]

B = TypeVar("B")


@dataclass(frozen=True)
class _Ready(Generic[B]):
    """A batch whose graph is built, or will be once the event has passed."""

    batch: B
    graph: Graph
    event: torch.cuda.Event | None


def _sent(batch: Any, device: torch.device) -> Any:
    if hasattr(batch, "to"):
        return batch.to(device, non_blocking=True)
    return _pytree.tree_map_only(Tensor, lambda t: t.to(device, non_blocking=True), batch)


def _tensors(batch: Any) -> list[Tensor]:
    return [leaf for leaf in _pytree.tree_leaves(batch) if isinstance(leaf, Tensor)]


class _Worker(threading.Thread, Generic[B]):
    """Takes batches and leaves them, with their graphs, in a queue."""

    def __init__(
        self,
        batches: Iterable[B],
        graph: Callable[[B], Graph],
        device: torch.device | None,
        depth: int,
    ) -> None:
        super().__init__(name="hector prefetch", daemon=True)
        self._batches, self._graph, self._device = batches, graph, device
        on_gpu = torch.cuda.is_available() and (device is None or device.type == "cuda")
        self._stream = torch.cuda.Stream(device) if on_gpu else None  # type: ignore[no-untyped-call]
        if self._stream is not None:  # Batches may read what that stream still writes.
            self._stream.wait_stream(torch.cuda.current_stream(device))
        self.recipe: Recipe = ()
        self.ready: queue.Queue[_Ready[B] | Exception | None] = queue.Queue()
        self._room = threading.Semaphore(depth)
        self._stopped = False

    def run(self) -> None:
        """Until the batches end, one fails, or nobody wants more."""
        try:
            with torch.cuda.stream(self._stream):  # which does nothing for None
                for batch in self._batches:
                    self._room.acquire()
                    if self._stopped:
                        return
                    self.ready.put(self._made(batch))
        except Exception as error:  # noqa: BLE001 - raised again where the batch is wanted
            self.ready.put(error)
        finally:
            self.ready.put(None)

    def _made(self, batch: B) -> _Ready[B]:
        if self._device is not None:
            batch = _sent(batch, self._device)
        graph: object = self._graph(batch)
        if not isinstance(graph, Graph):
            kind = type(graph).__name__
            raise TypeError(f"prefetch: graph must make a hector.Graph of a batch, not a {kind}")
        graph.prepare(self.recipe)
        event = None if self._stream is None else self._stream.record_event()
        return _Ready(batch, graph, event)

    def taken(self) -> None:
        """Make room for one more."""
        self._room.release()

    def stop(self) -> None:
        """Take no further batch; one that is being made is finished."""
        self._stopped = True
        self._room.release()


def _handed_over(ready: _Ready[Any]) -> None:
    """Order this thread's stream after the building, and memory's reuse after this stream."""
    if ready.event is None:
        return
    stream = torch.cuda.current_stream(ready.event.device)
    stream.wait_event(ready.event)
    for tensor in (*ready.graph.tensors(), *_tensors(ready.batch)):
        if tensor.is_cuda:
            tensor.record_stream(stream)
    if hasattr(ready.batch, "record_stream"):
        ready.batch.record_stream(stream)


def prefetch(
    batches: Iterable[B],
    graph: Callable[[B], Graph] = Graph.from_pyg,
    *,
    device: torch.device | str | int | None = None,
    depth: int = 2,
) -> Iterator[tuple[B, Graph]]:
    """Mini-batches with their graphs, built ahead by a thread, on a GPU on a stream of its own.

    Parameters
    ----------
    batches : iterable
        Read by the thread: what a loader does to make a batch is done ahead too.
    graph : callable
        Makes the graph of a batch; ``Graph(..., sampled=True)`` for batches that are no data
        objects of PyG.
    device : torch.device, str or int, optional
        Batches are moved there first, without waiting where their memory is pinned. Default: they
        stay.
    depth : int
        Batches that may be ready and unused: memory for so many more.

    Yields
    ------
    batch, Graph
        What programs derived from the last graph is derived from the next ones ahead, so that a
        step finds it. Work on the stream that is current where a batch is taken comes after its
        making.

    Raises
    ------
    ValueError
        If ``depth`` is less than one.
    TypeError
        If it is no int, or where ``graph`` makes something else than a graph.
    Exception
        What the batches or ``graph`` raise, when the failed batch's turn comes.
    """
    if isinstance(depth, bool) or not isinstance(depth, int):
        raise TypeError(f"prefetch: depth must be an int, not {type(depth).__name__}")
    if depth < 1:
        raise ValueError(f"prefetch: depth must be at least 1, got {depth}")
    where = None if device is None else torch.empty(0, device=device).device  # with its number
    return _batches(_Worker(batches, graph, where, depth))


def _batches(worker: _Worker[B]) -> Iterator[tuple[B, Graph]]:
    worker.start()
    try:
        while (found := worker.ready.get()) is not None:
            if isinstance(found, Exception):
                raise found
            worker.taken()
            _handed_over(found)
            yield found.batch, found.graph
            worker.recipe = found.graph.recipe()
    finally:
        worker.stop()
