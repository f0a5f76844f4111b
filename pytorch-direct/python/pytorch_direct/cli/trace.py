# SPDX-License-Identifier: Apache-2.0
"""Write a trace of a loader and of training: when each batch is sampled, fetched and trained on.

On a GPU the lanes are its streams, by events on them; on the CPU the threads that do the work. Open
the file in https://ui.perfetto.dev or chrome://tracing.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from pytorch_direct.cli.measure import measuring_device
from pytorch_direct.cli.training import Workload
from pytorch_direct.loader.lanes import CudaLanes, HostLanes
from pytorch_direct.loader.maker import BatchMaker
from pytorch_direct.loader.order import Job
from pytorch_direct.tensor.unified_tensor import unified

__all__ = ["Recorder", "Span", "run"]

LANES = ("sample", "fetch", "train", "wait for a batch")
_SHORTEST = 5e-6
"""Seconds: entering a lane without work for it is not shown."""


@dataclass(frozen=True)
class Span:
    """Something that took time: seconds since the recorder was made."""

    lane: str
    batch: int
    begin: float
    end: float


class Recorder:
    """Notes what happens on lanes, and when.

    Parameters
    ----------
    device : torch.device
        A GPU's lanes are timed by events on the stream that is current.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._lock = threading.Lock()
        self._here = threading.local()
        self._marks: list[tuple[str, int, Any, Any]] = []
        self._zero = self._mark()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        self._host_zero = time.perf_counter()

    @contextlib.contextmanager
    def span(self, lane: str, batch: int, *, on_host: bool = False) -> Iterator[None]:
        """Note that the lane is busy with a batch meanwhile."""
        mark: Callable[[], Any] = time.perf_counter if on_host else self._mark
        begin = mark()
        try:
            yield
        finally:
            end = mark()
            with self._lock:
                self._marks.append((lane, batch, begin, end))

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Note what loaders do meanwhile: on which lane, for which batch."""
        before = [
            (kind, name, getattr(kind, name))
            for kind, names in (
                (BatchMaker, ("start", "finish")),
                (CudaLanes, ("sampling", "fetching")),
                (HostLanes, ("sampling", "fetching")),
            )
            for name in names
        ]
        for kind, name, method in before:
            watched = self._of_batch(method) if kind is BatchMaker else self._on_lane(method, name)
            setattr(kind, name, watched)
        try:
            yield
        finally:
            for kind, name, method in before:
                setattr(kind, name, method)

    def _of_batch(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def watched(maker: Any, job: Job, *rest: Any) -> Any:
            self._here.batch = job.index
            return method(maker, job, *rest)

        return watched

    def _on_lane(self, method: Callable[..., Any], name: str) -> Callable[..., Any]:
        lane = {"sampling": "sample", "fetching": "fetch"}[name]

        @contextlib.contextmanager
        def watched(lanes: Any) -> Iterator[None]:
            with method(lanes), self.span(lane, self._here.batch):
                yield

        return watched

    def _mark(self) -> Any:
        if self._device.type != "cuda":
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record()
        return event

    def _seconds(self, mark: Any) -> float:
        if isinstance(mark, float):
            return mark - self._host_zero
        return float(self._zero.elapsed_time(mark)) / 1e3

    def spans(self) -> list[Span]:
        """Wait for the device and return what was noted, by lane and time."""
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        with self._lock:
            marks = list(self._marks)
        found = [
            Span(lane, batch, self._seconds(begin), self._seconds(end))
            for lane, batch, begin, end in marks
        ]
        return sorted(
            (span for span in found if span.end - span.begin >= _SHORTEST),
            key=lambda span: (LANES.index(span.lane), span.begin),
        )


def events(spans: list[Span], title: str) -> dict[str, Any]:
    """Return a trace in the format of Chrome's trace events."""
    lanes = [lane for lane in LANES if any(span.lane == lane for span in spans)]
    named: list[dict[str, Any]] = [
        {"name": "process_name", "ph": "M", "pid": 0, "tid": 0, "args": {"name": title}}
    ]
    for place, lane in enumerate(lanes):
        named.append(
            {"name": "thread_name", "ph": "M", "pid": 0, "tid": place, "args": {"name": lane}}
        )
        named.append(
            {"name": "thread_sort_index", "ph": "M", "pid": 0, "tid": place,
             "args": {"sort_index": place}}
        )  # fmt: skip
    for span in spans:
        named.append(
            {"name": f"{span.lane} {span.batch}", "cat": span.lane, "ph": "X", "pid": 0,
             "tid": lanes.index(span.lane), "ts": span.begin * 1e6,
             "dur": (span.end - span.begin) * 1e6, "args": {"batch": span.batch}}
        )  # fmt: skip
    return {"traceEvents": named, "displayTimeUnit": "ms"}


def run(work: Workload, device_name: str | None, batches: int, out: Path) -> list[Span]:
    """Train on some batches, write the trace, print how busy each lane was.

    Parameters
    ----------
    work : Workload
    device_name : str or None
        None: CUDA where there is one.
    batches : int
    out : Path

    Raises
    ------
    ValueError
        There is no batch to train on.
    """
    device = measuring_device(device_name)
    problem = work.make()
    if device.type == "cuda":
        problem = type(problem)(work, problem.graph.unified(), unified(problem.x), problem.y)
    trainer, loader = problem.trainer(device), problem.loader(device)
    for batch in _some(loader, 3):
        trainer.step(batch)
    recorder = Recorder(device)
    with recorder.watching():
        source = iter(loader)
        for number in range(batches):
            with recorder.span("wait for a batch", number, on_host=True):
                batch = next(source, None)
            if batch is None:
                break
            with recorder.span("train", number):
                trainer.step(batch)
        del source
    spans = recorder.spans()
    trained = [span for span in spans if span.lane == "train"]
    if not trained:
        raise ValueError("there was no batch to train on")
    out.write_text(json.dumps(events(spans, f"pytorch-direct: {work}")) + "\n", encoding="utf-8")
    first, last = trained[0].begin, trained[-1].end
    print(f"{work}: {len(trained)} batches in {(last - first) * 1e3:.1f} ms")
    for lane in LANES:
        busy = sum(
            max(0.0, min(span.end, last) - max(span.begin, first))
            for span in spans
            if span.lane == lane
        )
        if any(span.lane == lane for span in spans):
            print(f"  {lane:<18}{busy * 1e3:10.1f} ms, {busy / (last - first):6.1%} of the time")
    print(f"written: {out}; open it in https://ui.perfetto.dev")
    return spans


def _some(loader: Any, count: int) -> Iterator[Any]:
    source = iter(loader)
    for _, batch in zip(range(count), source, strict=False):
        yield batch
