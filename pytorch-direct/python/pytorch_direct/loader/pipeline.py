# SPDX-License-Identifier: Apache-2.0
"""A thread that makes batches ahead of whoever takes them, and ends with them."""

from __future__ import annotations

import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from pytorch_direct.loader.order import Job

__all__ = ["BatchIterator", "Maker"]


class Maker(Protocol):
    """What makes batches, in three steps; the last runs in the taker's thread."""

    ahead: int

    def start(self, job: Job) -> Any:
        """Begin to sample."""

    def finish(self, job: Job, pending: Any) -> Any:
        """Fetch."""

    def hand_over(self, made: Any) -> Any:
        """Give the batch to the caller's stream."""

    def running(self) -> Any:
        """Return a context for the thread that starts and finishes."""

    def end(self) -> None:
        """Let go of what the last batch was made from."""


class BatchIterator:
    """The batches of one epoch, each given once.

    Dropping it, an error and the end of the process stop the thread behind it; so does `close`.
    """

    def __init__(self, maker: Maker, jobs: Iterator[Job], depth: int) -> None:
        self._pid = os.getpid()
        self._work: _Inline | _Thread
        self._work = _Inline(maker, jobs) if depth == 0 else _Thread(maker, jobs, depth)
        self._maker = maker
        self._ended = False
        self._stop = weakref.finalize(self, self._work.stop)

    def __iter__(self) -> BatchIterator:
        return self

    def __next__(self) -> Any:
        if self._ended:
            raise StopIteration
        if os.getpid() != self._pid:
            raise RuntimeError(
                "these batches are made by a thread of another process, which this fork of it "
                "lacks: iterate over the loader anew here"
            )
        try:
            job, made = self._work.take()
            with _named(job):
                return self._maker.hand_over(made)
        except BaseException as error:
            # Ctrl-C while waiting for a batch loses nothing, so that one may go on.
            if not isinstance(error, KeyboardInterrupt):
                self.close()
            raise

    def close(self) -> None:
        """Stop; waits for the batch that is being made. Nothing more comes then."""
        self._ended = True
        self._stop()


class _named:  # noqa: N801  (reads as a function)
    """Says in errors which batch was being made."""

    def __init__(self, job: Job) -> None:
        self._job = job

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if not isinstance(error, Exception):
            return
        told = f"while making {self._job}"
        if len(error.args) == 1 and isinstance(error.args[0], str):
            error.args = (f"{error.args[0]} ({told})",)
        else:
            error.add_note(told)


class _Inline:
    """No thread: each batch is made when it is asked for."""

    def __init__(self, maker: Maker, jobs: Iterator[Job]) -> None:
        self._maker, self._jobs = maker, jobs

    def take(self) -> tuple[Job, Any]:
        job = next(self._jobs)
        with _named(job), self._maker.running():
            return job, self._maker.finish(job, self._maker.start(job))

    def stop(self) -> None:
        self._jobs = iter(())
        self._maker.end()


class _LoaderThread(threading.Thread):
    """A daemon, since the process must not wait for it before finalisers have stopped it."""

    def __init__(self, run: Callable[[], None]) -> None:
        super().__init__(target=run, name="pytorch_direct loader", daemon=True)


@dataclass
class _Failed:
    error: BaseException


class _Thread:
    """A thread with a bounded number of batches that nobody has taken."""

    def __init__(self, maker: Maker, jobs: Iterator[Job], depth: int) -> None:
        self._maker, self._jobs, self._room = maker, jobs, depth
        self._made: deque[tuple[Job, Any] | _Failed] = deque()
        self._change = threading.Condition()
        self._stopped = False
        self._ended = False
        self._pid = os.getpid()
        self._thread = _LoaderThread(self._run)
        self._thread.start()

    def take(self) -> tuple[Job, Any]:
        with self._change:
            while not self._made:
                if self._ended or self._stopped:
                    raise StopIteration
                self._change.wait()
            item = self._made.popleft()
            self._room += 1
            self._change.notify_all()
        if isinstance(item, _Failed):
            raise item.error
        return item

    def stop(self) -> None:
        if os.getpid() != self._pid:
            # A fork has this object, but not the thread, and its lock may be held for ever.
            return
        with self._change:
            self._stopped = True
            self._change.notify_all()
        # A thread of this kind may be what collects an iterator that nobody has any more.
        if not isinstance(threading.current_thread(), _LoaderThread):
            self._thread.join()
        self._made.clear()

    def _run(self) -> None:
        failed: BaseException | None = None
        try:
            try:
                with self._maker.running():
                    self._make_all()
            finally:
                self._maker.end()
        except BaseException as error:  # noqa: BLE001  (whoever takes batches raises it)
            failed = error
        with self._change:
            if failed is not None and not self._stopped:
                self._made.append(_Failed(failed))
            self._ended = True
            self._change.notify_all()

    def _make_all(self) -> None:
        under_way: deque[tuple[Job, Callable[[], Any]]] = deque()
        for job in self._jobs:
            under_way.append((job, self._begun(job)))
            if len(under_way) > self._maker.ahead and not self._finish(*under_way.popleft()):
                return
        while under_way and self._finish(*under_way.popleft()):
            pass

    def _begun(self, job: Job) -> Callable[[], Any]:
        try:
            pending = self._maker.start(job)
        except BaseException as error:  # noqa: BLE001  (raised in its turn, after the batch before)
            failed = error

            def fail() -> Any:
                with _named(job):
                    raise failed

            return fail
        return lambda: pending

    def _finish(self, job: Job, begun: Callable[[], Any]) -> bool:
        with self._change:
            while self._room == 0 and not self._stopped:
                self._change.wait()
            if self._stopped:
                return False
            self._room -= 1
        pending = begun()
        with _named(job):
            made = self._maker.finish(job, pending)
        with self._change:
            self._made.append((job, made))
            self._change.notify_all()
            return not self._stopped
