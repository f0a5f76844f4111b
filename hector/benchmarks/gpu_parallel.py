# SPDX-License-Identifier: Apache-2.0
"""Compiling beside measuring: kernels into Triton's cache on disk, PyG's layers in processes.

Compilation takes cores and measurement the GPU alone, so everything is compiled by many processes
first. A process that holds a compiled layer of PyG waits until it is told to measure.
"""

from __future__ import annotations

import contextlib
import json
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Iterable
from pathlib import Path

from gpu_peers import Timed
from pyg_layers import PYG

__all__ = ["Compilers", "compiled_pyg"]

HERE = Path(__file__).resolve().parent


class Compilers:
    """Processes that run the settings of a section once, each its share.

    Parameters
    ----------
    arguments : list of str
        Of ``bench_gpu_layers.py``.
    processes : int
    """

    def __init__(self, arguments: list[str], processes: int) -> None:
        program = str(HERE / "bench_gpu_layers.py")
        self._lines: queue.Queue[str] = queue.Queue()
        self._running = [
            subprocess.Popen(
                [sys.executable, program, *arguments, "--share", f"{number}/{processes}"],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            )
            for number in range(processes)
        ]  # fmt: skip
        for each in self._running:
            threading.Thread(target=self._listen, args=(each,), daemon=True).start()

    def _listen(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            if line.strip() == "done":
                self._lines.put(line)

    def prepare(self, section: str, seconds: float = 150.0) -> float:
        """Have a section's kernels compiled; gives the seconds it took.

        Processes that are not done in time are ended: they would disturb what is measured.
        """
        start = time.monotonic()
        asked = []
        for each in self._running:
            assert each.stdin is not None
            try:
                each.stdin.write(f"{section}\n")
                each.stdin.flush()
                asked.append(each)
            except OSError:  # it has ended
                continue
        done = 0
        while done < sum(each.poll() is None for each in asked):
            if time.monotonic() > start + seconds:
                self.end()
                break
            with contextlib.suppress(queue.Empty):
                self._lines.get(timeout=0.2)
                done += 1
        print(f"{section}: compiled in {time.monotonic() - start:.0f} s", flush=True)
        return time.monotonic() - start

    def end(self) -> None:
        """End the processes."""
        for each in self._running:
            each.kill()
            each.wait()
        self._running = []

    def __enter__(self) -> Compilers:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()


class _Worker:
    """A process that compiles one layer of PyG on one graph."""

    def __init__(self, graph: str, layer: str, kind: str) -> None:
        self.graph, self.layer, self.kind = graph, layer, kind
        self.lines: queue.Queue[str] = queue.Queue()
        self.process = subprocess.Popen(
            [sys.executable, str(HERE / "gpu_compiled_pyg.py"), graph, layer, kind],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.put(line)
        self.lines.put("")

    def answer(self, seconds: float) -> dict[str, object]:
        """The next line of results, which says so where there is none in time."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            try:
                line = self.lines.get(timeout=left)
            except queue.Empty:
                break
            if not line:
                return {"failure": "the process ended"}
            if line.startswith("{"):
                found: dict[str, object] = json.loads(line)
                return found
        return {"failure": f"not compiled within {seconds:.0f} s"}

    def measure(self) -> dict[str, object]:
        """Let it measure; nothing else must use the GPU meanwhile."""
        assert self.process.stdin is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        return self.answer(60)

    def end(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.wait()


def compiled_pyg(
    cells: Iterable[tuple[str, str]],
    seconds: float,
    at_a_time: int,
) -> dict[tuple[str, str, bool], list[Timed]]:
    """Times of PyG's layers under ``torch.compile``.

    Parameters
    ----------
    cells : iterable of (graph, layer)
    seconds : float
        In which a layer must compile, beside the start of its process.
    at_a_time : int
        Processes.

    Returns
    -------
    dict
        By graph, layer and whether backward is included.
    """
    waiting = [(graph, layer, kind) for graph, layer in cells for kind in PYG[layer]]
    found: dict[tuple[str, str, bool], list[Timed]] = {}
    for first in range(0, len(waiting), at_a_time):
        workers = [_Worker(*each) for each in waiting[first : first + at_a_time]]
        deadline = time.monotonic() + 25
        started = [w.answer(max(deadline - time.monotonic(), 0.1)) for w in workers]
        deadline = time.monotonic() + seconds
        ready = [
            w.answer(max(deadline - time.monotonic(), 0.1)) if "failure" not in s else s
            for w, s in zip(workers, started, strict=True)
        ]
        # Those that still compile would disturb the others' measurement.
        for worker, state in zip(workers, ready, strict=True):
            if "failure" in state:
                worker.end()
        for worker, state in zip(workers, ready, strict=True):
            times = state if "failure" in state else worker.measure()
            worker.end()
            for training in (False, True):
                name = f"PyG {worker.kind}, torch.compile"
                took = times.get("training" if training else "forward")
                failure = "" if took else f"{name}: {times.get('failure', 'failed')}"
                timed = Timed(name, float(str(took)) if took else None, failure)
                found.setdefault((worker.graph, worker.layer, training), []).append(timed)
                print(f"{worker.graph} {worker.layer} {training}: {timed}", flush=True)
    return found
